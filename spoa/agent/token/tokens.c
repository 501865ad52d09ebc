/* SPDX-License-Identifier: MIT */
#include "spoa/agent/token/tokens.h"

#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "spoa/base/os/file.h"

struct tokens {
    uint64_t generation;
    struct token_files files;
    struct token_keys keys;
    struct own_sources own;
    struct texts warnings;
    size_t count;
    struct token_entry entry[];
};

bool token_load_file(const struct token_load *load, const char *path, struct fail *why)
{
    struct token_files *files = load->files;
    struct stat *seen = reallocarray(files->seen, files->paths.count + 1, sizeof(*seen));
    if (!seen)
        return fail(why, "out of memory");
    files->seen = seen;
    file_look(path, &seen[files->paths.count]);
    return texts_add(&files->paths, slice_text(path)) || fail(why, "out of memory");
}

bool token_load_warn(const struct token_load *load, struct fail *why, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return texts_add(load->warnings, slice_text(text)) || fail(why, "out of memory");
}

bool token_load_secret_file(const struct token_load *load, const char *path, struct fail *why)
{
    struct fail exposed;
    return token_load_file(load, path, why) &&
           (file_exposure(path, FILE_READ_BY_SELF, &exposed) == FILE_PRIVATE ||
            token_load_warn(load, why, "%s", exposed.text));
}

/* ---- fingerprints ---- */

/* Hashes a part with its length in front, so that no two lists of parts have the same bytes. */
static bool hash_part(EVP_MD_CTX *context, struct slice part)
{
    uint8_t memory[9];
    struct writer head = writer_of(memory, sizeof(memory));
    writer_u8(&head, slice_present(part));
    writer_be(&head, part.len, 8);
    return EVP_DigestUpdate(context, memory, head.len) && EVP_DigestUpdate(context, part.at, part.len);
}

static bool hash_use(const char *kind, const struct slice *parts, size_t count, struct writer *digest)
{
    unsigned length = 0;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good =
        context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) && hash_part(context, slice_text(kind));
    for (size_t i = 0; good && i < count; i++)
        good = hash_part(context, parts[i]);
    good = good && EVP_DigestFinal_ex(context, digest->at, &length);
    digest->len = length;
    EVP_MD_CTX_free(context);
    return good;
}

bool token_load_key(const struct token_load *load, const struct key *key, const char *kind,
                    const struct slice *parts, size_t count, uint8_t fingerprint[KEY_FINGERPRINT],
                    struct fail *why)
{
    uint8_t memory[EVP_MAX_MD_SIZE];
    struct writer use = writer_of(memory, sizeof(memory));
    struct token_keys *keys = load->keys;
    uint8_t(*more)[KEY_FINGERPRINT] = reallocarray(keys->at, keys->count + 1, sizeof(*more));
    if (more)
        keys->at = more;
    if (!more || !hash_use(kind, parts, count, &use) ||
        !key_fingerprint(key, writer_slice(&use), fingerprint))
        return fail(why, "out of memory");
    memcpy(more[keys->count++], fingerprint, KEY_FINGERPRINT);
    return true;
}

static int compare_keys(const void *one, const void *other)
{
    return memcmp(one, other, KEY_FINGERPRINT);
}

static void sort_keys(struct token_keys *keys)
{
    if (keys->count)
        qsort(keys->at, keys->count, sizeof(*keys->at), compare_keys);
}

bool tokens_has_key(const struct tokens *tokens, struct slice fingerprint)
{
    const struct token_keys *keys = &tokens->keys;
    return keys->count && fingerprint.len == KEY_FINGERPRINT &&
           bsearch(fingerprint.at, keys->at, keys->count, sizeof(*keys->at), compare_keys);
}

enum refusal token_check_lifetime(const struct token_check *check, int64_t max_ttl, struct grant *grant,
                                  const char **reason)
{
    grant->iat = max_ttl ? grant->exp - max_ttl : -1;
    if (check->now >= grant->exp + grant->leeway) {
        *reason = "it has expired";
        return REFUSAL_token_expired;
    }
    if (max_ttl && grant->iat > check->now) {
        *reason = "it lives longer than max_ttl";
        return REFUSAL_token_invalid;
    }
    return REFUSAL_NONE;
}

static const struct token_kind *kind_named(const json_node *node)
{
    struct slice name;
    if (!json_text(json_member(node, "kind"), &name))
        return NULL;
    for (size_t i = 0; token_kind_at(i); i++)
        if (slice_is(name, token_kind_at(i)->name))
            return token_kind_at(i);
    return NULL;
}

static bool load_entry(const struct token_load *load, const json_node *node, struct token_entry *entry,
                       struct fail *why)
{
    if (!json_is_object(node))
        return json_fail(load->doc, node, why, "an entry of tokens must be an object");
    entry->kind = kind_named(node);
    if (!entry->kind)
        return json_fail(load->doc, node, why, "tokens: kind is missing or none that is known");
    entry->sources = entry->kind->sources;
    return entry->kind->load(load, node, entry, why);
}

bool tokens_warn_old(const struct json *doc, const json_node *array, struct texts *warnings, struct fail *why)
{
    for (const json_node *node = array ? json_first(array) : NULL; node; node = json_next(node)) {
        const struct token_kind *kind = kind_named(node);
        if (kind && !options_warn_old(doc, node, kind->options, kind->options_count, warnings, why))
            return false;
    }
    return true;
}

static bool load_all(struct tokens *tokens, const struct token_load *load, const json_node *array,
                     struct fail *why)
{
    if (RAND_bytes((unsigned char *)&tokens->generation, sizeof(tokens->generation)) != 1)
        return fail(why, "no randomness");
    for (const json_node *node = array ? json_first(array) : NULL; node; node = json_next(node)) {
        if (!load_entry(load, node, &tokens->entry[tokens->count], why))
            return false;
        tokens->count++;
    }
    sort_keys(&tokens->keys);
    return true;
}

struct tokens *tokens_load(const struct json *doc, const json_node *array, const char *base_dir,
                           const char *cell, enum tokens_use use, struct fail *why)
{
    size_t count = array ? json_count(array) : 0;
    if (array && !json_is_array(array)) {
        json_fail(doc, array, why, "tokens must be an array");
        return NULL;
    }
    if (count > TOKENS_MOST) {
        json_fail(doc, array, why, "at most %d tokens", TOKENS_MOST);
        return NULL;
    }
    struct tokens *tokens = calloc(1, sizeof(*tokens) + count * sizeof(struct token_entry));
    if (!tokens) {
        fail(why, "out of memory");
        return NULL;
    }
    struct token_load load = {.doc = doc,
                              .base_dir = base_dir,
                              .cell = cell,
                              .minting = use == TOKENS_MINT,
                              .files = &tokens->files,
                              .keys = &tokens->keys,
                              .own = &tokens->own,
                              .warnings = &tokens->warnings};
    if (load_all(tokens, &load, array, why))
        return tokens;
    tokens_free(tokens);
    return NULL;
}

void tokens_free(struct tokens *tokens)
{
    if (!tokens)
        return;
    for (size_t i = 0; i < tokens->count; i++)
        tokens->entry[i].kind->release(tokens->entry[i].state);
    texts_free(&tokens->files.paths);
    free(tokens->files.seen);
    free(tokens->keys.at);
    own_sources_free(&tokens->own);
    texts_free(&tokens->warnings);
    free(tokens);
}

uint64_t tokens_generation(const struct tokens *tokens)
{
    return tokens->generation;
}

const struct token_entry *tokens_entries(const struct tokens *tokens, size_t *count)
{
    *count = tokens->count;
    return tokens->entry;
}

bool tokens_admit(const struct tokens *tokens, const struct token_tunnel *tunnel)
{
    for (size_t i = 0; i < tokens->count; i++) {
        const struct token_entry *entry = &tokens->entry[i];
        if (entry->kind->admits ? entry->kind->admits(entry, tunnel)
                                : slice_present(entry->kid) && slice_equal(entry->kid, tunnel->kid))
            return true;
    }
    return false;
}

unsigned token_entry_sources(const struct token_entry *entry, const struct credential_place *place)
{
    return place->route && entry->kind->sources_at ? entry->kind->sources_at(entry, place) : entry->sources;
}

bool token_entry_listens(const struct token_entry *entry, const struct credential *credential)
{
    return token_entry_sources(entry, &credential->place) & 1u << credential->source;
}

unsigned tokens_sources(const struct tokens *tokens, const struct credential_place *place)
{
    unsigned sources = 0;
    for (size_t i = 0; i < tokens->count; i++)
        sources |= token_entry_sources(&tokens->entry[i], place);
    return sources;
}

const struct own_sources *tokens_own(const struct tokens *tokens)
{
    return &tokens->own;
}

const struct token_files *tokens_files(const struct tokens *tokens)
{
    return &tokens->files;
}

const struct texts *tokens_warnings(const struct tokens *tokens)
{
    return &tokens->warnings;
}

static bool chosen(const struct token_entry *entry, struct slice kind, struct slice kid)
{
    if (slice_present(kind) && !slice_is(kind, entry->kind->name))
        return false;
    return !slice_present(kid) || (slice_present(entry->kid) && slice_equal(kid, entry->kid));
}

bool tokens_mint(const struct tokens *tokens, struct slice kind, struct slice kid, const struct grant *grant,
                 struct writer *w, struct fail *why)
{
    struct fail later; /* only the first entry's reason is reported */
    struct writer before = *w;
    bool tried = false;
    bool named = slice_present(kind) || slice_present(kid);
    fail(why,
         named ? "no entry of tokens has this kind and kid" : "there are no tokens in the configuration");
    for (size_t i = 0; i < tokens->count; i++) {
        const struct token_entry *entry = &tokens->entry[i];
        if (!chosen(entry, kind, kid))
            continue;
        if (entry->kind->mint(entry, grant, w, tried ? &later : why))
            return true;
        *w = before;
        tried = true;
    }
    return false;
}
