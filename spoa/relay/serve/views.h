/* SPDX-License-Identifier: MIT */
/* views: what the admin listener shows of the relay and what the control socket lets operators do. */
#ifndef CELLGATE_RELAY_SERVE_VIEWS_H
#define CELLGATE_RELAY_SERVE_VIEWS_H

#include "spoa/relay/serve/relay.h"
#include "spoa/service/admin.h"
#include "spoa/service/control.h"

enum { VIEWS_PAGES = 9, VIEWS_COMMANDS = 7 };

/* The address of the relay's pointer is kept: pages say 503 while it is NULL. */
void views_pages(struct admin_page pages[static VIEWS_PAGES], struct relay **relay);
/* drain; keeper; upgrade {"same"}; kick {"id"}; list {"sandbox"}; status; top {"sort", "rows", "filter"}, all texts */
void views_commands(struct control_command commands[static VIEWS_COMMANDS], struct relay **relay);

#endif
