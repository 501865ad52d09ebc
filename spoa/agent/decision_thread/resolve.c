/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision_thread/resolve.h"

#include "spoa/agent/decision/egress.h"
#include "spoa/agent/decision/judge.h"
#include "spoa/agent/model/record_json.h"
#include "spoa/agent/model/record_pack.h"
#include "spoa/agent/token/ticket.h"
#include "spoa/agent/token/tokens.h"
#include "spoa/proto/http.h"

/* ---- the question ---- */

static bool read_TEXT(struct spop_value value, struct slice *text)
{
    *text = value.bytes;
    return value.kind == SPOP_TEXT || value.kind == SPOP_BINARY;
}

static bool read_INT(struct spop_value value, int64_t *number)
{
    *number = value.number;
    return value.kind >= SPOP_INT32 && value.kind <= SPOP_UINT64;
}

static bool read_ADDRESS(struct spop_value value, struct address *addr)
{
    *addr = (struct address){.family = value.kind == SPOP_IPV4 ? 4 : 6};
    if (value.kind != SPOP_IPV4 && value.kind != SPOP_IPV6)
        return false;
    memcpy(addr->bytes, value.bytes.at, value.bytes.len);
    return true;
}

bool resolve_from_args(struct spop_args args, struct resolve_question *question)
{
    struct slice name;
    struct spop_value value;
#define ABSENT_TEXT(field)
#define ABSENT_ADDRESS(field)
#define ABSENT_INT(field)    question->field = -1;
#define X(kind, field, text) ABSENT_##kind(field)
    *question = (struct resolve_question){.route = {NULL, 0}};
    RESOLVE_ARGUMENTS(X)
#undef X
    while (spop_arg_next(&args, &name, &value)) {
        if (value.kind == SPOP_NULL)
            continue;
#define X(kind, field, text)                                           \
    if (slice_is(name, text) && !read_##kind(value, &question->field)) \
        return false;
        RESOLVE_ARGUMENTS(X)
#undef X
    }
    return slice_present(question->route) && slice_present(question->sandbox) && question->port <= 65535;
}

static bool is_set_TEXT(const struct slice *text)
{
    return slice_present(*text);
}

static bool is_set_INT(const int64_t *number)
{
    return *number >= 0;
}

static bool is_set_ADDRESS(const struct address *addr)
{
    return addr->family != 0;
}

static struct spop_value value_TEXT(const struct slice *text)
{
    return spop_text(*text);
}

static struct spop_value value_INT(const int64_t *number)
{
    return spop_int(*number);
}

static struct spop_value value_ADDRESS(const struct address *addr)
{
    return spop_address(slice_of(addr->bytes, addr->family == 4 ? 4 : 16));
}

bool resolve_pack(const struct resolve_question *q, struct writer *w, struct spop_args *args)
{
    size_t start = w->len, message = spop_message_begin(w, SLICE_LITERAL("kept"));
#define X(kind, field, name)      \
    if (is_set_##kind(&q->field)) \
        spop_arg_write(w, message, SLICE_LITERAL(name), value_##kind(&q->field));
    RESOLVE_ARGUMENTS(X)
#undef X
    struct reader packed = reader_of(slice_of(w->at + start, w->full ? 0 : w->len - start));
    struct spop_message kept;
    if (w->full || !spop_message_next(&packed, &kept))
        return false;
    *args = kept.args;
    return true;
}

static struct handover identity_of(const struct resolve_question *question)
{
    struct handover h = handover_none();
#define X(kind, field, key) h.field = question->field;
    HANDOVER_IDENTITY(X)
#undef X
    return h;
}

bool resolve_is_admitted(const struct key *ticket_key, struct resolve_question *question)
{
    struct handover h = identity_of(question);
    h.ticket = question->ticket;
    enum ticket_age age = ticket_check(ticket_key, &h);
    question->old = age == TICKET_OLD ? 1 : -1;
    return age != TICKET_BAD;
}

/* ---- the caller ---- */

static bool is_by_token(const struct resolve_question *q)
{
    return slice_present(q->kid) || slice_present(q->key) || q->needs >= 0 || q->iat >= 0 || q->exp >= 0;
}

/* Returns the needs that the tunnel's token grants. An older handover does not have them: the tunnel then has the needs of its route
 * only. */
static unsigned granted(const struct resolve_question *q, const struct route *route)
{
    if (q->needs >= 0)
        return (unsigned)q->needs & NEED_ALL;
    return !is_by_token(q) ? NEED_ALL : route ? route->need : 0;
}

/* Returns the tunnel's route, or NULL if it was removed. A connection to the outside never has one, even if a route is named `egress`. */
static const struct route *route_of(const struct decide_view *view, const struct resolve_question *q)
{
    return slice_present(q->egress) ? NULL : routes_find(view->routes, q->route);
}

/* Assumes the minimum for an older ticket, which has neither its token's ports nor the content of Authorization: no port, and any
 * content. A port that the client named was compared with the token's when the tunnel was opened, so it stays allowed. */
static void assume_least(const struct resolve_question *q, struct admission *a)
{
    uint16_t named = a->port;
    if (q->old <= 0)
        return;
    if (!named)
        a->ports = SLICE_LITERAL("");
    a->bearer = SLICE_LITERAL("");
}

static struct admission admission_of(const struct decide_view *view, const struct resolve_question *q)
{
    const struct route *route = route_of(view, q);
    struct admission a = {.route = route,
                          .by_token = is_by_token(q),
                          .named = true,
                          .org_of_record = q->org_of_record > 0,
                          .needs = granted(q, route),
                          .host_only = q->host_only > 0 ? (unsigned)q->host_only : 0,
                          .port = q->port > 0 ? (uint16_t)q->port : 0,
                          .iat = q->iat,
                          .org = q->org,
                          .ports = q->ports,
                          .kid = slice_present(q->key) ? slice_text(NULL) : q->kid,
                          .bearer = q->bearer};
    assume_least(q, &a);
    return a;
}

/* Returns whether a tunnel that was opened without a token needs one now. */
static bool needs_token(const struct decide_view *view, const struct resolve_question *q)
{
    const struct route *route = route_of(view, q);
    return view->tokens && !view->open && route && route->need != 0;
}

/* Returns whether an entry still admits the tunnel's token. */
static bool stands(const struct decide_view *view, const struct resolve_question *q)
{
    const struct route *route = route_of(view, q);
    struct token_tunnel tunnel = {.key = q->key, .kid = q->kid, .needs = granted(q, route)};
    if (route)
        tunnel.place = (struct credential_place){
            .route = route->name, .system = route->system, .by_host = route->by_host, .any_host = true};
    return token_stands(view->tokens, &tunnel);
}

/* Checks the credential by the policy, independently of the record. */
static enum refusal judge_credential(const struct decide_view *view, const struct resolve_question *q)
{
    bool known = slice_present(q->kid) || slice_present(q->key);
    if ((!is_by_token(q) && needs_token(view, q)) || decide_revoked(view, q->jti) ||
        (known && view->tokens && !stands(view, q)))
        return REFUSAL_token_revoked;
    return q->exp >= 0 && view->now >= q->exp ? REFUSAL_token_expired : REFUSAL_NONE;
}

/* ---- the answer ---- */

static bool headers_have(struct slice headers, struct slice wanted)
{
    struct slice name, value;
    size_t cursor = 0;
    while (record_header(headers, &cursor, &name, &value))
        if (http_same_name(name, wanted))
            return true;
    return false;
}

/* Returns the route's headers followed by the destination's, which take precedence. */
static struct slice all_headers(const struct route *route, struct slice headers, struct writer *scratch)
{
    if (!route || route->set_count == 0)
        return headers;
    size_t start = scratch->len;
    for (size_t i = 0; i < route->set_count; i++)
        if (!headers_have(headers, route->set[i].name))
            record_pack_header(scratch, route->set[i].name, route->set[i].value);
    writer_put(scratch, headers);
    return slice_of(scratch->at + start, scratch->len - start);
}

static void lead(const struct route *route, const struct destination *to, struct writer *scratch,
                 struct resolve_answer *a)
{
    a->reachable = true;
    a->worker = to->worker;
    a->port = to->port;
    a->headers = all_headers(route, to->headers, scratch);
    if (route->keep_host)
        return;
    size_t start = scratch->len;
    destination_host(to, scratch);
    a->host = slice_of(scratch->at + start, scratch->len - start);
}

/* Makes the ticket that decide() would have made with this record, with the record's organisation and the checked place. A ticket that
 * has both stays. If memory is short, the tunnel keeps waiting. */
static void settle(const struct decide_view *view, const struct resolve_question *q,
                   const struct record *record, const struct judgement *j, struct writer *scratch,
                   struct resolve_answer *a)
{
    struct handover h = identity_of(q);
    bool whole = !record->bare && slice_present(record->org);
    if (q->settles <= 0 || q->old > 0)
        return;
    if (!slice_present(h.org) && whole) {
        h.org = a->org = record->org;
        h.org_of_record = 1;
    }
    if (h.pending > 0 && j->leads) {
        a->settled = true;
        a->own = j->follows;
        h.port = a->own ? -1 : h.port;
        h.pending = -1;
    }
    if (!a->settled && !slice_present(a->org))
        return;
    a->ticket = ticket_write(view->ticket_key, &h, scratch);
    if (!slice_present(a->ticket))
        *a = (struct resolve_answer){.state = RESOLVE_UNAVAILABLE};
}

static void judge_tunnel(const struct decide_view *view, const struct resolve_question *q,
                         const struct record *record, const struct judgement *j, struct writer *scratch,
                         struct resolve_answer *a)
{
    if (record->state == RECORD_SUSPENDED && a->refused == REFUSAL_NONE && view->wake &&
        view->wake(view->directory, q->space, q->sandbox))
        a->state = RECORD_WAKING;
    if (a->refused == REFUSAL_NONE && (j->place == REFUSAL_not_granted || j->place == REFUSAL_no_route))
        a->refused = REFUSAL_not_granted;
    if (a->refused != REFUSAL_NONE)
        return;
    a->withhold = j->withhold;
    if (j->leads)
        lead(route_of(view, q), &j->to, scratch, a);
    settle(view, q, record, j, scratch, a);
}

void resolve(const struct decide_view *view, const struct resolve_question *q, struct writer *scratch,
             struct resolve_answer *a)
{
    struct record record;
    struct judgement j;
    enum lookup lookup = view->find(view->directory, q->space, q->sandbox, &record);
    *a = (struct resolve_answer){.state = lookup == LOOKUP_ABSENT ? RESOLVE_ABSENT : RESOLVE_UNAVAILABLE};
    if (lookup != LOOKUP_FOUND)
        return;
    const struct admission admission = admission_of(view, q);
    bool egress = slice_present(q->egress);
    (egress ? judge_caller : judge)(view, &admission, &record, &j);
    if (j.caller == REFUSAL_sandbox_not_found) {
        a->state = RESOLVE_ABSENT;
        return;
    }
    a->state = (int)record.state;
    /* after a bare state the owner must still be compared */
    bool open = slice_present(q->org) || q->pending > 0;
    a->epoch = record.bare && open && q->epoch < 0 ? -1 : record_epoch(&record);
    a->refused = j.caller != REFUSAL_NONE ? j.caller : judge_credential(view, q);
    if (!egress)
        judge_tunnel(view, q, &record, &j, scratch, a);
    else if (a->refused == REFUSAL_NONE && !record.bare)
        a->refused = egress_stands(view, &record, q->egress, &q->addr, q->inspect);
}

/* Returns whether the worker's name has another address now. Record and epoch do not change in this case. */
static bool is_elsewhere(const struct resolve_question *question, const struct resolve_answer *answer)
{
    const struct address *addr = &answer->worker.addr;
    return question->addr.family && answer->reachable && answer->worker.kind != WORKER_UNIX &&
           memcmp(addr, &question->addr, sizeof *addr) != 0;
}

bool resolve_has_changed(const struct resolve_question *question, const struct resolve_answer *answer)
{
    if (answer->state == RESOLVE_UNAVAILABLE)
        return false;
    bool stopped = answer->state == RECORD_STOPPED && answer->epoch < 0; /* not visible in an epoch */
    if (slice_present(question->egress))
        return answer->refused != REFUSAL_NONE || answer->state == RESOLVE_ABSENT ||
               answer->state == RECORD_STOPPED;
    return answer->refused != REFUSAL_NONE || answer->state == RESOLVE_ABSENT || stopped ||
           slice_present(answer->ticket) || answer->epoch != question->epoch ||
           is_elsewhere(question, answer);
}

/* ---- encoding ---- */

_Static_assert(RECORD_HEADERS_MOST + ROUTE_SET_MOST + ANSWER_REST_MOST <= SPOP_FRAME_USUAL,
               "an answer fits into a frame");

static void set(struct spop_actions *actions, const char *name, struct spop_value value)
{
    spop_set_var(actions, SPOP_TRANSACTION, slice_text(name), value);
}

static void set_text(struct spop_actions *actions, const char *name, struct slice text)
{
    if (slice_present(text))
        set(actions, name, spop_text(text));
}

static void write_worker(const struct resolve_answer *a, struct spop_actions *actions)
{
    const struct worker *worker = &a->worker;
    set_text(actions, "host", a->host);
    if (worker->kind == WORKER_UNIX) {
        set_text(actions, "unix", worker->host);
        return;
    }
    set(actions, "addr", spop_address(slice_of(worker->addr.bytes, worker->addr.family == 4 ? 4 : 16)));
    set(actions, "addr_port", spop_int(a->port));
    set(actions, "tls", spop_bool(worker->kind == WORKER_HTTPS));
    if (worker->kind == WORKER_HTTPS)
        set_text(actions, "sni", worker->host);
}

void resolve_write(const struct resolve_answer *a, struct spop_actions *actions)
{
    if (a->reachable)
        write_worker(a, actions);
    if (a->headers.len)
        set(actions, "headers", spop_binary(a->headers));
    if (a->withhold)
        set(actions, "withhold", spop_bool(true));
    set_text(actions, "ticket", a->ticket);
    set_text(actions, "org", a->org);
    if (a->settled)
        set(actions, "settled", spop_bool(true));
    if (a->own)
        set(actions, "own", spop_bool(true));
    if (a->unwatched)
        set(actions, "unwatched", spop_bool(true));
    if (a->refused != REFUSAL_NONE)
        set_text(actions, "refused", slice_text(refusal_info(a->refused)->code));
    if (a->epoch >= 0)
        set(actions, "epoch", spop_int(a->epoch));
    const char *state = a->state == RESOLVE_ABSENT         ? "absent"
                        : a->state == RESOLVE_UNAVAILABLE  ? "unavailable"
                        : a->state == RESOLVE_NOT_ADMITTED ? "not_admitted"
                                                           : record_state_text((enum record_state)a->state);
    set_text(actions, "state", slice_text(state));
}
