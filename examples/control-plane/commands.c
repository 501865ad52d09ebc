/* SPDX-License-Identifier: MIT */
#include "examples/control-plane/commands.h"

#include <stdio.h>

#include "spoa/base/json/json_write.h"

#define ANSWER_MAX ((size_t)32 << 20)
#define PATIENCE   (10 * SECOND)

enum { DONE = 0, REFUSED = 1, WRONG = 2 };

/* ---- in the control plane ---- */

static bool read_id(const json_node *request, struct slice *id, struct fail *why)
{
    return json_text(json_member(request, "sandbox"), id) || fail(why, "which sandbox?");
}

/* Appends {"sandbox":ID,"record":{...}}, an element of the answer's list `sandboxes`. */
static bool write_one(const struct sandbox *s, struct buffer *to)
{
    return buffer_put(to, SLICE_LITERAL("{\"sandbox\":")) && json_write_text(to, slice_text(s->id)) &&
           buffer_put(to, SLICE_LITERAL(",\"record\":")) && sandbox_write(s, NULL, to) &&
           buffer_put(to, SLICE_LITERAL("}"));
}

/* Appends the changed sandbox to the answer, or nothing if memory is short: the change has been made all the same. */
static void write_answer(const struct plane *plane, struct slice id, struct buffer *to)
{
    const struct sandbox *s = plane_find(plane, id);
    bool good = buffer_put(to, SLICE_LITERAL(",\"sandboxes\":[")) && (!s || write_one(s, to)) &&
                buffer_put(to, SLICE_LITERAL("]"));
    if (!good)
        buffer_free(to);
}

static bool run_list(void *context, const struct json *doc, const json_node *request, struct buffer *to,
                     struct fail *why)
{
    const struct plane *plane = ((struct serve *)context)->plane;
    bool good = buffer_put(to, SLICE_LITERAL(",\"sandboxes\":["));
    (void)doc, (void)request;
    for (size_t i = 0; i < plane_count(plane) && good; i++)
        good = (i == 0 || buffer_put(to, SLICE_LITERAL(","))) && write_one(plane_at(plane, i), to);
    return (good && buffer_put(to, SLICE_LITERAL("]"))) || fail(why, "they are too many for one answer");
}

static bool run_set(void *context, const struct json *doc, const json_node *request, struct buffer *to,
                    struct fail *why)
{
    struct plane *plane = ((struct serve *)context)->plane;
    struct slice id, record;
    (void)doc;
    bool done = read_id(request, &id, why) &&
                (json_text(json_member(request, "record"), &record) || fail(why, "which record?")) &&
                plane_set(plane, id, record, why);
    if (done)
        write_answer(plane, id, to);
    return done;
}

static bool run_move(void *context, const struct json *doc, const json_node *request, struct buffer *to,
                     struct fail *why)
{
    struct plane *plane = ((struct serve *)context)->plane;
    struct slice id, worker = {NULL, 0};
    (void)doc;
    json_text(json_member(request, "worker"), &worker);
    bool done = read_id(request, &id, why) && plane_move(plane, id, worker, why);
    if (done)
        write_answer(plane, id, to);
    return done;
}

static bool run_verb(bool (*verb)(struct plane *plane, struct slice id, struct fail *why), void *context,
                     const json_node *request, struct buffer *to, struct fail *why)
{
    struct plane *plane = ((struct serve *)context)->plane;
    struct slice id;
    bool done = read_id(request, &id, why) && verb(plane, id, why);
    if (done)
        write_answer(plane, id, to);
    return done;
}

#define VERB(name)                                                                          \
    static bool run_##name(void *context, const struct json *doc, const json_node *request, \
                           struct buffer *to, struct fail *why)                             \
    {                                                                                       \
        (void)doc;                                                                          \
        return run_verb(plane_##name, context, request, to, why);                           \
    }
VERB(suspend)
VERB(wake)
VERB(stop)
VERB(remove)
#undef VERB

static bool run_revoke(void *context, const struct json *doc, const json_node *request, struct buffer *to,
                       struct fail *why)
{
    int64_t seconds;
    (void)to;
    if (!json_int(doc, json_member(request, "not_before"), 0, PLANE_TIME_MAX, &seconds))
        return fail(why, "revoke what was issued before when? (Unix seconds)");
    return serve_revoke(context, seconds, why);
}

static bool run_revoke_token(void *context, const struct json *doc, const json_node *request,
                             struct buffer *to, struct fail *why)
{
    struct slice jti;
    int64_t until;
    (void)to;
    if (!json_text(json_member(request, "jti"), &jti) ||
        !json_int(doc, json_member(request, "until"), 0, PLANE_TIME_MAX, &until))
        return fail(why, "revoke which token, which expires when? (its jti, Unix seconds)");
    return serve_revoke_token(context, jti, until, why);
}

size_t commands_fill(struct serve *serve, struct control_command commands[static COMMANDS_MAX])
{
    const struct control_command all[COMMANDS_MAX] = {
        {"list", run_list, serve},
        {"set", run_set, serve},
        {"move", run_move, serve},
        {"suspend", run_suspend, serve},
        {"wake", run_wake, serve},
        {"stop", run_stop, serve},
        {"remove", run_remove, serve},
        {"revoke", run_revoke, serve},
        {"revoke-token", run_revoke_token, serve},
    };
    memcpy(commands, all, sizeof all);
    return COMMANDS_MAX;
}

/* ---- at the operator ---- */

/* The arguments of each command. A '?' marks an optional argument, a '#' a number. */
static const struct {
    const char *name, *words[2];
} forms[] = {
    {"list", {NULL}},
    {"move", {"sandbox", "?worker"}},
    {"suspend", {"sandbox"}},
    {"wake", {"sandbox"}},
    {"stop", {"sandbox"}},
    {"set", {"sandbox", "record"}},
    {"remove", {"sandbox"}},
    {"revoke", {"#not_before"}},
    {"revoke-token", {"jti", "#until"}},
};

static bool put_word(struct buffer *to, const char *name, const char *word)
{
    uint64_t number;
    bool digits = *name == '#';
    name += *name == '?' || digits;
    if (digits && !slice_u64(slice_text(word), INT64_MAX, &number))
        return false;
    return json_write(to, ",\"%s\":", name) &&
           (digits ? buffer_put(to, slice_text(word)) : json_write_text(to, slice_text(word)));
}

static bool put_request(struct buffer *to, int argc, char **argv)
{
    size_t f = 0;
    while (f < sizeof forms / sizeof *forms && strcmp(forms[f].name, argv[0]) != 0)
        f++;
    if (f == sizeof forms / sizeof *forms || !json_write(to, "{\"command\":\"%s\"", argv[0]))
        return false;
    int i = 1;
    for (size_t w = 0; w < 2 && forms[f].words[w]; w++) {
        const char *name = forms[f].words[w];
        if (i >= argc ? *name != '?' : !put_word(to, name, argv[i++]))
            return false;
    }
    return i >= argc && buffer_put(to, SLICE_LITERAL("}"));
}

static void print_answer(const json_node *root)
{
    const json_node *all = json_member(root, "sandboxes");
    for (const json_node *n = json_first(all); n; n = json_next(n)) {
        const json_node *record = json_member(n, "record");
        struct slice id = {NULL, 0}, state = {NULL, 0}, worker = SLICE_LITERAL("-");
        double epoch = 0;
        json_text(json_member(n, "sandbox"), &id);
        json_text(json_member(record, "state"), &state);
        json_text(json_member(record, "worker"), &worker);
        json_real(json_member(record, "epoch"), &epoch);
        printf("%-20.*s %-10.*s %-32.*s epoch %.0f\n", SLICE_PRINTF(id), SLICE_PRINTF(state),
               SLICE_PRINTF(worker), epoch);
    }
}

static int show(struct slice answer)
{
    struct fail why;
    struct slice error;
    struct json *doc = json_parse(answer, "answer", 0, (struct json_limits){ANSWER_MAX, 16}, &why);
    int code = REFUSED;
    if (!doc)
        fprintf(stderr, "cell-plane: %s\n", why.text);
    else if (json_text(json_member(json_root(doc), "error"), &error))
        fprintf(stderr, "cell-plane: %.*s\n", SLICE_PRINTF(error));
    else {
        print_answer(json_root(doc));
        code = DONE;
    }
    json_free(doc);
    return code;
}

int commands_ask(const char *control, int argc, char **argv)
{
    struct net_address address;
    struct fail why;
    char path[NET_TEXT];
    struct buffer request = buffer_with_limit(CONTROL_REQUEST_MAX), answer = buffer_with_limit(ANSWER_MAX);
    int code = WRONG;
    snprintf(path, sizeof path, "unix@%s", control);
    if (!put_request(&request, argc, argv)) {
        fprintf(stderr, "cell-plane: %s and what follows is not understood (see --help)\n", argv[0]);
    } else if (!net_parse(slice_text(path), &address, &why) ||
               !control_ask(&address, buffer_slice(&request), PATIENCE, &answer, &why)) {
        fprintf(stderr, "cell-plane: %s\n", why.text);
        code = REFUSED;
    } else {
        code = show(buffer_slice(&answer));
    }
    buffer_free(&request);
    buffer_free(&answer);
    return code;
}
