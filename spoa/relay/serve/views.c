/* SPDX-License-Identifier: MIT */
#include "spoa/relay/serve/views.h"

#include "spoa/relay/serve/live_page.h"

/* ---- pages ---- */
static struct relay *relay_of(void *context)
{
    return *(struct relay **)context;
}

static bool not_there(struct admin_answer *answer)
{
    answer->status = 503;
    return buffer_put(&answer->body, SLICE_LITERAL("starting\n"));
}

static bool page_metrics(void *context, struct slice query, struct admin_answer *answer)
{
    struct relay *relay = relay_of(context);
    (void)query;
    answer->type = ADMIN_PROMETHEUS;
    return relay ? relay_write_metrics(relay, &answer->body) : not_there(answer);
}

static bool page_health(void *context, struct slice query, struct admin_answer *answer)
{
    (void)context, (void)query;
    return buffer_put(&answer->body, SLICE_LITERAL("ok\n"));
}

static bool page_ready(void *context, struct slice query, struct admin_answer *answer)
{
    const char *why = "starting";
    struct relay *relay = relay_of(context);
    (void)query;
    answer->status = relay && relay_ready(relay, &why) ? 200 : 503;
    return buffer_put(&answer->body, slice_text(why)) && buffer_put(&answer->body, SLICE_LITERAL("\n"));
}

static bool page_tunnels(void *context, struct slice query, struct admin_answer *answer)
{
    struct relay *relay = relay_of(context);
    struct slice none = {NULL, 0};
    struct slice sandbox = slice_starts(query, "sandbox=") ? slice_from(query, 8) : none;
    if (!relay)
        return not_there(answer);
    answer->type = ADMIN_JSON;
    return buffer_put(&answer->body, SLICE_LITERAL("{")) &&
           relay_write_tunnels(relay, sandbox, &answer->body) &&
           buffer_put(&answer->body, SLICE_LITERAL("}\n"));
}

static bool page_top(void *context, struct slice query, struct admin_answer *answer)
{
    struct relay *relay = relay_of(context);
    struct top_question question;
    struct fail why;
    if (!relay)
        return not_there(answer);
    if (!top_question_query(&question, query, &why)) {
        answer->status = 400;
        return buffer_put(&answer->body, slice_text(why.text)) &&
               buffer_put(&answer->body, SLICE_LITERAL("\n"));
    }
    answer->type = ADMIN_JSON;
    return buffer_put(&answer->body, SLICE_LITERAL("{")) &&
           relay_write_top(relay, &question, &answer->body) &&
           buffer_put(&answer->body, SLICE_LITERAL("}\n"));
}

static bool page_stats(void *context, struct slice query, struct admin_answer *answer)
{
    struct relay *relay = relay_of(context);
    (void)query;
    answer->type = ADMIN_JSON;
    return relay ? relay_write_stats(relay, &answer->body) : not_there(answer);
}

static bool page_live(void *context, struct slice query, struct admin_answer *answer)
{
    (void)context, (void)query;
    answer->type = "text/html; charset=utf-8";
    answer->policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                     "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    return buffer_put(&answer->body, slice_text(live_page));
}

static bool page_live_style(void *context, struct slice query, struct admin_answer *answer)
{
    (void)context, (void)query;
    answer->type = "text/css; charset=utf-8";
    return buffer_put(&answer->body, slice_text(live_style));
}

static bool page_live_script(void *context, struct slice query, struct admin_answer *answer)
{
    (void)context, (void)query;
    answer->type = "text/javascript; charset=utf-8";
    return buffer_put(&answer->body, slice_text(live_script));
}

void views_pages(struct admin_page pages[static VIEWS_PAGES], struct relay **relay)
{
    const struct admin_page all[VIEWS_PAGES] = {
        {"/metrics", page_metrics, relay},
        {"/healthz", page_health, relay},
        {"/readyz", page_ready, relay},
        {"/tunnels", page_tunnels, relay},
        {"/stats", page_stats, relay},
        {"/top", page_top, relay},
        {"/", page_live, relay},
        {"/live.css", page_live_style, relay},
        {"/live.js", page_live_script, relay},
    };
    memcpy(pages, all, sizeof all);
}

/* ---- commands ---- */
static bool command_drain(void *context, const struct json *doc, const json_node *request,
                          struct buffer *members, struct fail *why)
{
    struct relay *relay = relay_of(context);
    (void)doc, (void)request, (void)members;
    if (!relay)
        return fail(why, "the relay is starting");
    relay_drain(relay);
    return true;
}

static bool command_kick(void *context, const struct json *doc, const json_node *request,
                         struct buffer *members, struct fail *why)
{
    struct relay *relay = relay_of(context);
    struct slice id;
    (void)doc, (void)members;
    if (!relay)
        return fail(why, "the relay is starting");
    if (!json_text(json_member(request, "id"), &id))
        return fail(why, "kick needs an id");
    return relay_kick(relay, id) || fail(why, "there is no such tunnel");
}

static bool command_list(void *context, const struct json *doc, const json_node *request,
                         struct buffer *members, struct fail *why)
{
    struct relay *relay = relay_of(context);
    struct slice sandbox = {NULL, 0};
    (void)doc;
    if (!relay)
        return fail(why, "the relay is starting");
    (void)json_text(json_member(request, "sandbox"), &sandbox);
    if (!buffer_put(members, SLICE_LITERAL(",")) || !relay_write_tunnels(relay, sandbox, members))
        return fail(why, "the answer is too large");
    return true;
}

static bool command_top(void *context, const struct json *doc, const json_node *request,
                        struct buffer *members, struct fail *why)
{
    struct relay *relay = relay_of(context);
    struct top_question question;
    struct slice sort = {NULL, 0}, rows = sort, filter = sort;
    (void)doc;
    if (!relay)
        return fail(why, "the relay is starting");
    (void)json_text(json_member(request, "sort"), &sort);
    (void)json_text(json_member(request, "rows"), &rows);
    (void)json_text(json_member(request, "filter"), &filter);
    if (!top_question(&question, sort, rows, filter, why))
        return false;
    return (buffer_put(members, SLICE_LITERAL(",")) && relay_write_top(relay, &question, members)) ||
           fail(why, "the answer is too large");
}

static bool command_status(void *context, const struct json *doc, const json_node *request,
                           struct buffer *members, struct fail *why)
{
    struct relay *relay = relay_of(context);
    (void)doc, (void)request;
    if (!relay)
        return fail(why, "the relay is starting");
    return (buffer_put(members, SLICE_LITERAL(",\"status\":")) && relay_write_stats(relay, members)) ||
           fail(why, "the answer is too large");
}

/* Asks the keeper, which does it or says later why not. */
static bool command_upgrade(void *context, const struct json *doc, const json_node *request,
                            struct buffer *members, struct fail *why)
{
    struct relay *relay = relay_of(context);
    bool same = false;
    (void)doc, (void)members;
    if (!relay)
        return fail(why, "the relay is starting");
    (void)json_bool(json_member(request, "same"), &same);
    return relay_upgrade(relay, same) || fail(why, "the relay has no keeper (--no-keeper): restart it");
}

static bool command_keeper(void *context, const struct json *doc, const json_node *request,
                           struct buffer *members, struct fail *why)
{
    struct relay *relay = relay_of(context);
    (void)doc, (void)request;
    if (!relay)
        return fail(why, "the relay is starting");
    return relay_write_keeper(relay, members) || fail(why, "the answer is too large");
}

void views_commands(struct control_command commands[static VIEWS_COMMANDS], struct relay **relay)
{
    const struct control_command all[VIEWS_COMMANDS] = {
        {"drain", command_drain, relay},     {"keeper", command_keeper, relay},
        {"upgrade", command_upgrade, relay}, {"kick", command_kick, relay},
        {"list", command_list, relay},       {"status", command_status, relay},
        {"top", command_top, relay}};
    memcpy(commands, all, sizeof all);
}
