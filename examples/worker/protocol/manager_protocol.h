/* SPDX-License-Identifier: MIT */
/*
 * manager_protocol: the messages between cell-worker and cell-sandboxd on a Unix socket, version 1. The session manager is the part of
 * cell-sandboxd that keeps the sessions.
 *
 *     message = length:32 type:8 fields   big-endian; length counts type and fields: 1 to MANAGER_MESSAGE_MAX
 *     text    = length:16 bytes           no NUL in it
 *     list    = length:32 bytes           texts, each with a NUL after it
 *     bytes   = the rest of the message
 *
 * A connection carries one conversation: one client, or one request. The session manager notices at once when a worker dies, because the
 * connection ends, and back-pressure is that of the socket. The worker begins with HELLO and continues without waiting for an answer.
 * Requests are answered in order: CREATE, ATTACH and QUERY with SESSION; LIST with one SESSION per session, then DONE; RESIZE, SIGNAL and
 * DELETE with DONE. The answer to any of them may be ERROR instead. A session's name is its scope (the part that a caller may see, for
 * instance "sb-1/pty") and its id.
 *
 * After ATTACH the connection is a reader of that session. SESSION gives the offset of the first byte that follows (`first`) and the
 * offset at which live output begins (`end`). Then come OUTPUT messages, each with the offset of its first byte, and EXIT, or DETACHED if
 * the session manager ends the reading earlier. INPUT goes to the attached session; when the session takes no more input, the session
 * manager stops reading the connection.
 *
 * After RESUME, which creates the session if it does not exist, the connection is a leg of a Cell-Resume tunnel
 * (docs/resume-protocol.md) with the session's name. The answer is RESUMED, with the values for the 101 response, or ERROR. Each ITEM, the
 * EXIT after the last ITEM, and the END (with its own number) are one item of output each. Each MESSAGE, which may arrive in parts, and
 * the caller's END are one item of input each. A MESSAGE counts as `size` bytes if that is more than it has; with cols and rows it
 * resizes the terminal. Too much input, or a violation of the protocol, ends the tunnel with ERROR. A newer leg ends an older one with
 * DETACHED. The caller's END is the last item that is acknowledged.
 */
#ifndef CELLGATE_WORKER_PROTOCOL_MANAGER_PROTOCOL_H
#define CELLGATE_WORKER_PROTOCOL_MANAGER_PROTOCOL_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/bytes/writer.h"

#define MANAGER_VERSION     1
#define MANAGER_LENGTH_SIZE 4
#define MANAGER_MESSAGE_MAX 65536 /* largest number of bytes after the length */
#define MANAGER_DATA_MAX    32768 /* largest payload of INPUT and OUTPUT, in bytes */
#define MANAGER_NAME_MAX    96    /* longest scope, and longest id, in bytes */
#define MANAGER_LIST_MAX    16384 /* longest list, in bytes */
#define MANAGER_PATH_MAX    4096
#define MANAGER_TEXT_MAX    512

enum manager_type {
    MANAGER_HELLO = 1, /* version */
    MANAGER_CREATE,    /* scope id kind flags cols rows ring stall_ms linger_ms timeout_ms cwd argv env */
    MANAGER_ATTACH,    /* scope id since flags kind */
    MANAGER_INPUT,     /* bytes */
    MANAGER_RESIZE,    /* scope id cols rows */
    MANAGER_SIGNAL,    /* scope id signal; the signal goes to the session's process groups */
    MANAGER_QUERY,     /* scope id */
    MANAGER_LIST,      /* scope; an empty scope lists all sessions */
    MANAGER_DELETE,    /* scope id; hangs the session up, and kills the processes that remain */
    MANAGER_RESUME,    /* fields of CREATE, number (attempt) since (recv) buffer; flags: MANAGER_RECEIVED */
    MANAGER_MESSAGE,   /* flags (MANAGER_LAST) size cols rows bytes */

    MANAGER_DONE = 64,
    MANAGER_ERROR,    /* code text number */
    MANAGER_SESSION,  /* scope id kind state pid cols rows readers first end input exit_code */
    MANAGER_OUTPUT,   /* stream since bytes */
    MANAGER_EXIT,     /* exit_code (0-255, or 128 + n after signal n); follows the last OUTPUT */
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
    MANAGER_START_LATER = 1, /* CREATE: the process starts at the first ATTACH */
    MANAGER_EXCLUSIVE = 2,   /* ATTACH: refused while the session has another reader */
    MANAGER_TAKEOVER =
        4, /* ATTACH: detaches other readers once they have the output of the time they attached */
    MANAGER_RECEIVED = 16, /* RESUME: the field `since` (recv) is present */
    MANAGER_LAST = 32,     /* MESSAGE, ITEM: these bytes complete it */
    MANAGER_NO_INPUT = 64, /* CREATE: on pipes, the process finds its standard input at the end */
    MANAGER_UNREAD = 8,    /* ATTACH: begins where the last reader stopped; `since` is ignored */
};

enum manager_stream {
    MANAGER_STDOUT = 0, /* standard output; on a terminal all output */
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
    MANAGER_IMPOSSIBLE, /* RESUME: the caller claims to have received items that were never sent */
    MANAGER_LATE,       /* RESUME: the attempt's number is not higher than all earlier ones */
    MANAGER_EXPIRED,    /* RESUME: the tunnel does not exist any more */
    MANAGER_OVER,       /* RESUME: the tunnel has ended; `number` is the number of consumed items of input */
    MANAGER_WRONG,      /* the caller has broken Cell-Resume */
    MANAGER_TOO_BIG,    /* the caller has sent more than the window */
    /* reasons of DETACHED */
    MANAGER_TAKEN_OVER = 32,
    MANAGER_TOO_SLOW, /* the reader took nothing for stall_ms while the ring was full */
};

#define MANAGER_FOREVER UINT32_MAX /* value of a time without limit */

/* One message. A type uses the fields that its comment above names; the others are 0. */
struct manager_message {
    enum manager_type type;
    struct slice scope, id, cwd, text, argv, env, bytes;
    uint64_t since; /* offset in the output */
    uint64_t first,
        end;            /* offsets of the output in the ring; after ATTACH, of the output that will be sent */
    uint64_t input;     /* bytes of input that the process has taken */
    uint32_t ring;      /* size of the ring in bytes; 0 for 1 MiB */
    uint32_t stall_ms;  /* longest time in which a reader that takes nothing may stop the process, in ms */
    uint32_t linger_ms; /* time for which the session outlives its last reader, in ms */
    uint32_t timeout_ms; /* longest running time, in ms; unlimited if 0 or MANAGER_FOREVER */
    uint32_t pid;        /* process id of the leader; 0 before the start */
    uint32_t exit_code;  /* only valid after the end */
    uint64_t number;     /* number of an item or an attempt, or a count of items */
    uint32_t size;       /* bytes on the client's connection; 0 if that is the length of `bytes` */
    uint32_t buffer;     /* largest number of unacknowledged bytes; 0 for the default */
    uint16_t cols, rows;
    uint8_t version, kind, flags, state, stream, signal, code, readers;
};

enum manager_result {
    MANAGER_MORE, /* the message is not complete */
    MANAGER_READ,
    MANAGER_BAD, /* the message is invalid: the caller must end the conversation */
};

/* Appends one message. Sets w->full if the message does not fit, or a field is longer than its limit. */
void manager_put(struct writer *w, const struct manager_message *m);
/* Reads one message off the front of *in. The message's slices point into *in. */
enum manager_result manager_read(struct slice *in, struct manager_message *m);

/* Returns copies of a list's strings in an array that ends with NULL. The array and the strings are one block, which the caller frees.
 * Returns NULL if memory is short. */
char **manager_strings(struct slice list);
/* Appends a string to a list under construction. */
void manager_put_string(struct writer *list, struct slice string);
/* Returns true if s may be a scope or an id: letters, digits and "-_./", 1 to MANAGER_NAME_MAX bytes. */
bool manager_is_name(struct slice s);

#endif
