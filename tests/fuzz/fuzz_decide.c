/* SPDX-License-Identifier: MIT */
/*
 * Input: one byte of settings, then for every argument of the request its value: a count or truth is a byte,
 * a text a byte of length (255: absent) and its bytes. So every field can be anything, as if HAProxy were
 * somebody else.
 */
#include <stdlib.h>

#include "spoa/agent/decision/decide.h"
#include "spoa/agent/decision_thread/answer.h"
#include "spoa/agent/token/tokens.h"
#include "spoa/base/bytes/reader.h"
#include "tests/fuzz/fuzz.h"

/* Beside the built-in routes' forms: a cookie, CORS, refusals by close. */
static const char config[] =
    "{\"domains\":{\"e2b\":[\"e.io\"]},\"routes\":["
    "{\"name\":\"c\",\"host\":\"{sandbox}.c.io\",\"cookie\":true},"
    "{\"name\":\"e\",\"host\":\"{port}-{sandbox}.<e2b>\",\"need\":\"none\",\"cors\":[\"http://"
    "u\"],\"auth\":\"keep\"},"
    "{\"name\":\"x\",\"path\":\"/x/{sandbox}/{rest...}\",\"refuse\":\"close\",\"to\":\"/{rest}\"},"
    "{\"name\":\"r\",\"path\":\"/r/{sandbox}/"
    "{session}\",\"upgrade\":true,\"via\":\"relay\",\"origins\":[\"*\"]},"
    "{\"name\":\"h\",\"headers\":{\"X-Sandbox-ID\":\"{sandbox}\",\"X-Sandbox-Port\":\"{port?80}\"}}]}";

static struct slice take_TEXT(struct reader *r)
{
    uint8_t len = reader_u8(r);
    return r->failed || len == 255 ? (struct slice){NULL, 0} : reader_take(r, len);
}

static int64_t take_COUNT(struct reader *r)
{
    return reader_u8(r) & 3;
}

static bool take_BOOL(struct reader *r)
{
    return reader_u8(r) & 1;
}

static struct address take_ADDRESS(struct reader *r)
{
    return (struct address){.family = reader_u8(r) & 1 ? 4 : 6};
}

/* What the sandbox's name says: its first letter chooses the state, the second the worker. */
static enum lookup find(void *directory, struct slice space, struct slice sandbox, struct record *record)
{
    (void)directory, (void)space;
    uint8_t a = sandbox.at[0], b = sandbox.at[sandbox.len - 1];
    *record = (struct record){.state = a % 5, .epoch = b, .org = SLICE_LITERAL("o")};
    record->worker.kind = b % 4;
    record->worker.host = SLICE_LITERAL("w");
    record->worker.port = b & 16 ? 80 : 0;
    record->worker.addr.family = b & 8 ? 4 : 0;
    return a == 'u'   ? LOOKUP_UNAVAILABLE
           : a == 'p' ? LOOKUP_PENDING
           : a == 'a' ? LOOKUP_ABSENT
                      : LOOKUP_FOUND;
}

static bool allowed(const void *networks, const struct address *addr)
{
    (void)networks, (void)addr;
    return true;
}

static void ignore_step(void *context, const char *step, const char *text, struct slice detail)
{
    (void)context, (void)step, (void)detail;
    if (!text)
        abort();
}

static void ignore_route(void *context, const struct route *route, enum route_miss miss)
{
    (void)context, (void)route, (void)miss;
}

static bool has_token(struct slice query)
{
    struct slice part;
    while (slice_split(&query, '&', &part))
        if (slice_starts(part, "cellgate_token="))
            return true;
    return false;
}

static void check(const struct verdict *v)
{
    bool refused = v->refusal != REFUSAL_NONE;
    if (refused != (v->status > 0) || (v->kind == VERDICT_DENY && !refused))
        abort();
    if (v->kind == VERDICT_DIRECT && (!v->addr.family || v->addr_port < 1 || v->addr_port > 65535 || refused))
        abort();
    if ((v->kind == VERDICT_DIRECT || v->kind == VERDICT_RELAY) && (v->path.len == 0 || v->path.at[0] != '/'))
        abort();
    if (has_token(v->query) || has_token(v->location))
        abort();
    if ((v->kind == VERDICT_REDIRECT) != slice_present(v->location))
        abort();
}

static struct slice answer_of(const struct verdict *verdict, void *memory, size_t size)
{
    struct writer out = writer_of(memory, size);
    struct spop_actions actions = {.out = &out, .prefix_len = 4};
    if (!answer_write(verdict, &actions) || out.full)
        abort();
    return writer_slice(&out);
}

/* What may be given again is the same for another request of the same bytes, at the last moment that was said. */
static void check_again(struct decide_view view, struct request request, const struct verdict *first)
{
    static uint8_t memory[DECIDE_SCRATCH], answers[2][DECIDE_SCRATCH];
    struct writer scratch = writer_of(memory, sizeof memory);
    struct verdict again;
    if (first->good_until == 0)
        return;
    if (first->kind != VERDICT_DIRECT || first->refusal != REFUSAL_NONE || first->upgrade ||
        first->good_until <= view.now)
        abort();
    request.id = SLICE_LITERAL("another");
    view.now = first->good_until - 1;
    struct slice a = answer_of(first, answers[0], sizeof answers[0]);
    decide(&view, &request, &scratch, &again);
    if (again.good_until != first->good_until ||
        !slice_equal(a, answer_of(&again, answers[1], sizeof answers[1])))
        abort();
}

static int read_input(const uint8_t *data, size_t size)
{
    static struct json *doc;
    static struct routes *own, *built_in;
    static struct tokens *tokens;
    static struct token_cache *cache;
    static uint8_t memory[DECIDE_SCRATCH];
    static const struct decide_trace trace = {.step = ignore_step, .routes = {ignore_route, NULL}};
    struct fail why;
    if (!doc) {
        doc = json_parse(slice_text(config), "c", 0, (struct json_limits){65536, 8}, &why);
        const struct route_nodes nodes = route_nodes_of(json_root(doc));
        own = routes_new(doc, &nodes, &why);
        built_in = routes_of_all_systems(doc, nodes.domains, &why);
        tokens = tokens_load(doc, NULL, ".", "cell", TOKENS_CHECK, &why);
        cache = token_cache_new(16);
    }
    struct reader r = reader_of(slice_of(data, size));
    struct request request;
    struct verdict verdict;
    uint8_t settings = reader_u8(&r);
#define X(kind, field, name, sample) request.field = take_##kind(&r);
    REQUEST_ARGUMENTS(X)
#undef X
#define X(field, lines, ...)       \
    request.field = take_TEXT(&r); \
    request.lines = take_COUNT(&r);
    REQUEST_HEADERS(X)
#undef X
    struct writer scratch = writer_of(memory, settings & 1 ? 64 : sizeof memory);
    struct decide_view view = {.routes = settings & 2 ? own : built_in,
                               .tokens = tokens,
                               .open = settings & 4,
                               .cache = cache,
                               .now = 1800000000,
                               .allowed = allowed,
                               .find = find,
                               .trace = settings & 8 ? &trace : NULL};
    decide(&view, &request, &scratch, &verdict);
    check(&verdict);
    if (!(settings & 1)) /* with all of the scratch */
        check_again(view, request, &verdict);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
