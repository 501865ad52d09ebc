/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/credential.h"

/* Matches a text against a pattern and sets the captures. */
static bool capture(enum pattern_kind kind, const char *form, struct slice text, struct captures *captures)
{
    struct capture_names names;
    struct fail why;
    capture_names_init(&names);
    struct pattern *pattern = pattern_new(kind, slice_text(form), &names, &why);
    bool matches = pattern && pattern_match(pattern, text, captures) == PATTERN_MATCH;
    pattern_free(pattern);
    return matches;
}

static bool is_route(struct slice text, struct captures *captures)
{
    return capture(PATTERN_VALUE, "{sandbox}-{port}-{expires}-{signature}",
                   slice_sub(text, 0, slice_find(text, '.')), captures) ||
           capture(PATTERN_PATH, "/{sandbox}/{port}/{expires}/{signature}/{rest...}", text, captures);
}

static bool is_file(struct slice text, struct request *request, struct captures *captures)
{
    const struct signed_url_form *form;
    size_t question = slice_find(text, '?');
    request->path = slice_sub(text, 0, question);
    if (question < text.len)
        request->query = slice_from(text, question + 1);
    for (size_t i = 0; (form = signed_url_form_at(i)); i++)
        for (size_t k = 0; form->whole[k].path; k++)
            if (capture(PATTERN_PATH, form->whole[k].path, request->path, captures)) {
                request->method = slice_text(form->whole[k].method);
                return true;
            }
    return false;
}

bool credential_from_text(struct slice text, unsigned listening, struct writer *scratch,
                          struct credential *credential)
{
    struct request request = {.authorizations = 1};
    struct captures captures = {0};
    struct carried carried;
    uint64_t port = 0;
    const struct credential_rules rules = {.listening = listening, .captures = &captures};
    *credential = credential_bearer(text);
    if (!is_file(text, &request, &captures) && !is_route(text, &captures))
        return true;
    if (credential_find(&request, &rules, scratch, &carried) != REFUSAL_NONE)
        return false;
    if (carried.credential.source == SOURCE_NONE)
        return true;
    if (!slice_u64(captures.value[CAPTURE_PORT], 65535, &port))
        port = 0; /* the route names no port */
    *credential = carried.credential;
    credential->sandbox = captures.value[CAPTURE_SANDBOX];
    credential->port = (uint16_t)port;
    return true;
}
