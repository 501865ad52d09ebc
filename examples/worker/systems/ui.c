/* SPDX-License-Identifier: MIT */
/* /ui/NAME: files of one folder, by plain names only: nothing of them is interpreted as a path. /ui/ is its
 * index. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "examples/worker/bridge/worker_options.h"
#include "examples/worker/http/web_server.h"
#include "examples/worker/systems/serve.h"

#define NAME_LENGTH 100

struct file {
    struct http_exchange x;
    char name[NAME_LENGTH + 1];
    int fd;
};

static bool is_plain(struct slice name)
{
    for (size_t i = 0; i < name.len; i++)
        if (!strchr("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.", name.at[i]))
            return false;
    return name.len > 0 && name.len <= NAME_LENGTH && name.at[0] != '.';
}

static const char *type_of(const char *name)
{
    static const struct {
        const char *suffix, *type;
    } types[] = {{".html", "text/html; charset=utf-8"},
                 {".js", "text/javascript; charset=utf-8"},
                 {".css", "text/css; charset=utf-8"},
                 {".map", "application/json"},
                 {".json", "application/json"},
                 {".png", "image/png"},
                 {".svg", "image/svg+xml"}};
    const char *suffix = strrchr(name, '.');
    for (size_t i = 0; suffix && i < sizeof types / sizeof *types; i++)
        if (strcmp(suffix, types[i].suffix) == 0)
            return types[i].type;
    return "application/octet-stream";
}

static int open_file(const char *folder, const char *name, uint64_t *size)
{
    struct stat status;
    int dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (dir >= 0)
        close(dir);
    if (fd >= 0 && (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))) {
        close(fd);
        fd = -1;
    }
    *size = fd < 0 ? 0 : (uint64_t)status.st_size;
    return fd;
}

/* xterm.js puts its colours into style elements of its own. */
static const char page_fields[] =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Frame-Options: DENY\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Cache-Control: no-cache\r\n";

static void send_more(struct http_exchange *x)
{
    struct file *f = (struct file *)x;
    uint8_t piece[16384];
    ssize_t got = 1;
    while (got > 0 && !http_is_full(x)) {
        got = read(f->fd, piece, sizeof piece);
        if (got > 0)
            http_piece(x, slice_of(piece, (size_t)got));
    }
    if (got <= 0)
        http_end(x);
}

static void on_end(struct http_exchange *x)
{
    struct file *f = (struct file *)x;
    const char *folder = worker_options(x->conn)->ui;
    uint64_t size;
    f->fd = folder && f->name[0] ? open_file(folder, f->name, &size) : -1;
    if (f->fd < 0)
        return http_refuse(x, 404, "not found");
    http_begin(x, 200, type_of(f->name), page_fields, size);
    send_more(x);
}

static void on_close(struct http_exchange *x)
{
    struct file *f = (struct file *)x;
    if (f->fd >= 0)
        close(f->fd);
}

struct http_exchange *serve_ui(struct http_conn *h, const struct slice *parts)
{
    struct file *f = http_exchange_new(sizeof *f, h);
    struct slice name = slice_present(parts[0]) ? parts[0] : SLICE_LITERAL("index.html");
    if (!f)
        return NULL;
    f->fd = -1;
    if (is_plain(name))
        snprintf(f->name, sizeof f->name, "%.*s", SLICE_PRINTF(name));
    f->x.end = on_end;
    f->x.room = send_more;
    f->x.close = on_close;
    return &f->x;
}
