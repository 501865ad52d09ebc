/* SPDX-License-Identifier: MIT */
/*
 * The rooms of `cellgate attach`, a raw terminal over a WebSocket: where to (url), the connection (wire), the
 * upgrade (open), the local terminal (screen), what the user types to leave (escape), and the loop between
 * them (session).
 */
#ifndef CELLGATE_CTL_ATTACH_H
#define CELLGATE_CTL_ATTACH_H

#include <sys/types.h>
#include <termios.h>

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/os/fail.h"

/* ---- url ---- */

struct attach_url {
    bool tls;
    char host[256]; /* a name or an address, without brackets */
    char port[6];
    char authority[264]; /* as it stands in Host */
    struct slice target; /* path and query, of the text that was parsed */
};

/* ws:// and wss:// (http and https mean the same); a fragment is dropped. */
bool attach_url_parse(struct attach_url *url, const char *text, struct fail *why);

/* ---- wire: a TCP connection, plain or TLS ---- */

struct attach_wire;

struct attach_trust {
    const char *ca_file; /* NULL: the system's */
    bool insecure;       /* do not verify */
};

/* Resolves, connects and, for TLS, shakes hands; waits
 * up to 10 s for each address. NULL and *why on failure. */
struct attach_wire *attach_wire_dial(const struct attach_url *url, const struct attach_trust *trust,
                                     struct fail *why);
void attach_wire_free(struct attach_wire *wire);

enum { ATTACH_WIRE_END = 0, ATTACH_WIRE_AGAIN = -1, ATTACH_WIRE_FAILED = -2 };

/* Never wait. Bytes moved, or one of the above; reading goes on until ATTACH_WIRE_AGAIN, as TLS holds bytes
 * that poll does not see. */
ssize_t attach_wire_read(struct attach_wire *wire, void *to, size_t len);
ssize_t attach_wire_write(struct attach_wire *wire, struct slice bytes);
int attach_wire_fd(const struct attach_wire *wire);
/* What to poll for in order to read or write. */
short attach_wire_events(const struct attach_wire *wire, bool read, bool write);
/* Waits until one of the two may go on; false when `seconds` have passed. */
bool attach_wire_wait(struct attach_wire *wire, bool read, bool write, int seconds);

/* ---- open ---- */

/* Upgrades. What came behind the answer is left in *input. A refusal's error and message go into *why. */
bool attach_open(struct attach_wire *wire, const struct attach_url *url, struct slice token,
                 struct buffer *input, struct fail *why);

/* ---- screen: the local terminal ---- */

struct attach_screen {
    bool terminal; /* standard input is one */
    bool raw;
    struct termios before;
    int output; /* standard output; of a terminal a description of our own, on which writes do not wait */
};

struct attach_screen attach_screen_open(void);
void attach_screen_close(struct attach_screen *screen);
void attach_screen_raw(struct attach_screen *screen);
void attach_screen_restore(struct attach_screen *screen);
/* Columns and rows; false when there is no terminal or it does not know. */
bool attach_screen_size(const struct attach_screen *screen, unsigned *cols, unsigned *rows);

/* ---- escape: `~` after a line's end ---- */

enum attach_command {
    ATTACH_NO_COMMAND,
    ATTACH_LEAVE, /* ~. */
    ATTACH_HELP,  /* ~? */
};

struct attach_escape {
    bool inside_line;
    bool tilde; /* held back until the next byte says what it means */
};

/* Takes typed bytes off *in up to the first command. to
 * must hold in->len + 1 bytes; *len is what is to be sent. */
enum attach_command attach_escape_filter(struct attach_escape *e, struct slice *in, uint8_t *to, size_t *len);

/* ---- session ---- */

/* Why it ended. */
struct attach_end {
    bool exited; /* the remote said its exit code */
    int exit_code;
    bool closed; /* a Close came: */
    unsigned close_code;
    char close_reason[124];
    bool left;        /* by ~. */
    int signal;       /* that ended us, or 0 */
    const char *lost; /* what broke, or NULL */
};

/* Runs until the end; the screen is restored then. *input (bytes that came with the upgrade) is used up. */
void attach_session(struct attach_wire *wire, struct attach_screen *screen, struct buffer *input,
                    struct attach_end *end);

/* Text from the other side, made fit for a terminal: other bytes than printable ASCII become '?'. */
void attach_printable(char *to, size_t size, struct slice text);

#endif
