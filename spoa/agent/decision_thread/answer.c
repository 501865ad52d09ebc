/* SPDX-License-Identifier: MIT */
#include "spoa/agent/decision_thread/answer.h"

enum kind { TEXT, BOOL, INT, ADDRESS };

static const struct argument {
    enum kind kind;
    size_t offset; /* offset in struct request */
    struct slice name;
} arguments[] = {
#define X(kind, field, name, sample) {kind, offsetof(struct request, field), SLICE_STATIC(name)},
    REQUEST_ARGUMENTS(X)
#undef X
};
enum { ARGUMENTS = sizeof arguments / sizeof *arguments };

/* Finds an argument, starting after the last one, because arguments come in the order of the table. */
static const struct argument *argument_find(struct slice name, size_t *next)
{
    for (size_t i = 0; i < ARGUMENTS; i++) {
        const struct argument *argument = &arguments[*next];
        *next = *next + 1 < ARGUMENTS ? *next + 1 : 0;
        if (slice_equal(argument->name, name))
            return argument;
    }
    return NULL;
}

static bool address_read(struct spop_value value, struct address *address)
{
    if (value.kind != SPOP_IPV4 && value.kind != SPOP_IPV6)
        return false;
    address->family = value.kind == SPOP_IPV4 ? 4 : 6;
    memcpy(address->bytes, value.bytes.at, value.bytes.len);
    return true;
}

static bool int_read(struct spop_value value, int64_t *number)
{
    uint64_t unsigned_number;
    bool good = spop_value_unsigned(value, &unsigned_number) && unsigned_number <= INT64_MAX;
    *number = good ? (int64_t)unsigned_number : -1;
    return good;
}

static bool argument_read(const struct argument *argument, struct spop_value value, void *request)
{
    void *field = (char *)request + argument->offset;
    switch (argument->kind) {
    case TEXT:
        *(struct slice *)field = value.bytes;
        return value.kind == SPOP_TEXT || value.kind == SPOP_BINARY;
    case BOOL:
        *(bool *)field = value.truth;
        return value.kind == SPOP_BOOL;
    case INT:
        return int_read(value, field);
    case ADDRESS:
        return address_read(value, field);
    }
    return false;
}

bool request_from_args(struct spop_args args, struct request *request)
{
    struct slice name;
    struct spop_value value;
    size_t next = 0;
    *request = (struct request){.hosts = 0};
    while (spop_arg_next(&args, &name, &value)) {
        const struct argument *argument = argument_find(name, &next);
        if (argument && value.kind != SPOP_NULL && !argument_read(argument, value, request))
            return false;
    }
    return request_read_headers(request);
}

bool egress_request_from_args(struct spop_args args, bool inside, struct egress_request *request)
{
    static const struct argument outside[] = {
#define X(kind, field, name, sample) {kind, offsetof(struct egress_request, field), SLICE_STATIC(name)},
        EGRESS_ARGUMENTS(X)};
    static const struct argument within[] = {EGRESS_INSIDE_ARGUMENTS(X)
#undef X
    };
    const struct argument *arguments_of = inside ? within : outside;
    size_t count = inside ? sizeof within / sizeof *within : sizeof outside / sizeof *outside;
    struct slice name;
    struct spop_value value;
    *request = (struct egress_request){.inside = inside, .begun = -1};
    while (spop_arg_next(&args, &name, &value))
        for (size_t i = 0; i < count; i++)
            if (slice_equal(arguments_of[i].name, name) && value.kind != SPOP_NULL &&
                !argument_read(&arguments_of[i], value, request))
                return false;
    return true;
}

/* ---- variables ---- */

static void put_text(struct spop_actions *actions, const struct spop_variable *variable, struct slice text)
{
    spop_set_known_text(actions, variable, text);
}

static inline void put_TEXT(struct spop_actions *actions, const struct spop_variable *variable,
                            struct slice text)
{
    if (slice_present(text))
        put_text(actions, variable, text);
}

static void put_INT(struct spop_actions *actions, const struct spop_variable *variable, int64_t number)
{
    if (number >= 0)
        spop_set_known(actions, variable, spop_int(number));
}

static void put_BOOL(struct spop_actions *actions, const struct spop_variable *variable, bool truth)
{
    if (truth)
        spop_set_known(actions, variable, spop_bool(true));
}

static void put_ADDRESS(struct spop_actions *actions, const struct spop_variable *variable,
                        struct address address)
{
    if (address.family)
        spop_set_known(actions, variable,
                       spop_address(slice_of(address.bytes, address.family == 4 ? 4 : 16)));
}

static void put_verdict(const struct verdict *verdict, struct spop_actions *actions)
{
    static const struct {
#define X(kind, field, ...) struct spop_variable field;
        VERDICT_VARIABLES(X)
#undef X
        struct spop_variable verdict;
    } variables = {
#define X(kind, field, name, ...) .field = SPOP_VARIABLE(SPOP_TRANSACTION, name),
        VERDICT_VARIABLES(X)
#undef X
            .verdict = SPOP_VARIABLE(SPOP_TRANSACTION, "verdict")};
#define X(kind, field, ...) put_##kind(actions, &variables.field, verdict->field);
    VERDICT_VARIABLES(X)
#undef X
    put_text(actions, &variables.verdict, slice_text(verdict_kind_text(verdict->kind)));
}

static void put_egress(const struct egress_verdict *verdict, struct spop_actions *actions)
{
    static const struct {
#define X(kind, field, ...) struct spop_variable field;
        EGRESS_VARIABLES(X)
#undef X
#define X(field, name, header) struct spop_variable field;
        EGRESS_CREDENTIALS(X)
#undef X
        struct spop_variable verdict;
    } variables = {
#define X(kind, field, name, ...) .field = SPOP_VARIABLE(SPOP_TRANSACTION, name),
        EGRESS_VARIABLES(X)
#undef X
#define X(field, name, header) .field = SPOP_VARIABLE(SPOP_TRANSACTION, name),
            EGRESS_CREDENTIALS(X)
#undef X
                .verdict = SPOP_VARIABLE(SPOP_TRANSACTION, "verdict")};
#define X(kind, field, ...) put_##kind(actions, &variables.field, verdict->field);
    EGRESS_VARIABLES(X)
#undef X
#define X(field, name, header)            \
    if (verdict->refusal == REFUSAL_NONE) \
        put_TEXT(actions, &variables.field, verdict->field);
    EGRESS_CREDENTIALS(X)
#undef X
    put_text(actions, &variables.verdict, slice_text(egress_verdict_text(verdict)));
}

/* Returns to `len` bytes if the bytes after them do not fit into a frame. Returns false if they fit. */
static bool take_back(struct spop_actions *actions, const struct spop_actions *before, size_t len)
{
    struct writer *out = actions->out;
    if (!out->full && (!actions->most || out->len <= actions->most))
        return false;
    out->len = len;
    out->full = false;
    *actions = *before;
    return true;
}

void egress_answer_write(const struct egress_verdict *verdict, struct spop_actions *actions)
{
    struct spop_actions before = *actions;
    size_t len = actions->out->len;
    put_egress(verdict, actions);
    if (!take_back(actions, &before, len))
        return;
    struct egress_verdict refusal = egress_refusal(
        REFUSAL_request_too_large, "the request and what its rule sets are too large together");
    put_egress(&refusal, actions);
}

static void put_refusal(enum refusal refusal, struct spop_actions *actions)
{
    struct verdict verdict;
    verdict_clear(&verdict);
    verdict_deny(&verdict, refusal);
    put_verdict(&verdict, actions);
}

bool answer_write(const struct verdict *verdict, struct spop_actions *actions)
{
    struct spop_actions before = *actions;
    size_t len = actions->out->len;
    put_verdict(verdict, actions);
    if (!take_back(actions, &before, len))
        return true;
    put_refusal(REFUSAL_request_too_large, actions);
    return false;
}

void answer_unavailable(struct spop_actions *actions)
{
    put_refusal(REFUSAL_agent_unavailable, actions);
}
