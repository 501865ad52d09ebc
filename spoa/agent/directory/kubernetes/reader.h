/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_reader: one object of the API server while its record is read. The `read` of a resource (object.h) gets a reader and fills its
 * object; a resource of a foreign system is a file in its folder of spoa/agent/systems.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_READER_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_READER_H

#include "spoa/agent/directory/kubernetes/object.h"

/* Indices of the members of an object that are read. */
enum kubernetes_root {
    KUBERNETES_METADATA,
    KUBERNETES_SPEC,
    KUBERNETES_STATUS,
    KUBERNETES_ENDPOINTS,
    KUBERNETES_PORTS,
    KUBERNETES_ROOTS
};
/* Indices of the members of its metadata that are read. */
enum kubernetes_metadata {
    KUBERNETES_VERSION,
    KUBERNETES_NAMESPACE,
    KUBERNETES_NAME,
    KUBERNETES_UID,
    KUBERNETES_LABELS,
    KUBERNETES_ANNOTATIONS,
    KUBERNETES_DELETED,
    KUBERNETES_METADATA_MEMBERS
};

/* The state of reading one object. */
struct kubernetes_reader {
    const struct kubernetes_slices *slices; /* NULL unless the object is an EndpointSlice */
    /* members in their JSON form; a missing member is an absent slice */
    struct slice root[KUBERNETES_ROOTS], metadata[KUBERNETES_METADATA_MEMBERS];
    struct writer *scratch;
    struct kubernetes_object *object;
    struct fail *why;
    bool odd; /* kubernetes_be_odd was called */
};

/* Marks the object as one whose record leads nowhere. Of several reasons the first one is reported. */
void kubernetes_be_odd(struct kubernetes_reader *r, const char *what);
/* Returns a member of an object, or an absent slice. */
struct slice kubernetes_value(struct slice object, const char *key);
/* Sets the key, NAME, or NAMESPACE/NAME outside of `default`. Returns false if it is too long. */
bool kubernetes_make_key(struct kubernetes_reader *r, struct slice name) MUST_CHECK;
/* Lets the record lead to a host, an address or a name. With port 0 the sandbox has an address of its own. Returns false if `host` is
 * neither. */
bool kubernetes_lead_to(struct kubernetes_reader *r, struct slice host, uint16_t port);
/* Like kubernetes_lead_to, for a JSON string, without the dot that an absolute name may end in. */
bool kubernetes_lead_to_text(struct kubernetes_reader *r, struct slice value);
/* Reads metadata.uid into the record. A record without a UID matches no token that names one. */
void kubernetes_read_uid(struct kubernetes_reader *r);

#endif
