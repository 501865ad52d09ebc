/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/attach/attach.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/base/json/json.h"
#include "spoa/proto/ws.h"

#define READ_SIZE      4096
#define SCREEN_HELD    ((size_t)256 * 1024) /* more is not read from the wire while the screen is slow */
#define WIRE_HELD      ((size_t)64 * 1024)  /* more is not read from the keyboard while the wire is slow */
#define MESSAGE_MAX    4096                 /* longest control message, in bytes; longer ones are ignored */
#define QUIET_MS       25000                /* silence after which a Ping is sent */
#define DEAD_MS        75000                /* silence after which the connection counts as dead */
#define PROD_MS        1000 /* silence after the end of the input, after which Ctrl-D is sent again */
#define LEAVE_MS       2000 /* time for the other side's Close and the last bytes to send */
#define SCREEN_AT_ONCE 4096 /* poll promises no more to a pipe (PIPE_BUF) */

enum phase {
    RUNNING,
    LEAVING, /* the Close was sent, and the answer is awaited */
    ENDED,   /* the connection has ended; held output still goes to the screen */
};

struct session {
    struct attach_wire *wire;
    struct attach_screen *screen;
    struct attach_end *end;
    enum phase phase;
    struct ws_decoder decoder;
    uint8_t control[WS_CONTROL_MAX]; /* the decoder's */
    bool text;                       /* true if the message being read is a control message */
    uint8_t message[MESSAGE_MAX];
    size_t message_len; /* length of the message; MESSAGE_MAX + 1 if it is too long and dropped */
    struct buffer to_wire, to_screen;
    struct attach_escape escape;
    bool keyboard_open;
    uint8_t last_typed;
    bool wire_broken;
    int64_t heard, asked, prodded, deadline; /* in milliseconds */
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void end_with(struct session *s, const char *lost)
{
    if (s->phase == RUNNING)
        s->end->lost = lost;
    if (s->phase != ENDED)
        s->deadline = now_ms() + LEAVE_MS;
    s->phase = ENDED;
}

/* ---- towards the wire ---- */

/* Creates an unpredictable mask (RFC 6455 section 5.3). */
static bool fresh_mask(uint8_t mask[4])
{
    return getrandom(mask, 4, 0) == 4;
}

static void send_frame(struct session *s, enum ws_opcode opcode, struct slice payload)
{
    uint8_t frame[WS_HEAD_MAX + READ_SIZE + 2];
    struct ws_frame head = {.opcode = opcode, .fin = true, .masked = true, .length = payload.len};

    if (payload.len == 0 && !ws_is_control(opcode))
        return;
    if (!fresh_mask(head.mask)) {
        end_with(s, "no random bytes");
        return;
    }
    size_t len = ws_encode_head(frame, &head);
    ws_mask(frame + len, payload.at, payload.len, head.mask, 0);
    if (!buffer_put(&s->to_wire, slice_of(frame, len + payload.len)) && opcode != WS_PONG)
        end_with(s, "out of memory");
}

static void send_close(struct session *s, unsigned code)
{
    uint8_t frame[WS_CONTROL_FRAME_MAX], mask[4];

    if (fresh_mask(mask) &&
        !buffer_put(&s->to_wire, slice_of(frame, ws_encode_close(frame, code, slice_text(""), mask))))
        end_with(s, "out of memory");
}

static void send_size(struct session *s)
{
    unsigned cols, rows;
    char text[64];

    if (s->phase != RUNNING || !attach_screen_size(s->screen, &cols, &rows))
        return;
    int len = snprintf(text, sizeof(text), "{\"type\":\"resize\",\"cols\":%u,\"rows\":%u}", cols, rows);
    send_frame(s, WS_TEXT, slice_of(text, (size_t)len));
}

static void write_wire(struct session *s)
{
    while (buffer_len(&s->to_wire) > 0) {
        ssize_t sent = attach_wire_write(s->wire, buffer_slice(&s->to_wire));
        if (sent == ATTACH_WIRE_AGAIN)
            return;
        if (sent <= 0) {
            s->wire_broken = true;
            end_with(s, "the connection was lost");
            return;
        }
        buffer_consume(&s->to_wire, (size_t)sent);
    }
}

/* ---- from the wire ---- */

static void take_control_message(struct session *s)
{
    struct fail ignored;
    struct json *doc = json_parse(slice_of(s->message, s->message_len), "message", 0,
                                  (struct json_limits){MESSAGE_MAX, 8}, &ignored);
    struct slice type;
    int64_t code;

    if (doc && json_text(json_member(json_root(doc), "type"), &type) && slice_is(type, "exit") &&
        json_int(doc, json_member(json_root(doc), "exit_code"), INT32_MIN, INT32_MAX, &code)) {
        s->end->exited = true;
        s->end->exit_code = (int)code;
    }
    json_free(doc);
}

static void take_text(struct session *s, const struct ws_piece *piece)
{
    if (s->message_len + piece->bytes.len > MESSAGE_MAX) {
        s->message_len = MESSAGE_MAX + 1;
    } else if (piece->bytes.len > 0) {
        memcpy(s->message + s->message_len, piece->bytes.at, piece->bytes.len);
        s->message_len += piece->bytes.len;
    }
    if (piece->last && s->decoder.frame.fin && s->message_len <= MESSAGE_MAX)
        take_control_message(s);
}

static void take_close(struct session *s)
{
    s->end->closed = true;
    s->end->close_code = s->decoder.close_code;
    attach_printable(s->end->close_reason, sizeof(s->end->close_reason), ws_close_reason(&s->decoder));
    if (s->phase == RUNNING)
        send_close(s, s->decoder.close_code);
    end_with(s, NULL);
}

static void take_event(struct session *s, enum ws_event event, const struct ws_piece *piece)
{
    enum ws_opcode opcode = s->decoder.frame.opcode;

    if (event == WS_HEAD && opcode != WS_CONTINUATION) {
        s->text = opcode == WS_TEXT;
        s->message_len = 0;
    } else if (event == WS_PIECE && s->text) {
        take_text(s, piece);
    } else if (event == WS_PIECE) {
        if (!buffer_put(&s->to_screen, piece->bytes))
            end_with(s, "out of memory");
    } else if (event == WS_CONTROL && opcode == WS_PING && s->phase == RUNNING) {
        send_frame(s, WS_PONG, ws_control_payload(&s->decoder));
    } else if (event == WS_CONTROL && opcode == WS_CLOSE) {
        take_close(s);
    } else if (event == WS_BAD) {
        send_close(s, s->decoder.close_code);
        end_with(s, s->decoder.why);
    }
}

static void take_bytes(struct session *s, struct slice in)
{
    struct ws_piece piece = {0};
    enum ws_event event;

    while (s->phase != ENDED && (event = ws_decode(&s->decoder, &in, &piece)) != WS_MORE)
        take_event(s, event, &piece);
}

static bool reads_wire(const struct session *s)
{
    return s->phase != ENDED && buffer_len(&s->to_screen) < SCREEN_HELD;
}

static void read_wire(struct session *s)
{
    uint8_t bytes[16384];

    while (reads_wire(s)) {
        ssize_t got = attach_wire_read(s->wire, bytes, sizeof(bytes));
        if (got == ATTACH_WIRE_AGAIN)
            return;
        s->heard = s->asked = now_ms();
        if (got > 0) {
            take_bytes(s, slice_of(bytes, (size_t)got));
        } else {
            s->wire_broken = true;
            end_with(s, "the connection was lost");
        }
    }
}

/* ---- the local side ---- */

static void leave(struct session *s)
{
    send_close(s, 1000);
    s->end->left = true;
    s->deadline = now_ms() + LEAVE_MS;
    s->phase = LEAVING;
}

static void show_help(struct session *s)
{
    static const char text[] = "\r\nAfter a line's end:\r\n  ~.  leave (the session goes on)\r\n"
                               "  ~?  this help\r\n  ~~  send one ~\r\n";
    if (!buffer_put(&s->to_screen, slice_text(text)))
        end_with(s, "out of memory");
}

static void take_typed(struct session *s, struct slice typed)
{
    uint8_t to[READ_SIZE + 1];
    size_t len;

    while (typed.len > 0 && s->phase == RUNNING) {
        enum attach_command command = attach_escape_filter(&s->escape, &typed, to, &len);
        send_frame(s, WS_BINARY, slice_of(to, len));
        if (command == ATTACH_LEAVE)
            leave(s);
        else if (command == ATTACH_HELP)
            show_help(s);
    }
}

/* Ends the input as a user would: finishes the line, then sends Ctrl-D. */
static void end_input(struct session *s)
{
    bool at_line_start = s->last_typed == 0 || s->last_typed == '\n' || s->last_typed == '\r';

    s->keyboard_open = false;
    s->prodded = now_ms();
    send_frame(s, WS_BINARY, slice_text(at_line_start ? "\x04" : "\n\x04"));
}

/* Sends Ctrl-D again each time the other side was quiet. A remote terminal loses a Ctrl-D if it changes its mode before reading it, as
 * shells do around each command. */
static void prod(struct session *s, int64_t now)
{
    int64_t quiet_since = s->prodded > s->heard ? s->prodded : s->heard;

    if (s->phase != RUNNING || s->keyboard_open || now - quiet_since < PROD_MS)
        return;
    s->prodded = now;
    send_frame(s, WS_BINARY, slice_text("\x04"));
}

static bool reads_keyboard(const struct session *s)
{
    return s->phase == RUNNING && s->keyboard_open && buffer_len(&s->to_wire) < WIRE_HELD;
}

static void read_keyboard(struct session *s)
{
    uint8_t bytes[READ_SIZE];
    ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        end_input(s);
        return;
    }
    s->last_typed = bytes[got - 1];
    if (s->screen->terminal)
        take_typed(s, slice_of(bytes, (size_t)got));
    else
        send_frame(s, WS_BINARY, slice_of(bytes, (size_t)got));
}

static void write_screen(struct session *s)
{
    struct slice held = slice_sub(buffer_slice(&s->to_screen), 0, SCREEN_AT_ONCE);
    ssize_t put = held.len ? write(s->screen->output, held.at, held.len) : 0;

    if (put < 0 && errno != EAGAIN && errno != EINTR) {
        buffer_free(&s->to_screen);
        send_close(s, 1000);
        end_with(s, "standard output is closed");
        return;
    }
    buffer_consume(&s->to_screen, put > 0 ? (size_t)put : 0);
}

/* ---- signals ---- */

static void blocked_signals(sigset_t *set)
{
    static const int numbers[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGCONT, SIGWINCH};

    sigemptyset(set);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        sigaddset(set, numbers[i]);
}

static void take_signal(struct session *s, int number)
{
    switch (number) {
    case SIGWINCH:
        send_size(s);
        break;
    case SIGTSTP: /* the shell gets its terminal as it was */
        attach_screen_restore(s->screen);
        raise(SIGSTOP);
        break;
    case SIGCONT:
        attach_screen_raw(s->screen);
        send_size(s);
        break;
    default:
        s->end->signal = number;
        buffer_free(&s->to_screen);
        send_close(s, 1000);
        end_with(s, NULL);
        break;
    }
}

static void read_signals(struct session *s, int fd)
{
    struct signalfd_siginfo info;
    while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        take_signal(s, (int)info.ssi_signo);
}

/* ---- the loop ---- */

static bool is_over(const struct session *s)
{
    bool late = now_ms() >= s->deadline;

    if (s->phase == LEAVING)
        return late;
    return s->phase == ENDED && buffer_len(&s->to_screen) == 0 &&
           (s->wire_broken || late || buffer_len(&s->to_wire) == 0);
}

/* Sends a Ping after a silence, once all received bytes are read. Time in which this process did not read, or was stopped, does not count
 * as silence. */
static void keep_alive(struct session *s, int64_t now)
{
    if (s->phase != RUNNING)
        return;
    if (!reads_wire(s) || now - s->asked >= DEAD_MS)
        s->heard = s->asked = now;
    if (now - s->heard >= DEAD_MS)
        end_with(s, "the other side does not answer");
    if (now - s->asked >= QUIET_MS) {
        send_frame(s, WS_PING, slice_text(""));
        s->asked = now;
    }
}

/* Returns the longest time to sleep, in ms; -1 if there is no deadline. */
static int sleep_ms(const struct session *s, int64_t now)
{
    if (s->phase != RUNNING)
        return s->deadline > now ? (int)(s->deadline - now) : -1;
    return s->keyboard_open ? QUIET_MS : PROD_MS;
}

static void turn(struct session *s, int signals)
{
    enum { KEYBOARD, WIRE, SCREEN, SIGNALS, COUNT };
    int64_t now = now_ms();
    prod(s, now);
    short wire = attach_wire_events(s->wire, reads_wire(s), buffer_len(&s->to_wire) > 0);
    struct pollfd fds[COUNT] = {
        [KEYBOARD] = {.fd = reads_keyboard(s) ? STDIN_FILENO : -1, .events = POLLIN},
        [WIRE] = {.fd = wire && !s->wire_broken ? attach_wire_fd(s->wire) : -1, .events = wire},
        [SCREEN] = {.fd = buffer_len(&s->to_screen) ? s->screen->output : -1, .events = POLLOUT},
        [SIGNALS] = {.fd = signals, .events = POLLIN},
    };

    if (poll(fds, COUNT, sleep_ms(s, now)) < 0)
        return;
    if (fds[SIGNALS].revents)
        read_signals(s, signals);
    if (fds[SCREEN].revents)
        write_screen(s);
    if (fds[WIRE].revents)
        read_wire(s);
    if (fds[KEYBOARD].revents && reads_keyboard(s))
        read_keyboard(s);
    keep_alive(s, now_ms());
    if (!s->wire_broken)
        write_wire(s);
}

void attach_session(struct attach_wire *wire, struct attach_screen *screen, struct buffer *input,
                    struct attach_end *end)
{
    struct session s = {
        .wire = wire,
        .screen = screen,
        .end = end,
        .decoder = ws_decoder_with(WS_SERVER, s.control),
        .to_wire = buffer_with_limit(4 * WIRE_HELD),
        .to_screen = buffer_with_limit(2 * SCREEN_HELD),
        .keyboard_open = true,
    };
    sigset_t set, before;

    *end = (struct attach_end){0};
    blocked_signals(&set);
    sigprocmask(SIG_BLOCK, &set, &before);
    int signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    attach_screen_raw(screen);
    s.heard = s.asked = now_ms();
    send_size(&s);
    take_bytes(&s, buffer_slice(input));
    buffer_free(input);
    if (signals < 0)
        end_with(&s, "cannot watch for signals");
    write_wire(&s);
    read_wire(&s);
    while (!is_over(&s))
        turn(&s, signals);

    attach_screen_restore(screen);
    if (signals >= 0)
        close(signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    buffer_free(&s.to_wire);
    buffer_free(&s.to_screen);
}
