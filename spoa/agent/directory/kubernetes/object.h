/* SPDX-License-Identifier: MIT */
/*
 * kubernetes_object: what one object of the API server says about a sandbox: its key and its record. Pure. The sorts of objects are those
 * of the systems (SYSTEM_KUBERNETES_SORTS), and EndpointSlices that have a label of the operator's choice.
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
#define KUBERNETES_NAME_MAX  253 /* maximum length of a name */
#define KUBERNETES_LABEL_MAX 63  /* maximum length of a namespace and of a label's value */

struct kubernetes_reader; /* reader.h */

/* One sort: the parts of a request for its objects, and how an object is read. */
struct kubernetes_resource {
    const char *name;                          /* in the configuration */
    const char *group, *plural;                /* value of `resources` in the configuration */
    const char *versions[KUBERNETES_VERSIONS]; /* preferred version first; NULL if there is no second one */
    const char *selector;                      /* label selector that comes before the operator's, or NULL */
    const char *wake[KUBERNETES_VERSIONS]; /* merge patch that wakes a sandbox, for each version, or NULL */
    /* Fills the reader's object (reader.h). Returns false if the object is not a sandbox. */
    bool (*read)(struct kubernetes_reader *r);
};

#define X(sort, variable, word) extern const struct kubernetes_resource kubernetes_resource_##variable;
SYSTEM_KUBERNETES_SORTS(X)
#undef X
/* Returns the table of a sort. */
const struct kubernetes_resource *kubernetes_resource_of(enum kubernetes_sort sort);

/* The operator's choices for EndpointSlices. */
struct kubernetes_slices {
    const char *label; /* key of the label whose value is the sandbox's id */
    const char *port;  /* name of the worker's port, or NULL for the request's port */
};

/* Result of reading an object. */
enum kubernetes_reading {
    KUBERNETES_FOUND,     /* key and record are set */
    KUBERNETES_ODD,       /* key and record are set; *why tells why the record leads nowhere */
    KUBERNETES_NONE,      /* not a sandbox (an unclaimed one of a pool); space and name are set */
    KUBERNETES_UNREADABLE /* not even the name could be read; *why is set */
};

/* Slices point into the object's text and the scratch memory. */
struct kubernetes_object {
    struct slice space, name;
    struct slice version; /* resourceVersion, an opaque text; absent if there is none */
    struct slice key;
    struct record record;
};

/* Reads an object; its slices point into `text` and `scratch`. */
enum kubernetes_reading kubernetes_object_read(enum kubernetes_sort sort,
                                               const struct kubernetes_slices *slices, struct slice text,
                                               struct writer *scratch, struct kubernetes_object *object,
                                               struct fail *why);
/* Reads only name, namespace and resourceVersion; a bookmark has only the last one. Returns false if a name is missing. */
bool kubernetes_object_identify(struct slice text, struct writer *scratch, struct kubernetes_object *object)
    MUST_CHECK;

enum kubernetes_event { KUBERNETES_PUT, KUBERNETES_GONE, KUBERNETES_BOOKMARK, KUBERNETES_ERROR };
/* Splits an event of a watch into its kind and its object. Returns false with *why if the text is not an event. */
bool kubernetes_event_read(struct slice text, enum kubernetes_event *event, struct slice *object,
                           struct fail *why) MUST_CHECK;

/* Reads a Status, the form of the API server's errors: its code, or 0, and its message without control bytes. */
void kubernetes_status_read(struct slice text, unsigned *code, char *message, size_t size);

#endif
