/* SPDX-License-Identifier: MIT */
/*
 * token_kind: the interface of a kind of tokens. Each entry of the configuration's `tokens` belongs to one kind. The entry's state
 * (keys, issuer, limits) belongs to the kind: `load` makes it, it is immutable, and `release` frees it.
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
    struct slice kid; /* points into state; absent if the entry has none */
    unsigned sources; /* mask of the SOURCE_BITs of its credentials; the kind's, unless `load` sets it */
    uint8_t fingerprint[KEY_FINGERPRINT]; /* fingerprint of the key, for kinds with one key in an entry */
    void *state;
};

/* The fingerprints of all keys of all entries, sorted. */
struct token_keys {
    uint8_t (*at)[KEY_FINGERPRINT];
    size_t count;
};

struct token_files {
    struct texts paths;
    struct stat *seen; /* state of each file before it was read; zeroed if the file was missing */
};

struct token_load {
    const struct json *doc;
    const char *base_dir;
    const char *cell;
    bool minting; /* the caller needs private keys */
    struct token_files
        *files; /* the files read while loading; if one changes, the tokens must be loaded again */
    struct own_sources *own; /* headers and parameters that the entries name */
    struct token_keys *keys; /* keys that the entries accept; a tunnel with another key ends */
    struct texts *warnings;
};
/* Registers a file; a kind calls this in `load` before it reads the file. Returns false and *why if memory is short. */
bool token_load_file(const struct token_load *load, const char *path, struct fail *why);
/* Like token_load_file, for a file that must be secret: warns if other users can read it. */
bool token_load_secret_file(const struct token_load *load, const char *path, struct fail *why);
/* Registers a key that the kind will verify with, and returns the fingerprint that grants get as `key`. `kind` and `parts` (the kid, the
 * issuer, ...) are everything else that makes a token of this key acceptable. Returns false and *why if memory is short. */
bool token_load_key(const struct token_load *load, const struct key *key, const char *kind,
                    const struct slice *parts, size_t count, uint8_t fingerprint[KEY_FINGERPRINT],
                    struct fail *why);
/* Adds a warning about the loaded entries. Returns false and *why if memory is short. */
__attribute__((format(printf, 3, 4))) bool token_load_warn(const struct token_load *load, struct fail *why,
                                                           const char *format, ...);

/* Returns the SOURCE_BITs of the entry's credentials in this place. */
unsigned token_entry_sources(const struct token_entry *entry, const struct credential_place *place);

/* Returns whether the entry accepts credentials from this credential's source in its place. */
bool token_entry_listens(const struct token_entry *entry, const struct credential *credential);

struct token_check {
    const struct token_entry *entries; /* entries of all kinds, in the order of the configuration */
    size_t count;
    const struct credential *credential;
    int64_t now;
    struct writer *text; /* memory for the grant's strings */
};

/* Checks the lifetime of a token that has an expiry but no issue time. The grant's exp and leeway must be set. Sets iat to the earliest
 * possible issue time of a token with a lifetime of at most max_ttl seconds (0: unlimited), so that not_before revokes every token that
 * may have been issued before it. Returns REFUSAL_NONE, token_expired or token_invalid. */
enum refusal token_check_lifetime(const struct token_check *check, int64_t max_ttl, struct grant *grant,
                                  const char **reason);

/* The parts of an open tunnel's grant that are checked again, and the tunnel's place. */
struct token_tunnel {
    struct slice key, kid;
    unsigned needs; /* the granted needs */
    struct credential_place
        place; /* place with the current route; place.route is NULL if the route was removed */
};

/* The form in which `cellgate token` prints a grant: a text, a label of a host, or the URL of a file. */
enum token_form { TOKEN_IS_TEXT, TOKEN_IS_LABEL, TOKEN_IS_FILE_URL };

struct token_kind {
    enum token_form form;
    const char *name;             /* `kind` of an entry */
    const struct option *options; /* keys of an entry, also for the manual */
    size_t options_count;
    unsigned sources;
    /* Fills the entry's kid and state. Returns false and *why, with nothing left to free, if the entry is invalid. */
    bool (*load)(const struct token_load *load, const json_node *node, struct token_entry *entry,
                 struct fail *why);
    void (*release)(void *state);
    /* Returns those of entry->sources that are valid in a place with a route. NULL if all are. */
    unsigned (*sources_at)(const struct token_entry *entry, const struct credential_place *place);
    /* Returns whether the token has this kind's form. If it does, no other kind sees it. */
    bool (*recognises)(struct slice token);
    /* Checks a credential like token_check, but does not set grant->kind. Sets *reason if it refuses. */
    enum refusal (*check)(const struct token_check *check, struct grant *grant, const char **reason);
    /* Returns whether a secret of the record signed the grant: its `signing_key`, or the value of the header `secret_header`, which is
     * then withheld from the worker. NULL if the kind has no such grants. */
    bool (*confirms)(const struct grant *grant, struct slice secret);
    const char *secret_header;
    /* Appends a token with this grant (from iat until exp), or returns false and *why if the kind cannot express it. */
    bool (*mint)(const struct token_entry *entry, const struct grant *grant, struct writer *w,
                 struct fail *why);
    /* Returns whether the entry still has the key of tunnel->kid and, if it is limited to places, is valid for the tunnel. NULL if
     * comparing the entry's kid is enough. */
    bool (*admits)(const struct token_entry *entry, const struct token_tunnel *tunnel);
};

/* Returns whether the key of any `jwt` entry signed the credential, or the credential names the kid of one, wherever that entry is
 * valid. */
bool jwt_is_ours(const struct token_check *check);

/* X(variable, name): all kinds. The first that recognises a credential checks it, so a kind with a narrower form must precede a kind
 * with a wider one. */
#define TOKEN_KINDS(X)    \
    SYSTEM_TOKEN_KINDS(X) \
    X(jwt, "jwt")         \
    X(static, "static")

#define X(variable, name) extern const struct token_kind token_kind_##variable;
TOKEN_KINDS(X)
#undef X

#endif
