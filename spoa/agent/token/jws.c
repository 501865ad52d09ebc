/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/jws.h"

#include "spoa/base/text/base64url.h"

#define HEADER_DEPTH 8

static bool split(struct slice text, struct slice parts[3])
{
    for (size_t i = 0; i < 3; i++)
        if (!slice_split(&text, '.', &parts[i]))
            return false;
    return !slice_present(text);
}

bool jws_recognises(struct slice text)
{
    struct slice parts[3];
    return split(text, parts);
}

static enum jws_result bad(const char **reason, const char *text)
{
    *reason = text;
    return JWS_BAD;
}

/* Reads a member that is a string or absent; returns false if it has another type. */
static bool optional_text(const json_node *header, const char *key, struct slice *value)
{
    const json_node *node = json_member(header, key);
    *value = (struct slice){NULL, 0};
    return !node || json_text(node, value);
}

static enum jws_result read_header(struct jws *jws, const char **reason)
{
    const json_node *root = json_root(jws->header);
    if (!json_is_object(root))
        return bad(reason, "the header is not a JSON object");
    if (json_member(root, "crit"))
        return bad(reason, "the header has a crit, none of which is understood");
    if (!optional_text(root, "alg", &jws->alg) || !slice_present(jws->alg))
        return bad(reason, "the header has no alg");
    if (!optional_text(root, "kid", &jws->kid) || !optional_text(root, "typ", &jws->typ))
        return bad(reason, "kid or typ in the header is not a string");
    return JWS_GOOD;
}

static enum jws_result parse_header(struct slice part, struct jws *jws, const char **reason)
{
    static const struct json_limits limits = {.bytes = JWS_PART, .depth = HEADER_DEPTH};
    uint8_t memory[JWS_PART];
    struct writer w = writer_of(memory, sizeof(memory));
    struct fail why;
    if (!base64url_decode(part, &w))
        return bad(reason, "the header is not base64url");
    jws->header = json_parse(writer_slice(&w), "header", 0, limits, &why);
    if (jws->header)
        return JWS_GOOD;
    if (fail_of_memory(&why))
        return JWS_MEMORY;
    return bad(reason, "the header is not JSON within limits");
}

enum jws_result jws_open(struct slice text, struct jws *jws, const char **reason)
{
    struct slice parts[3];
    *jws = (struct jws){.header = NULL};
    if (text.len > JWS_LIMIT)
        return bad(reason, "longer than 8 KiB");
    if (!split(text, parts))
        return bad(reason, "not three parts with dots between them");
    jws->input = slice_sub(text, 0, parts[0].len + 1 + parts[1].len);
    jws->payload = parts[1];
    struct writer w = writer_of(jws->signature, sizeof(jws->signature));
    if (!base64url_decode(parts[2], &w))
        return bad(reason, "the signature is not base64url or too long");
    jws->signature_length = w.len;
    enum jws_result result = parse_header(parts[0], jws, reason);
    if (result == JWS_GOOD)
        result = read_header(jws, reason);
    if (result != JWS_GOOD)
        jws_close(jws);
    return result;
}

void jws_close(struct jws *jws)
{
    json_free(jws->header);
    jws->header = NULL;
}

enum key_result jws_verify(const struct jws *jws, const struct key *key)
{
    if (!slice_is(jws->alg, key_algorithm_text(key_algorithm(key))))
        return KEY_BAD;
    return key_verify(key, jws->input, slice_of(jws->signature, jws->signature_length));
}

bool jws_payload(const struct jws *jws, struct writer *w)
{
    return base64url_decode(jws->payload, w);
}

bool jws_plain(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.at[i] < ' ' || s.at[i] > '~' || s.at[i] == '"' || s.at[i] == '\\')
            return false;
    return true;
}

bool jws_sign(const struct key *key, struct slice kid, struct slice payload, struct writer *w)
{
    uint8_t header[512], signature[KEY_SIGNATURE];
    struct writer h = writer_of(header, sizeof(header)), s = writer_of(signature, sizeof(signature));
    size_t start = w->len;
    if (!jws_plain(kid))
        return false;
    writer_printf(&h, "{\"alg\":\"%s\",\"typ\":\"JWT\"", key_algorithm_text(key_algorithm(key)));
    if (slice_present(kid))
        writer_printf(&h, ",\"kid\":\"%.*s\"", SLICE_PRINTF(kid));
    writer_text(&h, "}");
    base64url_encode(writer_slice(&h), w);
    writer_u8(w, '.');
    base64url_encode(payload, w);
    if (h.full || w->full || !key_sign(key, slice_from(writer_slice(w), start), &s))
        return false;
    writer_u8(w, '.');
    base64url_encode(writer_slice(&s), w);
    return !w->full;
}
