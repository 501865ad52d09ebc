/* SPDX-License-Identifier: MIT */
#include "spoa/agent/systems/agent_sandbox/scoped_token.h"

enum { LABEL = 63 };

bool scoped_token_is_label(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!(s.at[i] >= 'a' && s.at[i] <= 'z') && !(s.at[i] >= '0' && s.at[i] <= '9') &&
            !(s.at[i] == '-' && i > 0 && i + 1 < s.len))
            return false;
    return s.len > 0 && s.len <= LABEL;
}

/* Reads the sandbox and writes its name in the form of the directory and of other tokens: "namespace/name", without "default/". */
static bool read_sandbox(const struct token_check *check, const struct json *doc, struct grant *grant)
{
    const json_node *root = json_root(doc);
    struct slice space, name;
    size_t start = check->text->len;
    if (!json_text(json_member(root, "ns"), &space) || !scoped_token_is_label(space) ||
        !json_text(json_member(root, "name"), &name) || !scoped_token_is_label(name) ||
        !json_int(doc, json_member(root, "exp"), 0, (int64_t)1 << 53, &grant->exp))
        return false;
    if (!slice_is(space, "default")) {
        writer_put(check->text, space);
        writer_u8(check->text, '/');
    }
    writer_put(check->text, name);
    grant->sandbox = slice_of(check->text->at + start, check->text->len - start);
    return !check->text->full;
}

enum refusal scoped_token_read(const struct token_check *check, struct slice payload,
                               bool (*more)(const struct token_check *check, const struct json *doc,
                                            struct grant *grant),
                               struct grant *grant, const char **reason)
{
    struct fail why;
    struct json *doc = json_parse(payload, "token", 0, (struct json_limits){SCOPED_TOKEN_PAYLOAD, 4}, &why);
    bool short_of_memory = !doc && fail_of_memory(&why);
    bool good = doc && read_sandbox(check, doc, grant) && (!more || more(check, doc, grant));
    json_free(doc);
    grant->needs = NEED_UNSAID;
    grant->in_place = true;
    *reason = short_of_memory ? "out of memory" : "a claim is missing or not what it should be";
    return short_of_memory ? REFUSAL_agent_unavailable : good ? REFUSAL_NONE : REFUSAL_token_invalid;
}
