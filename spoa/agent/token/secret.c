/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>

#include "spoa/base/os/file.h"

static bool judge_secret(const struct token_load *load, const char *path, size_t len, size_t least,
                         struct fail *why)
{
    if (len == 0 || len < least)
        return fail(why, "%s: the secret has %zu bytes, at least %zu are required", path, len,
                    least ? least : 1);
    if (len > TOKEN_SECRET)
        return fail(why, "%s: the secret has %zu bytes, at most %d are possible", path, len, TOKEN_SECRET);
    return len >= KEY_SECRET ||
           token_load_warn(load, why, "%s: the secret has only %zu bytes, it should have %d", path, len,
                           KEY_SECRET);
}

static struct key *read_key(const struct token_load *load, const char *path, size_t least, struct fail *why)
{
    struct slice content;
    struct key *key = NULL;
    if (!token_load_secret_file(load, path, why) ||
        !file_read_secret(path, KEY_FILE, FILE_READABLE, &content, why))
        return NULL;
    struct slice secret = slice_trim_space(content);
    if (judge_secret(load, path, secret.len, least, why))
        key = key_secret(secret, least, path, why);
    file_free(content);
    return key;
}

void token_secret_release(void *pointer)
{
    struct token_secret *state = pointer;
    key_free(state->key);
    free(state->kid);
    free(state);
}

bool token_secret_load(const struct token_load *load, const json_node *node, const struct option *options,
                       size_t count, struct token_entry *entry, struct fail *why)
{
    struct token_secret_options o = {.kind = NULL};
    struct token_secret *state = calloc(1, sizeof(*state));
    if (!state)
        return fail(why, "out of memory");
    bool good = options_read(load->doc, node, options, count, load->base_dir, &o, why) &&
                (state->key = read_key(load, o.secret_file, (size_t)o.min_secret, why));
    state->kid = o.kid;
    state->max_ttl = o.max_ttl / OPTION_SECOND;
    state->bind = o.bind;
    o.kid = NULL;
    options_free(options, count, &o);
    const struct slice kid = slice_text(state->kid);
    good = good && token_load_key(load, state->key, entry->kind->name, &kid, 1, entry->fingerprint, why);
    if (!good) {
        token_secret_release(state);
        return false;
    }
    entry->state = state;
    entry->kid = slice_text(state->kid);
    return true;
}

enum refusal token_secret_signer(const struct token_check *check, const struct token_kind *kind,
                                 struct slice data, struct slice signature, const struct token_entry **signer,
                                 const char **reason)
{
    for (size_t i = 0; i < check->count; i++) {
        const struct token_entry *entry = &check->entries[i];
        if (entry->kind != kind)
            continue;
        switch (key_verify(((const struct token_secret *)entry->state)->key, data, signature)) {
        case KEY_GOOD:
            *signer = entry;
            return REFUSAL_NONE;
        case KEY_MEMORY:
            *reason = "out of memory";
            return REFUSAL_agent_unavailable;
        case KEY_BAD:
            break;
        }
    }
    *reason = "its signature is of no key that is configured, or for something else";
    return REFUSAL_token_invalid;
}

bool token_secret_lives(int64_t max_ttl, const struct grant *grant, struct fail *why)
{
    return !max_ttl || grant->exp - grant->iat <= max_ttl ||
           fail(why, "it would live longer than max_ttl, %lld s", (long long)max_ttl);
}

/* ---- base64 ---- */

static bool is_base64(struct slice text)
{
    size_t pads = 0;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.at[i], letter = c | 0x20;
        bool pad = c == '=' && i + 2 >= text.len;
        pads += pad;
        if (!pad &&
            (pads || !((letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/')))
            return false;
    }
    return text.len > 0 && text.len % 4 == 0;
}

bool token_secret_base64(const struct token_load *load, const char *path, size_t least, struct writer *w,
                         struct fail *why)
{
    struct slice content;
    uint8_t bytes[TOKEN_SECRET + 3];
    if (!token_load_secret_file(load, path, why) ||
        !file_read_secret(path, KEY_FILE, FILE_READABLE, &content, why))
        return false;
    struct slice text = slice_trim_space(content);
    size_t len = text.len / 4 * 3;
    for (size_t i = text.len; i > 0 && text.at[i - 1] == '='; i--)
        len -= len > 0;
    bool good = (is_base64(text) || fail(why, "%s: not padded base64", path)) &&
                judge_secret(load, path, len, least, why);
    if (good && EVP_DecodeBlock(bytes, text.at, (int)text.len) < 0)
        good = fail(why, "%s: not padded base64", path);
    if (good)
        writer_put(w, slice_of(bytes, len));
    OPENSSL_cleanse(bytes, sizeof(bytes));
    file_free(content);
    return good;
}
