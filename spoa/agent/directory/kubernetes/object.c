/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/kubernetes/object.h"

#include "spoa/agent/directory/kubernetes/json.h"
#include "spoa/agent/model/worker_url.h"
#include "spoa/agent/token/static.h"

#define POOL_LABEL     "agents.x-k8s.io/warm-pool-sandbox"
#define ENDPOINTS_NOTE "sandbox.opensandbox.io/endpoints"
#define SECRET_NOTE    "opensandbox.io/secure-access-token"

const struct kubernetes_resource kubernetes_resources[KUBERNETES_SORTS] = {
    [KUBERNETES_AGENT_SANDBOX] = {.name = "agent-sandbox",
                                  .group = "agents.x-k8s.io",
                                  .plural = "sandboxes",
                                  .versions = {"v1beta1", "v1alpha1"},
                                  .selector = "!" POOL_LABEL,
                                  .wake = {"{\"spec\":{\"operatingMode\":\"Running\"}}",
                                           "{\"spec\":{\"replicas\":1}}"}},
    [KUBERNETES_OPENSANDBOX] = {.name = "opensandbox",
                                .group = "sandbox.opensandbox.io",
                                .plural = "batchsandboxes",
                                .versions = {"v1alpha1"},
                                .wake = {"{\"spec\":{\"pause\":false}}"}},
    [KUBERNETES_ENDPOINT_SLICES] = {.name = "endpointslices",
                                    .group = "discovery.k8s.io",
                                    .plural = "endpointslices",
                                    .versions = {"v1", "v1beta1"}},
};

enum { UID_MAX = 64 }; /* bytes, as of a record's `uid` */

/* What is read of an object, and of its metadata. */
enum { METADATA, SPEC, STATUS, ENDPOINTS, PORTS, ROOT_MEMBERS };
enum { VERSION, SPACE, NAME, UID, LABELS, ANNOTATIONS, DELETED, METADATA_MEMBERS };

struct reading {
    const struct kubernetes_slices *slices;
    struct slice root[ROOT_MEMBERS], metadata[METADATA_MEMBERS]; /* each absent where it is missing */
    struct writer *scratch;
    struct kubernetes_object *object;
    struct fail *why;
    bool odd;
};

static void be_odd(struct reading *r, const char *what)
{
    if (!r->odd)
        fail(r->why, "%s", what);
    r->odd = true;
}

static struct slice member(struct slice object, const char *key)
{
    struct slice value = {NULL, 0};
    return kubernetes_json_member(object, key, &value) ? value : (struct slice){NULL, 0};
}

/* ---- who it is ---- */

static bool is_name(struct slice text, size_t most, bool dots)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.at[i];
        bool inner = i > 0 && i + 1 < text.len && (c == '-' || (dots && c == '.'));
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !inner)
            return false;
    }
    return text.len > 0 && text.len <= most;
}

static bool is_label_value(struct slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.at[i];
        bool alnum = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
        if (!alnum && !(i > 0 && i + 1 < text.len && (c == '-' || c == '.' || c == '_')))
            return false;
    }
    return text.len > 0 && text.len <= KUBERNETES_LABEL_MAX;
}

/* False: it is no object that is well-formed on the outside. */
static bool take_apart(struct slice text, struct slice root[ROOT_MEMBERS],
                       struct slice metadata[METADATA_MEMBERS])
{
    static const char *const of_root[] = {[METADATA] = "metadata",
                                          [SPEC] = "spec",
                                          [STATUS] = "status",
                                          [ENDPOINTS] = "endpoints",
                                          [PORTS] = "ports"};
    static const char *const of_metadata[] = {[VERSION] = "resourceVersion",
                                              [SPACE] = "namespace",
                                              [NAME] = "name",
                                              [UID] = "uid",
                                              [LABELS] = "labels",
                                              [ANNOTATIONS] = "annotations",
                                              [DELETED] = "deletionTimestamp"};
    bool sound = kubernetes_json_members(text, of_root, root, ROOT_MEMBERS);
    kubernetes_json_members(root[METADATA], of_metadata, metadata, METADATA_MEMBERS);
    return sound;
}

static bool identify(const struct slice metadata[METADATA_MEMBERS], struct writer *scratch,
                     struct kubernetes_object *o)
{
    *o = (struct kubernetes_object){.space = {NULL, 0}};
    if (!kubernetes_json_text(metadata[VERSION], scratch, &o->version))
        o->version = (struct slice){NULL, 0};
    return kubernetes_json_text(metadata[SPACE], scratch, &o->space) &&
           kubernetes_json_text(metadata[NAME], scratch, &o->name) &&
           is_name(o->space, KUBERNETES_LABEL_MAX, false) && is_name(o->name, KUBERNETES_NAME_MAX, true);
}

bool kubernetes_object_identify(struct slice text, struct writer *scratch, struct kubernetes_object *o)
{
    struct slice root[ROOT_MEMBERS], metadata[METADATA_MEMBERS];
    take_apart(text, root, metadata);
    return identify(metadata, scratch, o);
}

/* NAME, or NAMESPACE/NAME. */
static bool make_key(struct reading *r, struct slice name)
{
    size_t start = r->scratch->len;
    if (slice_is(r->object->space, "default")) {
        r->object->key = name;
        return true;
    }
    writer_put(r->scratch, r->object->space);
    writer_u8(r->scratch, '/');
    writer_put(r->scratch, name);
    r->object->key = slice_of(r->scratch->at + start, r->scratch->len - start);
    return !r->scratch->full && r->object->key.len <= 255;
}

/* ---- addresses ---- */

/* A worker without a port: the sandbox has an address of its own. */
static bool lead_to(struct reading *r, struct slice host, uint16_t port)
{
    struct worker worker = {.kind = WORKER_HTTP, .host = host, .port = port};
    if (!address_parse(host, &worker.addr) && !hostname_valid(host))
        return false;
    r->object->record.worker = worker;
    return true;
}

/* Of a string; without the dot that an absolute name may end in. */
static bool lead_to_text(struct reading *r, struct slice value)
{
    struct slice host;
    if (!kubernetes_json_text(value, r->scratch, &host))
        return false;
    if (host.len && host.at[host.len - 1] == '.')
        host.len--;
    return lead_to(r, host, 0);
}

/* ---- agent-sandbox ---- */

struct condition {
    bool there, is_true;
    struct slice reason;
};

static bool is_because(const struct condition *c, const char *reason)
{
    return c->there && !c->is_true && kubernetes_json_is(c->reason, reason);
}

/* Of several of a type the first. */
static void read_conditions(struct slice conditions, struct condition *ready, struct condition *finished)
{
    static const char *const keys[] = {"type", "status", "reason"};
    struct slice key, one, values[3];
    size_t cursor = 0;
    while (conditions.len && conditions.at[0] == '[' &&
           kubernetes_json_next(conditions, &cursor, &key, &one)) {
        kubernetes_json_members(one, keys, values, 3);
        struct condition *of = kubernetes_json_is(values[0], "Ready")      ? ready
                               : kubernetes_json_is(values[0], "Finished") ? finished
                                                                           : NULL;
        if (of && !of->there)
            *of = (struct condition){true, kubernetes_json_is(values[1], "True"), values[2]};
    }
}

static bool is_over(const struct condition *ready, const struct condition *finished)
{
    return finished->is_true || is_because(ready, "SandboxExpired") || is_because(ready, "PodSucceeded") ||
           is_because(ready, "PodFailed");
}

/* The condition Suspended may be left over: what is wanted says it. v1alpha1 has replicas for it. */
static bool is_suspended(struct slice spec)
{
    static const char *const keys[] = {"operatingMode", "replicas"};
    struct slice values[2];
    kubernetes_json_members(spec, keys, values, 2);
    return kubernetes_json_is(values[0], "Suspended") || slice_is(values[1], "0");
}

static void run_agent_sandbox(struct reading *r, struct slice addresses, struct slice name)
{
    struct slice key, first;
    size_t cursor = 0;
    bool has_address =
        addresses.len && addresses.at[0] == '[' && kubernetes_json_next(addresses, &cursor, &key, &first);
    struct address address;
    struct slice text;
    r->object->record.state = RECORD_WAKING;
    if (has_address && !(kubernetes_json_text(first, r->scratch, &text) && address_parse(text, &address)))
        be_odd(r, "status.podIPs is no list of addresses");
    else if (has_address ? lead_to(r, text, 0)
                         : kubernetes_json_is(name, "") || !name.len || lead_to_text(r, name))
        r->object->record.state =
            r->object->record.worker.kind == WORKER_NONE ? RECORD_WAKING : RECORD_RUNNING;
    else
        be_odd(r, "status.serviceFQDN is no name");
}

/* A record without a UID is good for no token that names one. */
static void read_uid(struct reading *r)
{
    struct slice uid;
    if (kubernetes_json_text(r->metadata[UID], r->scratch, &uid) && uid.len > 0 && uid.len <= UID_MAX)
        r->object->record.uid = uid;
}

static bool read_agent_sandbox(struct reading *r)
{
    static const char *const keys[] = {"conditions", "podIPs", "serviceFQDN"};
    struct record *record = &r->object->record;
    struct condition ready = {.there = false}, finished = {.there = false};
    struct slice status[3];
    if (!make_key(r, r->object->name))
        return false;
    read_uid(r);
    kubernetes_json_members(r->root[STATUS], keys, status, 3);
    read_conditions(status[0], &ready, &finished);
    if (is_over(&ready, &finished) || (r->metadata[DELETED].len && !ready.is_true))
        record->state = RECORD_STOPPED;
    else if (is_suspended(r->root[SPEC]))
        record->state = RECORD_SUSPENDED;
    else if (ready.is_true)
        run_agent_sandbox(r, status[1], status[2]);
    else
        record->state = RECORD_WAKING;
    return true;
}

/* ---- OpenSandbox ---- */

static struct slice annotation(const struct reading *r, const char *name)
{
    return member(r->metadata[ANNOTATIONS], name);
}

static bool is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Without blanks around it, as OpenSandbox's ingress reads it. */
static struct slice trimmed(struct slice text)
{
    while (text.len && is_blank(text.at[0]))
        text = slice_from(text, 1);
    while (text.len && is_blank(text.at[text.len - 1]))
        text.len--;
    return text;
}

/* A secret that cannot be read is not none: then nothing is known of the sandbox but its state. */
static void read_secret(struct reading *r)
{
    struct slice note = annotation(r, SECRET_NOTE), secret;
    uint8_t memory[65]; /* 64 digits, and room for the NUL of printf */
    struct writer digest = writer_of(memory, sizeof memory);
    size_t start = r->scratch->len;
    if (!note.len)
        return;
    if (!kubernetes_json_text(note, r->scratch, &secret)) {
        r->object->record.bare = true;
        be_odd(r, "annotation " SECRET_NOTE " is no text");
        return;
    }
    secret = trimmed(secret);
    r->object->record.bare = secret.len && (!token_static_digest(secret, &digest) || digest.full);
    explicit_bzero(r->scratch->at + start, r->scratch->len - start);
    r->scratch->len = start;
    writer_put(r->scratch, writer_slice(&digest));
    if (digest.len)
        r->object->record.access_sha256 = slice_of(r->scratch->at + start, r->scratch->len - start);
}

/* The annotation is a JSON list of addresses as a text; the first counts. */
static void run_batch_sandbox(struct reading *r)
{
    struct slice note = annotation(r, ENDPOINTS_NOTE), list, key, first, host;
    struct address address;
    size_t cursor = 0;
    r->object->record.state = RECORD_WAKING;
    if (!note.len || kubernetes_json_is(note, ""))
        return;
    if (!kubernetes_json_text(note, r->scratch, &list) || !kubernetes_json_sound(trimmed(list)) ||
        !kubernetes_json_next(trimmed(list), &cursor, &key, &first) || slice_present(key) ||
        !kubernetes_json_text(first, r->scratch, &host) || !address_parse(host, &address) ||
        !lead_to(r, host, 0))
        be_odd(r, "annotation " ENDPOINTS_NOTE " is no list of addresses");
    else
        r->object->record.state = RECORD_RUNNING;
}

static bool read_batch_sandbox(struct reading *r)
{
    struct record *record = &r->object->record;
    struct slice phase = member(r->root[STATUS], "phase");
    uint64_t ready = 0;
    r->object->key = r->object->name;
    read_secret(r);
    if (kubernetes_json_is(phase, "Failed"))
        record->state = RECORD_STOPPED;
    else if (kubernetes_json_is(phase, "Paused"))
        record->state = RECORD_SUSPENDED;
    else if (kubernetes_json_is(phase, "Pausing") || kubernetes_json_is(phase, "Resuming"))
        record->state = RECORD_WAKING;
    else if (kubernetes_json_u64(member(r->root[STATUS], "ready"), &ready) && ready >= 1)
        run_batch_sandbox(r);
    else
        record->state = r->metadata[DELETED].len ? RECORD_STOPPED : RECORD_WAKING;
    return true;
}

/* ---- EndpointSlices ---- */

enum { NOT_AT_ALL, SERVING, READY };

/* Not said is yes, and what serves while it ends is better than nothing. */
static int readiness(struct slice endpoint)
{
    struct slice conditions = member(endpoint, "conditions");
    struct slice ready = member(conditions, "ready"), serving = member(conditions, "serving");
    if (!ready.len || slice_is(ready, "true"))
        return READY;
    return slice_is(serving, "true") ? SERVING : NOT_AT_ALL;
}

/* The port of the name that the operator gave. False: there is none. */
static bool slice_port(const struct reading *r, uint16_t *port)
{
    struct slice ports = r->root[PORTS], key, one, name;
    uint64_t number;
    size_t cursor = 0;
    while (ports.len && ports.at[0] == '[' && kubernetes_json_next(ports, &cursor, &key, &one)) {
        name = member(one, "name");
        bool named = name.len ? kubernetes_json_is(name, r->slices->port) : !*r->slices->port;
        if (named && slice_u64(member(one, "port"), 65535, &number) && number) {
            *port = (uint16_t)number;
            return true;
        }
    }
    return false;
}

/* All agents choose the same: the lowest address of the readiest, whatever their order. */
static int better(int level, const struct address *a, int than, const struct address *b)
{
    return level != than ? level > than : memcmp(a, b, sizeof *a) < 0;
}

static void choose_endpoint(struct reading *r, uint16_t port)
{
    struct slice endpoints = r->root[ENDPOINTS], key, one, address, text;
    struct address parsed, best = {0};
    size_t cursor = 0;
    int level = NOT_AT_ALL;
    while (endpoints.len && endpoints.at[0] == '[' && kubernetes_json_next(endpoints, &cursor, &key, &one)) {
        size_t first = 0, scratch = r->scratch->len;
        int ready = readiness(one);
        struct slice addresses = member(one, "addresses");
        if (!ready || !addresses.len || addresses.at[0] != '[' ||
            !kubernetes_json_next(addresses, &first, &key, &address))
            continue;
        if (!kubernetes_json_text(address, r->scratch, &text) || !address_parse(text, &parsed)) {
            be_odd(r, "an endpoint has no address");
        } else if (level == NOT_AT_ALL || better(ready, &parsed, level, &best)) {
            level = ready;
            best = parsed;
            (void)lead_to(r, text, port);
            continue;
        }
        r->scratch->len = scratch;
    }
    r->object->record.state = level ? RECORD_RUNNING : RECORD_WAKING;
}

static bool read_endpoint_slice(struct reading *r)
{
    struct slice label = member(r->metadata[LABELS], r->slices->label), id;
    uint16_t port = 0;
    if (!kubernetes_json_text(label, r->scratch, &id) || !is_label_value(id) || !make_key(r, id))
        return false;
    r->object->record.state = RECORD_WAKING;
    if (r->metadata[DELETED].len)
        return false;
    if (r->slices->port && !slice_port(r, &port))
        be_odd(r, "it has no port of this name");
    else
        choose_endpoint(r, port);
    return true;
}

/* ---- any ---- */

static bool is_unclaimed(const struct reading *r)
{
    return member(r->metadata[LABELS], POOL_LABEL).len;
}

enum kubernetes_reading kubernetes_object_read(enum kubernetes_sort sort,
                                               const struct kubernetes_slices *slices, struct slice text,
                                               struct writer *scratch, struct kubernetes_object *object,
                                               struct fail *why)
{
    struct reading r = {.slices = slices, .scratch = scratch, .object = object, .why = why};
    bool sound = take_apart(text, r.root, r.metadata);
    if (!identify(r.metadata, scratch, object) || !sound) {
        fail(why, "its name cannot be told");
        return KUBERNETES_UNREADABLE;
    }
    bool any = sort == KUBERNETES_ENDPOINT_SLICES ? read_endpoint_slice(&r)
               : sort == KUBERNETES_OPENSANDBOX   ? read_batch_sandbox(&r)
                                                  : !is_unclaimed(&r) && read_agent_sandbox(&r);
    return !any ? KUBERNETES_NONE : r.odd ? KUBERNETES_ODD : KUBERNETES_FOUND;
}

bool kubernetes_event_read(struct slice text, enum kubernetes_event *event, struct slice *object,
                           struct fail *why)
{
    static const struct {
        const char *type;
        enum kubernetes_event event;
    } types[] = {{"ADDED", KUBERNETES_PUT},
                 {"MODIFIED", KUBERNETES_PUT},
                 {"DELETED", KUBERNETES_GONE},
                 {"BOOKMARK", KUBERNETES_BOOKMARK},
                 {"ERROR", KUBERNETES_ERROR}};
    static const char *const keys[] = {"type", "object"};
    struct slice values[2];
    bool sound = kubernetes_json_members(text, keys, values, 2);
    *object = values[1];
    for (size_t i = 0; sound && object->len && i < sizeof types / sizeof *types; i++)
        if (kubernetes_json_is(values[0], types[i].type)) {
            *event = types[i].event;
            return true;
        }
    return fail(why, "an event is none that is known");
}

void kubernetes_status_read(struct slice text, unsigned *code, char *message, size_t size)
{
    uint64_t number = 0;
    struct slice said = member(text, "message");
    size_t len = 0;
    *code = slice_u64(member(text, "code"), 999, &number) ? (unsigned)number : 0;
    for (size_t i = 1; i + 1 < said.len && len + 1 < size; i++)
        if (said.at[0] == '"' && said.at[i] >= 0x20 && said.at[i] < 0x7f && said.at[i] != '\\')
            message[len++] = (char)said.at[i];
    message[len] = '\0';
}
