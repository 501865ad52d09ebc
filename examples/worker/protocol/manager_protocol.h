/* SPDX-License-Identifier: MIT */
/*
 * manager_protocol: what cell-worker and cell-sandboxd say to each other on a Unix socket. Version 1.
 *
 *     message = length:32 type:8 fields   big-endian; length counts type and fields: 1 to MANAGER_MESSAGE_MAX
 *     text    = length:16 bytes           no NUL in it
 *     list    = length:32 bytes           texts, each with a NUL behind it
 *     bytes   = all that is left of the message
 *
 * A connection is one conversation, and its end is the end of what it was for: the session manager notices at once
 * when a worker dies, and back-pressure is the socket's. The worker begins with HELLO and goes on without
 * waiting for an answer. Requests are answered in their order: CREATE, ATTACH and QUERY by SESSION, LIST by
 * one SESSION each and DONE, RESIZE, SIGNAL and DELETE by DONE; each may be answered by ERROR instead. A
 * session is named by its scope (who may see it, for instance "sb-1/pty") and its id.
 *
 * After ATTACH the connection is a reader of that session: SESSION says which bytes follow (`first`) and
 * where live output begins (`end`), then OUTPUT, each with the offset of its first byte, then EXIT, or
 * DETACHED when the session manager ends it before. INPUT goes to the session that is attached. When the session takes
 * no more of it, the session manager stops reading the connection.
 *
 * After RESUME, which makes the session if it is not there, the connection is a leg of a Cell-Resume tunnel
 * (docs/resume-protocol.md) that has the session's name. RESUMED says what the 101 is to say, or ERROR why not.
 * Then each ITEM, the EXIT behind the last, and the END (number: its own) are one item of the output each, and
 * each MESSAGE, which may come in parts, and the END are one of the input. MESSAGE counts as `size` bytes if
 * that is more than it has; with cols and rows it resizes the terminal. A session manager that is sent too much, or
 * nonsense, ends the tunnel with ERROR; a newer leg ends an older one with DETACHED. The
 * caller's END is the last that is acknowledged.
 */
#ifndef CELLGATE_WORKER_PROTOCOL_MANAGER_PROTOCOL_H
#define CELLGATE_WORKER_PROTOCOL_MANAGER_PROTOCOL_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"

#define MANAGER_VERSION     1
#define MANAGER_LENGTH_SIZE 4
#define MANAGER_MESSAGE_MAX 65536 /* bytes behind the length */
#define MANAGER_DATA_MAX    32768 /* bytes of payload in INPUT and OUTPUT */
#define MANAGER_NAME_MAX    96    /* bytes of a scope, of an id */
#define MANAGER_LIST_MAX    16384 /* bytes of a list */
#define MANAGER_PATH_MAX    4096
#define MANAGER_TEXT_MAX    512

enum manager_type {
    MANAGER_HELLO = 1, /* version */
    MANAGER_CREATE,    /* scope id kind flags cols rows ring stall_ms linger_ms timeout_ms cwd argv env */
    MANAGER_ATTACH,    /* scope id since flags kind */
    MANAGER_INPUT,     /* bytes */
    MANAGER_RESIZE,    /* scope id cols rows */
    MANAGER_SIGNAL,    /* scope id signal: to the process groups of the session */
    MANAGER_QUERY,     /* scope id */
    MANAGER_LIST,      /* scope: all sessions of it, or all there are if it is empty */
    MANAGER_DELETE,    /* scope id: hangs it up, and kills what remains */
    MANAGER_RESUME,    /* as CREATE, number (attempt) since (recv) buffer; flags: MANAGER_RECEIVED */
    MANAGER_MESSAGE,   /* flags (MANAGER_LAST) size cols rows bytes */

    MANAGER_DONE = 64,
    MANAGER_ERROR,    /* code text number */
    MANAGER_SESSION,  /* scope id kind state pid cols rows readers first end input exit_code */
    MANAGER_OUTPUT,   /* stream since bytes */
    MANAGER_EXIT,     /* exit_code: 0-255, 128 + n after signal n; it follows the last OUTPUT */
    MANAGER_DETACHED, /* code */
    MANAGER_RESUMED,  /* since (recv) number (next) buffer */
    MANAGER_ITEM,     /* flags (MANAGER_LAST) stream bytes */

    /* both ways */
    MANAGER_ACKNOWLEDGE = 96, /* number */
    MANAGER_END,              /* number */
};

enum manager_kind {
    MANAGER_TERMINAL = 1,
    MANAGER_PIPES = 2,
};

enum manager_state {
    MANAGER_NEW = 1, /* starts at the first ATTACH */
    MANAGER_RUNNING,
    MANAGER_ENDED,
};

enum manager_flags {
    MANAGER_START_LATER = 1, /* CREATE: as MANAGER_NEW says */
    MANAGER_EXCLUSIVE = 2,   /* ATTACH: refused while another reads */
    MANAGER_TAKEOVER = 4,    /* ATTACH: the others are detached, behind what there was when they came */
    MANAGER_RECEIVED = 16,   /* RESUME: recv is there */
    MANAGER_LAST = 32,       /* MESSAGE, ITEM: complete with these bytes */
    MANAGER_NO_INPUT = 64,   /* CREATE: what is started on pipes finds its input at the end */
    MANAGER_UNREAD = 8,      /* ATTACH: from where the last reader stopped; `since` is not looked at */
};

enum manager_stream {
    MANAGER_STDOUT = 0, /* all that a terminal shows */
    MANAGER_STDERR = 1,
};

enum manager_code {
    MANAGER_BAD_REQUEST = 1,
    MANAGER_WRONG_VERSION,
    MANAGER_UNKNOWN_SESSION,
    MANAGER_ID_TAKEN,
    MANAGER_ALREADY_ATTACHED,
    MANAGER_TOO_MANY,
    MANAGER_START_FAILED,
    MANAGER_INPUT_CLOSED, /* INPUT was dropped: the process has closed its end */
    MANAGER_OUT_OF_MEMORY,
    MANAGER_IMPOSSIBLE, /* RESUME: what it says it has received was never sent */
    MANAGER_LATE,       /* RESUME: its attempt is not higher than those seen */
    MANAGER_EXPIRED,    /* RESUME: there is no such tunnel any more */
    MANAGER_OVER,       /* RESUME: it has ended, with so much input consumed (number) */
    MANAGER_WRONG,      /* the caller has broken Cell-Resume */
    MANAGER_TOO_BIG,    /* it has sent more than the window */
    /* reasons of DETACHED */
    MANAGER_TAKEN_OVER = 32,
    MANAGER_TOO_SLOW, /* took nothing for stall_ms while the ring was full */
};

#define MANAGER_FOREVER UINT32_MAX

/* One message; a type uses the fields that are named with it above, all others are 0. */
struct manager_message {
    enum manager_type type;
    struct slice scope, id, cwd, text, argv, env, bytes;
    uint64_t since;      /* offset of output */
    uint64_t first, end; /* offsets: of what is held, or, after ATTACH, of what will be sent */
    uint64_t input;      /* bytes the session has taken */
    uint32_t ring;       /* bytes of output that are held; 0: 1 MiB */
    uint32_t stall_ms;   /* so long a reader that takes nothing may hold a full ring's session back */
    uint32_t linger_ms;  /* so long it lives when its last reader has left */
    uint32_t timeout_ms; /* so long it may run; 0 or MANAGER_FOREVER: no bound */
    uint32_t pid;        /* of the leader; 0: not started */
    uint32_t exit_code;  /* once it has ended */
    uint64_t number;     /* of an item or an attempt, or of items */
    uint32_t size;       /* bytes on the wire; 0: those that are there */
    uint32_t buffer;     /* bytes that may be unacknowledged; 0: not said */
    uint16_t cols, rows;
    uint8_t version, kind, flags, state, stream, signal, code, readers;
};

enum manager_result {
    MANAGER_MORE,
    MANAGER_READ,
    MANAGER_BAD,
};

/* Appends one message; w is full if it does not fit or passes a bound. */
void manager_put(struct writer *w, const struct manager_message *m);
/* Takes one message off *in; its slices point into it. After MANAGER_BAD the conversation is to be ended. */
enum manager_result manager_read(struct slice *in, struct manager_message *m);

/* Copies of a list's strings in an array that ends with NULL, all in one block that the caller frees; NULL
 * when out of memory. */
char **manager_strings(struct slice list);
/* Appends a string to a list under construction. */
void manager_put_string(struct writer *list, struct slice string);
/* Whether s may be a scope or an id: letters, digits, "-_./", 1 to MANAGER_NAME_MAX bytes. */
bool manager_is_name(struct slice s);

#endif
