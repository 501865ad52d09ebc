/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/kubernetes/object.h"

#include "spoa/agent/directory/kubernetes/json.h"
#include "spoa/agent/directory/kubernetes/reader.h"
#include "spoa/agent/model/worker_url.h"

enum { UID_MAX = 64 }; /* maximum length of a record's `uid` */

void kubernetes_be_odd(struct kubernetes_reader *r, const char *what)
{
    if (!r->odd)
        fail(r->why, "%s", what);
    r->odd = true;
}

struct slice kubernetes_value(struct slice object, const char *key)
{
    struct slice value = {NULL, 0};
    return kubernetes_json_member(object, key, &value) ? value : (struct slice){NULL, 0};
}

/* ---- identity ---- */

/* Returns whether the text is a DNS label, or with `dots` a DNS name (RFC 1123 section 2.1), in lower case. */
static bool is_name(struct slice text, size_t max, bool dots)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.at[i];
        bool inner = i > 0 && i + 1 < text.len && (c == '-' || (dots && c == '.'));
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !inner)
            return false;
    }
    return text.len > 0 && text.len <= max;
}

/* Splits an object into the members that are read. Returns false if the object is not well-formed on the outside. */
static bool take_apart(struct slice text, struct slice root[KUBERNETES_ROOTS],
                       struct slice metadata[KUBERNETES_METADATA_MEMBERS])
{
    static const char *const of_root[] = {[KUBERNETES_METADATA] = "metadata",
                                          [KUBERNETES_SPEC] = "spec",
                                          [KUBERNETES_STATUS] = "status",
                                          [KUBERNETES_ENDPOINTS] = "endpoints",
                                          [KUBERNETES_PORTS] = "ports"};
    static const char *const of_metadata[] = {[KUBERNETES_VERSION] = "resourceVersion",
                                              [KUBERNETES_NAMESPACE] = "namespace",
                                              [KUBERNETES_NAME] = "name",
                                              [KUBERNETES_UID] = "uid",
                                              [KUBERNETES_LABELS] = "labels",
                                              [KUBERNETES_ANNOTATIONS] = "annotations",
                                              [KUBERNETES_DELETED] = "deletionTimestamp"};
    bool sound = kubernetes_json_members(text, of_root, root, KUBERNETES_ROOTS);
    kubernetes_json_members(root[KUBERNETES_METADATA], of_metadata, metadata, KUBERNETES_METADATA_MEMBERS);
    return sound;
}

/* Reads the identity. Returns false if namespace or name are missing or not valid. */
static bool identify(const struct slice metadata[KUBERNETES_METADATA_MEMBERS], struct writer *scratch,
                     struct kubernetes_object *o)
{
    *o = (struct kubernetes_object){.space = {NULL, 0}};
    if (!kubernetes_json_text(metadata[KUBERNETES_VERSION], scratch, &o->version))
        o->version = (struct slice){NULL, 0};
    return kubernetes_json_text(metadata[KUBERNETES_NAMESPACE], scratch, &o->space) &&
           kubernetes_json_text(metadata[KUBERNETES_NAME], scratch, &o->name) &&
           is_name(o->space, KUBERNETES_LABEL_MAX, false) && is_name(o->name, KUBERNETES_NAME_MAX, true);
}

bool kubernetes_object_identify(struct slice text, struct writer *scratch, struct kubernetes_object *o)
{
    struct slice root[KUBERNETES_ROOTS], metadata[KUBERNETES_METADATA_MEMBERS];
    take_apart(text, root, metadata);
    return identify(metadata, scratch, o);
}

bool kubernetes_make_key(struct kubernetes_reader *r, struct slice name)
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

bool kubernetes_lead_to(struct kubernetes_reader *r, struct slice host, uint16_t port)
{
    struct worker worker = {.kind = WORKER_HTTP, .host = host, .port = port};
    if (!address_parse(host, &worker.addr) && !hostname_valid(host))
        return false;
    r->object->record.worker = worker;
    return true;
}

bool kubernetes_lead_to_text(struct kubernetes_reader *r, struct slice value)
{
    struct slice host;
    if (!kubernetes_json_text(value, r->scratch, &host))
        return false;
    if (host.len && host.at[host.len - 1] == '.')
        host.len--;
    return kubernetes_lead_to(r, host, 0);
}

void kubernetes_read_uid(struct kubernetes_reader *r)
{
    struct slice uid;
    if (kubernetes_json_text(r->metadata[KUBERNETES_UID], r->scratch, &uid) && uid.len > 0 &&
        uid.len <= UID_MAX)
        r->object->record.uid = uid;
}

/* ---- EndpointSlices ---- */

/* Readiness of an endpoint, better from left to right. */
enum { NOT_AT_ALL, SERVING, READY };

/* Returns the readiness of an endpoint. A missing condition counts as ready; an endpoint that still serves while it terminates is better
 * than none. */
static int readiness(struct slice endpoint)
{
    struct slice conditions = kubernetes_value(endpoint, "conditions");
    struct slice ready = kubernetes_value(conditions, "ready"),
                 serving = kubernetes_value(conditions, "serving");
    if (!ready.len || slice_is(ready, "true"))
        return READY;
    return slice_is(serving, "true") ? SERVING : NOT_AT_ALL;
}

/* Finds the port with the operator's name. Returns false if there is none. */
static bool slice_port(const struct kubernetes_reader *r, uint16_t *port)
{
    struct slice ports = r->root[KUBERNETES_PORTS], key, one, name;
    uint64_t number;
    size_t cursor = 0;
    while (ports.len && ports.at[0] == '[' && kubernetes_json_next(ports, &cursor, &key, &one)) {
        name = kubernetes_value(one, "name");
        bool named = name.len ? kubernetes_json_is(name, r->slices->port) : !*r->slices->port;
        if (named && slice_u64(kubernetes_value(one, "port"), 65535, &number) && number) {
            *port = (uint16_t)number;
            return true;
        }
    }
    return false;
}

/* Lets the record lead to the best endpoint: the readiest, and of several the lowest address, so that all agents choose the same. */
static void choose_endpoint(struct kubernetes_reader *r, uint16_t port)
{
    struct slice endpoints = r->root[KUBERNETES_ENDPOINTS], key, one, address, text;
    struct address parsed, best = {0};
    size_t cursor = 0;
    int level = NOT_AT_ALL;
    while (endpoints.len && endpoints.at[0] == '[' && kubernetes_json_next(endpoints, &cursor, &key, &one)) {
        size_t first = 0, scratch = r->scratch->len;
        int ready = readiness(one);
        struct slice addresses = kubernetes_value(one, "addresses");
        if (!ready || !addresses.len || addresses.at[0] != '[' ||
            !kubernetes_json_next(addresses, &first, &key, &address))
            continue;
        if (!kubernetes_json_text(address, r->scratch, &text) || !address_parse(text, &parsed)) {
            kubernetes_be_odd(r, "an endpoint has no address");
        } else if (level == NOT_AT_ALL || ready > level ||
                   (ready == level && memcmp(&parsed, &best, sizeof parsed) < 0)) {
            level = ready;
            best = parsed;
            (void)kubernetes_lead_to(r, text, port);
            continue;
        }
        r->scratch->len = scratch;
    }
    r->object->record.state = level ? RECORD_RUNNING : RECORD_WAKING;
}

/* Reads an EndpointSlice. Returns false if it names no sandbox, or is being deleted. */
static bool read_endpoint_slice(struct kubernetes_reader *r)
{
    struct slice label = kubernetes_value(r->metadata[KUBERNETES_LABELS], r->slices->label), id;
    uint16_t port = 0;
    if (!kubernetes_json_text(label, r->scratch, &id) || id.len == 0 || id.len > KUBERNETES_LABEL_MAX)
        return false;
    for (size_t i = 0; i < id.len; i++) { /* the syntax of a label's value */
        uint8_t c = id.at[i];
        bool alnum = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
        if (!alnum && !(i > 0 && i + 1 < id.len && (c == '-' || c == '.' || c == '_')))
            return false;
    }
    if (!kubernetes_make_key(r, id))
        return false;
    r->object->record.state = RECORD_WAKING;
    if (r->metadata[KUBERNETES_DELETED].len)
        return false;
    if (r->slices->port && !slice_port(r, &port))
        kubernetes_be_odd(r, "it has no port with this name");
    else
        choose_endpoint(r, port);
    return true;
}

static const struct kubernetes_resource kubernetes_resource_endpoint_slices = {
    .name = "endpointslices",
    .group = "discovery.k8s.io",
    .plural = "endpointslices",
    .versions = {"v1", "v1beta1"},
    .read = read_endpoint_slice,
};

/* ---- all sorts ---- */

const struct kubernetes_resource *kubernetes_resource_of(enum kubernetes_sort sort)
{
    static const struct kubernetes_resource *const all[] = {
#define X(sort, variable, word) [KUBERNETES_##sort] = &kubernetes_resource_##variable,
        SYSTEM_KUBERNETES_SORTS(X)
#undef X
            [KUBERNETES_ENDPOINT_SLICES] = &kubernetes_resource_endpoint_slices};
    return all[sort];
}

enum kubernetes_reading kubernetes_object_read(enum kubernetes_sort sort,
                                               const struct kubernetes_slices *slices, struct slice text,
                                               struct writer *scratch, struct kubernetes_object *object,
                                               struct fail *why)
{
    struct kubernetes_reader r = {.slices = slices, .scratch = scratch, .object = object, .why = why};
    bool sound = take_apart(text, r.root, r.metadata);
    if (!identify(r.metadata, scratch, object) || !sound) {
        fail(why, "its name cannot be read");
        return KUBERNETES_UNREADABLE;
    }
    bool any = kubernetes_resource_of(sort)->read(&r);
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
    return fail(why, "this kind of event is not known");
}

void kubernetes_status_read(struct slice text, unsigned *code, char *message, size_t size)
{
    uint64_t number = 0;
    struct slice said = kubernetes_value(text, "message");
    size_t len = 0;
    *code = slice_u64(kubernetes_value(text, "code"), 999, &number) ? (unsigned)number : 0;
    for (size_t i = 1; i + 1 < said.len && len + 1 < size; i++)
        if (said.at[0] == '"' && said.at[i] >= 0x20 && said.at[i] < 0x7f && said.at[i] != '\\')
            message[len++] = (char)said.at[i];
    message[len] = '\0';
}
