/* SPDX-License-Identifier: MIT */
/*
 * token_kind: what a kind of token brings. Each entry of the configuration's `tokens` belongs to one kind;
 * what the kind makes of it (keys, issuer, limits) is its own state, made by `load`, immutable, and freed by
 * `release`.
 */
#ifndef CELLGATE_AGENT_TOKEN_KIND_H
#define CELLGATE_AGENT_TOKEN_KIND_H

#include <sys/stat.h>

#include "spoa/agent/model/grant.h"
#include "spoa/agent/systems/tables.h"
#include "spoa/agent/token/credential_source.h"
#include "spoa/agent/token/key.h"
#include "spoa/service/options.h"

struct token_kind;

struct token_entry {
    const struct token_kind *kind;
    struct slice kid; /* points into state; absent: the entry has none */
    unsigned sources; /* SOURCE_BITs that bring its credentials; unless `load` sets it, the kind's */
    uint8_t fingerprint[KEY_FINGERPRINT]; /* of its key, for kinds with one in an entry */
    void *state;
};

/* Of all keys of all entries, sorted. */
struct token_keys {
    uint8_t (*at)[KEY_FINGERPRINT];
    size_t count;
};

struct token_files {
    struct texts paths;
    struct stat *seen; /* of each, before it was read; zeroed: it was not there */
};

struct token_load {
    const struct json *doc;
    const char *base_dir;
    const char *cell;
    bool minting;              /* private keys are wanted */
    struct token_files *files; /* read while loading; a change of one is a reason to load again */
    struct own_sources *own;   /* that the entries name */
    struct token_keys *keys;   /* that the entries accept; a tunnel whose key is none of them ends */
    struct texts *warnings;
};
/* For kinds, while they load, before they read the file: false and *why when out of memory. */
bool token_load_file(const struct token_load *load, const char *path, struct fail *why);
/* The same, of a file that nobody else should read: warns if others can. */
bool token_load_secret_file(const struct token_load *load, const char *path, struct fail *why);
/* For kinds, of each key with which they will verify; kind and parts (the kid, the issuer, ...): who has to be trusted for
 * a token of this key to be accepted. What grants then have as `key`. False and *why when out of memory. */
bool token_load_key(const struct token_load *load, const struct key *key, const char *kind,
                    const struct slice *parts, size_t count, uint8_t fingerprint[KEY_FINGERPRINT],
                    struct fail *why);
/* The same, of what they have read. */
__attribute__((format(printf, 3, 4))) bool token_load_warn(const struct token_load *load, struct fail *why,
                                                           const char *format, ...);

/* SOURCE_BITs that bring credentials of the entry to the place. */
unsigned token_entry_sources(const struct token_entry *entry, const struct credential_place *place);

/* Whether what carries the credential brings it to the entry there. */
bool token_entry_listens(const struct token_entry *entry, const struct credential *credential);

struct token_check {
    const struct token_entry *entries; /* of all kinds, in the configuration's order */
    size_t count;
    const struct credential *credential;
    int64_t now;
    struct writer *text; /* for the grant's strings */
};

/* For kinds whose tokens say until when they are good but not since when. Grants exp and leeway are set; sets
 * iat to the earliest moment at which a token of at most max_ttl seconds (0: of any length) can have been
 * made, so that not_before never spares one that was made before. REFUSAL_NONE, token_expired or
 * token_invalid. */
enum refusal token_check_lifetime(const struct token_check *check, int64_t max_ttl, struct grant *grant,
                                  const char **reason);

/* What let an open tunnel in, of its grant, and where. */
struct token_tunnel {
    struct slice key, kid;
    unsigned needs;                /* that were granted */
    struct credential_place place; /* the route as it is now; place.route NULL: it is gone */
};

/* What `cellgate token` makes of a grant, beside a text: a label of a host, or a URL of a file. */
enum token_form { TOKEN_IS_TEXT, TOKEN_IS_LABEL, TOKEN_IS_FILE_URL };

struct token_kind {
    enum token_form form;
    const char *name;             /* `kind` of an entry */
    const struct option *options; /* what an entry may hold, for the manual too */
    size_t options_count;
    unsigned sources;
    /* Fills entry's kid and state. False and *why, with nothing left to free. */
    bool (*load)(const struct token_load *load, const json_node *node, struct token_entry *entry,
                 struct fail *why);
    void (*release)(void *state);
    /* Those of entry->sources that are good at a place with a route. NULL: all. */
    unsigned (*sources_at)(const struct token_entry *entry, const struct credential_place *place);
    /* Whether what one of its sources brought has this kind's outward form. From then on no other kind sees
     * it. */
    bool (*recognises)(struct slice token);
    /* As token_check, but for grant->kind. *reason is set unless it is good. */
    enum refusal (*check)(const struct token_check *check, struct grant *grant, const char **reason);
    /* Whether the record's secret has signed the grant: its `signing_key`, or the value of the header of that name, which no
     * worker then gets with such a request. NULL: the kind has no such grants. */
    bool (*confirms)(const struct grant *grant, struct slice secret);
    const char *secret_header;
    /* Appends a token that grants this (from iat until exp), or fails because this kind cannot say it. */
    bool (*mint)(const struct token_entry *entry, const struct grant *grant, struct writer *w,
                 struct fail *why);
    /* Whether the entry still has the key of tunnel->kid and, where it is bound to places, is good for the tunnel.
     * NULL: if it is the entry's kid. */
    bool (*admits)(const struct token_entry *entry, const struct token_tunnel *tunnel);
};

/* Whether a key of any entry of that kind has signed the credential, or it names one's kid: wherever that entry is good. */
bool jwt_is_ours(const struct token_check *check);

/* X(variable, name): all kinds. The first that recognises a credential has it, so a kind with a narrower form stands before one
 * with a wider. */
#define TOKEN_KINDS(X)    \
    SYSTEM_TOKEN_KINDS(X) \
    X(jwt, "jwt")         \
    X(static, "static")

#define X(variable, name) extern const struct token_kind token_kind_##variable;
TOKEN_KINDS(X)
#undef X

#endif
