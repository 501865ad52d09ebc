/* SPDX-License-Identifier: MIT */
/*
 * http_site: reads from a request the site that it addresses and the page that sent it. Every web page that a browser on this machine
 * shows can send requests to a listener on loopback. Host reveals a page whose name was pointed at this machine (DNS
 * rebinding), Origin reveals a page of another site.
 */
#ifndef CELLGATE_SERVICE_HTTP_SITE_H
#define CELLGATE_SERVICE_HTTP_SITE_H

#include "spoa/proto/http.h"

/* Header fields for every answer that a browser may show: no framing, no guessed content type, no reading by other sites. */
#define HTTP_SITE_FIELDS                  \
    "X-Content-Type-Options: nosniff\r\n" \
    "X-Frame-Options: DENY\r\n"           \
    "Referrer-Policy: no-referrer\r\n"    \
    "Cross-Origin-Resource-Policy: same-origin\r\n"

/* Returns a Host, or the authority of an Origin, without its port and without the brackets of IPv6. */
struct slice http_site_name(struct slice host);
/* Returns whether the name is `localhost` or an IP address, so that DNS cannot point it at this machine. */
bool http_site_is_unnamed(struct slice name);
/* Returns whether the name is `localhost`, in 127.0.0.0/8, or ::1. */
bool http_site_is_loopback(struct slice name);
/* Returns whether the request has no Origin, or one that is equal to its Host. */
bool http_site_is_own(const struct http_head *head);

#endif
