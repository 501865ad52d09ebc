/* SPDX-License-Identifier: MIT */
#include "spoa/service/monitor.h"

#include <stdlib.h>

#include "spoa/base/os/file.h"

/* Pages that the monitor takes from the admin listener, and their number with /livez. */
static const char *const shared[] = {"/metrics", "/readyz"};
enum { SHARED = sizeof shared / sizeof *shared, PAGES = SHARED + 1 };

struct monitor {
    struct admin *admin;
    struct admin_page pages[PAGES];
    char *token_file;
};

/* Serves /livez: an answer shows that the loop runs. */
static bool page_live(void *context, struct slice query, struct admin_answer *answer)
{
    (void)context, (void)query;
    return buffer_put(&answer->body, SLICE_LITERAL("ok\n"));
}

/* Checks the token's file at the start, because a missing token would only show when nobody is admitted. */
static bool check_token(const char *path, struct fail *why)
{
    struct slice content;
    if (!path)
        return true;
    if (!file_read_secret(path, ADMIN_TOKEN_MAX, FILE_READABLE, &content, why))
        return false;
    bool empty = admin_token(content).len == 0;
    file_free(content);
    return !empty || fail(why, "%s: the first line is empty", path);
}

/* Starts the monitor; the caller frees it if that fails. */
static bool start(struct monitor *m, struct loop *loop, const struct monitor_options *options,
                  struct fail *why)
{
    if (!check_token(options->token_file, why))
        return false;
    /* copied, because a reload frees the configuration */
    m->token_file = options->token_file ? strdup(options->token_file) : NULL;
    if (options->token_file && !m->token_file)
        return fail(why, "out of memory");
    const struct admin_rules rules = {.anyone = true, .guarded = "/metrics", .token_file = m->token_file};
    m->pages[SHARED] = (struct admin_page){"/livez", page_live, NULL};
    for (size_t i = 0; i < SHARED; i++)
        for (size_t j = 0; j < options->count; j++)
            if (strcmp(options->pages[j].path, shared[i]) == 0)
                m->pages[i] = options->pages[j];
    int listener = net_listen(options->address, 0660, why);
    if (listener < 0)
        return false;
    m->admin = admin_new(loop, listener, m->pages, PAGES, &rules);
    return m->admin || fail(why, "out of memory");
}

bool monitor_open(struct monitor **monitor, struct loop *loop, const struct monitor_options *options,
                  struct fail *why)
{
    *monitor = NULL;
    if (options->address->len == 0)
        return true;
    struct monitor *m = calloc(1, sizeof *m);
    if (!m)
        return fail(why, "out of memory");
    if (!start(m, loop, options, why)) {
        monitor_close(m);
        return false;
    }
    *monitor = m;
    return true;
}

void monitor_close(struct monitor *monitor)
{
    if (!monitor)
        return;
    admin_free(monitor->admin);
    free(monitor->token_file);
    free(monitor);
}
