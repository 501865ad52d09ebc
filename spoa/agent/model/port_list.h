/* SPDX-License-Identifier: MIT */
/* port_list: reads ports and ranges of ports as the configuration and records write them, "80,8000-8999". */
#ifndef CELLGATE_AGENT_MODEL_PORT_LIST_H
#define CELLGATE_AGENT_MODEL_PORT_LIST_H

#include "spoa/base/bytes/slice.h"
#include "spoa/base/os/fail.h"

enum { PORT_RANGES_MAX = 16 };

struct port_range {
    uint16_t from, to;
};

struct port_list {
    struct port_range range[PORT_RANGES_MAX];
    size_t count;
};

/* Appends the ports of the text; an absent text has none. Returns false and *why, which begins with the defect, if the text is invalid. */
bool port_list_add(struct port_list *list, struct slice text, struct fail *why);
bool port_list_has(const struct port_list *list, uint16_t port);

#endif
