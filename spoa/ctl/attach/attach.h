/* SPDX-License-Identifier: MIT */
/* attach: the parts of `cellgate attach`, a raw terminal over a WebSocket: the address (url), the connection (wire), the upgrade (open), the local
 * terminal (screen), typed commands (escape), and the loop between them (session). */
#ifndef CELLGATE_CTL_ATTACH_ATTACH_H
#define CELLGATE_CTL_ATTACH_ATTACH_H

#include <sys/types.h>
#include <termios.h>

#include "spoa/base/bytes/buffer.h"
#include "spoa/base/os/fail.h"

/* ---- url ---- */

struct attach_url {
    bool tls;
    char host[256]; /* a name or an address, without brackets */
    char port[6];
    char authority[264]; /* host and port as written in the Host header */
    struct slice target; /* path and query; points into the text that was parsed */
};

/* Parses a ws:// or wss:// URL (http and https mean the same) without its fragment. Returns false and sets *why if the URL is invalid. */
bool attach_url_parse(struct attach_url *url, const char *text, struct fail *why);

/* ---- wire: a TCP connection, plain or TLS ---- */

struct attach_wire;

struct attach_trust {
    const char *ca_file; /* file of trusted certificates; NULL for the system's */
    bool insecure;       /* true if the peer's certificate is not verified */
};

/* Resolves, connects and, for TLS, does the handshake; waits up to 10 s for each address. Returns NULL and sets *why on failure. */
struct attach_wire *attach_wire_dial(const struct attach_url *url, const struct attach_trust *trust,
                                     struct fail *why);
void attach_wire_free(struct attach_wire *wire);

enum { ATTACH_WIRE_END = 0, ATTACH_WIRE_AGAIN = -1, ATTACH_WIRE_FAILED = -2 };

/* These two never block. They return the number of bytes moved, or one of the values above. The caller must read until ATTACH_WIRE_AGAIN,
 * because TLS may hold bytes that poll does not see. */
ssize_t attach_wire_read(struct attach_wire *wire, void *to, size_t len);
ssize_t attach_wire_write(struct attach_wire *wire, struct slice bytes);
int attach_wire_fd(const struct attach_wire *wire);
/* Returns the poll events to wait for in order to read or write. */
short attach_wire_events(const struct attach_wire *wire, bool read, bool write);
/* Waits until reading or writing may continue. Returns false if `seconds` have passed. */
bool attach_wire_wait(struct attach_wire *wire, bool read, bool write, int seconds);

/* ---- open ---- */

/* Does the upgrade. Bytes received after the answer are left in *input. Returns false on failure; *why then has the refusal's error and
 * message. */
bool attach_open(struct attach_wire *wire, const struct attach_url *url, struct slice token,
                 struct buffer *input, struct fail *why);

/* ---- screen: the local terminal ---- */

struct attach_screen {
    bool terminal; /* true if standard input is a terminal */
    bool raw;
    struct termios before;
    /* standard output; for a terminal, a separate file description on which writes do not block */
    int output;
};

struct attach_screen attach_screen_open(void);
void attach_screen_close(struct attach_screen *screen);
void attach_screen_raw(struct attach_screen *screen);
void attach_screen_restore(struct attach_screen *screen);
/* Sets columns and rows. Returns false if there is no terminal or the size is unknown. */
bool attach_screen_size(const struct attach_screen *screen, unsigned *cols, unsigned *rows);

/* ---- escape: `~` after a line's end ---- */

enum attach_command {
    ATTACH_NO_COMMAND,
    ATTACH_LEAVE, /* ~. */
    ATTACH_HELP,  /* ~? */
};

struct attach_escape {
    bool inside_line;
    bool tilde; /* true if a `~` is held back until the next byte */
};

/* Removes typed bytes from *in up to the first command and returns that command. `to` must hold in->len + 1 bytes; *len is the number of
 * bytes in `to` to send. */
enum attach_command attach_escape_filter(struct attach_escape *e, struct slice *in, uint8_t *to, size_t *len);

/* ---- session ---- */

/* Reasons for the end of the session. */
struct attach_end {
    bool exited; /* true if the remote reported an exit code */
    int exit_code;
    bool closed; /* true if a Close arrived; close_code and close_reason are set */
    unsigned close_code;
    char close_reason[124];
    bool left;        /* true if the user typed ~. */
    int signal;       /* signal that ended the session; 0 if there was none */
    const char *lost; /* description of what broke; NULL if nothing did */
};

/* Runs the session until its end and restores the screen. *input (bytes that arrived with the upgrade) is consumed. */
void attach_session(struct attach_wire *wire, struct attach_screen *screen, struct buffer *input,
                    struct attach_end *end);

/* Copies text from the other side for a terminal: bytes other than printable ASCII become '?'. */
void attach_printable(char *to, size_t size, struct slice text);

#endif
