/* SPDX-License-Identifier: MIT */
/*
 * management: the ports at which a sandbox is managed (files, processes, terminals). Only routes that need pty, exec or agent may reach
 * them (destination.h). The configuration names them here; a record can override them (record.h).
 */
#ifndef CELLGATE_AGENT_MODEL_MANAGEMENT_H
#define CELLGATE_AGENT_MODEL_MANAGEMENT_H

#include "spoa/agent/model/port_list.h"

struct settings;

/* The use of a port, or of a worker whose record does not name one. The words of the configuration follow after UNSAID. */
enum serves { SERVES_UNSAID, SERVES_MANAGEMENT, SERVES_APPLICATION };

struct management {
    struct port_list ports; /* management ports of sandboxes with an address of their own */
    enum serves serves;     /* use of a worker that has a port of its own; never UNSAID */
    unsigned
        systems; /* mask of the configured systems; 0 if none is named: a sandbox may then run any of them */
};

/* Returns false and *why, with the position, if the configuration is invalid. */
bool management_read(const struct settings *settings, struct management *management, struct fail *why);
/* Reads a text in the form of the key `management_ports`: "none", or ports. *why has no position. */
bool management_ports(struct slice text, struct port_list *ports, struct fail *why);
/* Returns the use that a word names, or SERVES_UNSAID if there is no such word. */
enum serves serves_of(struct slice word);

#endif
