/* SPDX-License-Identifier: MIT */
/* live_page: the relay's page, in three pieces, so that its policy allows nothing that stands in the page itself. It asks
 * /top and /stats every two seconds. */
#ifndef CELLGATE_RELAY_SERVE_LIVE_PAGE_H
#define CELLGATE_RELAY_SERVE_LIVE_PAGE_H

extern const char live_page[], live_style[], live_script[];

#endif
