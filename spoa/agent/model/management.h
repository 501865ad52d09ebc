/* SPDX-License-Identifier: MIT */
/*
 * management: where in a sandbox it is managed: files, processes, terminals. What is served there is for needs
 * pty, exec and agent alone (destination.h). By the configuration here; a record may say otherwise (record.h).
 */
#ifndef CELLGATE_AGENT_MODEL_MANAGEMENT_H
#define CELLGATE_AGENT_MODEL_MANAGEMENT_H

#include "spoa/agent/model/port_list.h"

struct settings;

/* What the worker of a record that does not say serves, or a port. As in the configuration, behind UNSAID. */
enum serves { SERVES_UNSAID, SERVES_MANAGEMENT, SERVES_APPLICATION };

struct management {
    struct port_list ports; /* of sandboxes with an address of their own */
    enum serves serves;     /* a worker with a port of its own; never UNSAID */
    unsigned systems;       /* that are on; 0: none is named, so that a sandbox may run any of them */
};

/* False and *why with the position. */
bool management_read(const struct settings *settings, struct management *management, struct fail *why);
/* A text as of the key `management_ports`: "none", or ports. *why has no position. */
bool management_ports(struct slice text, struct port_list *ports, struct fail *why);
/* SERVES_UNSAID: no such word. */
enum serves serves_of(struct slice word);

#endif
