/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_object: what one object of the API server says of a sandbox: its key and its record. Pure. Its sorts
 * are those of the systems (SYSTEM_KUBERNETES_SORTS), and EndpointSlices that a label of the operator's names.
 *
 * Keys are as in kind.h: the name, or "namespace/name" outside of the namespace `default`, unless a sort says otherwise.
 */
#ifndef CELLGATE_AGENT_DIRECTORY_KUBERNETES_OBJECT_H
#define CELLGATE_AGENT_DIRECTORY_KUBERNETES_OBJECT_H

#include "spoa/agent/model/record.h"
#include "spoa/agent/systems/tables.h"
#include "spoa/base/bytes/writer.h"

enum kubernetes_sort {
#define X(sort, ...) KUBERNETES_##sort,
    SYSTEM_KUBERNETES_SORTS(X)
#undef X
        KUBERNETES_ENDPOINT_SLICES,
    KUBERNETES_SORTS
};

#define KUBERNETES_VERSIONS  2
#define KUBERNETES_NAME_MAX  253 /* of a name; a namespace has KUBERNETES_LABEL_MAX */
#define KUBERNETES_LABEL_MAX 63

struct kubernetes_reader; /* reader.h */

/* What is asked for where, and how it is read. */
struct kubernetes_resource {
    const char *name; /* in the configuration */
    const char *group, *plural;
    const char *versions[KUBERNETES_VERSIONS]; /* the one to prefer first; NULL: there is no other */
    const char *selector;                      /* in front of the operator's; NULL: none */
    const char *wake[KUBERNETES_VERSIONS];     /* the merge patch that wakes one; NULL: they are not woken */
    /* Fills the reader's object. Returns false if it is no sandbox. */
    bool (*read)(struct kubernetes_reader *r);
};

#define X(sort, variable, word) extern const struct kubernetes_resource kubernetes_resource_##variable;
SYSTEM_KUBERNETES_SORTS(X)
#undef X
const struct kubernetes_resource *kubernetes_resource_of(enum kubernetes_sort sort);

/* Of EndpointSlices: the label whose value is the sandbox's id, and the name of the port; NULL: the request's port. */
struct kubernetes_slices {
    const char *label, *port;
};

enum kubernetes_reading {
    KUBERNETES_FOUND,     /* key and record are set */
    KUBERNETES_ODD,       /* so they are, but *why says what is wrong: the record leads nowhere */
    KUBERNETES_NONE,      /* it is no sandbox (an unclaimed one of a pool); space and name are set */
    KUBERNETES_UNREADABLE /* not even its name can be told; *why */
};

struct kubernetes_object {
    struct slice space, name;
    struct slice version; /* resourceVersion, as opaque as it is; absent: it has none */
    struct slice key;
    struct record record;
};

/* Slices of *object point into text and scratch. */
enum kubernetes_reading kubernetes_object_read(enum kubernetes_sort sort,
                                               const struct kubernetes_slices *slices, struct slice text,
                                               struct writer *scratch, struct kubernetes_object *object,
                                               struct fail *why);
/* Its name, namespace and resourceVersion alone; of a bookmark the resourceVersion. */
bool kubernetes_object_identify(struct slice text, struct writer *scratch, struct kubernetes_object *object);

enum kubernetes_event { KUBERNETES_PUT, KUBERNETES_GONE, KUBERNETES_BOOKMARK, KUBERNETES_ERROR };
/* Takes a watch's event apart: its sort, and the object. False and *why: it is none. */
bool kubernetes_event_read(struct slice text, enum kubernetes_event *event, struct slice *object,
                           struct fail *why);

/* Of a Status, as errors are told: its code (0: it says none) and, for people, what it says, without control bytes. */
void kubernetes_status_read(struct slice text, unsigned *code, char *message, size_t size);

#endif
