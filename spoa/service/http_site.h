/* SPDX-License-Identifier: MIT */
/*
 * http_site: what a request says of the site that it is meant for and of the page that sent it. A listener on loopback is
 * within reach of every web page that a browser on this machine shows. Host tells a page whose name was pointed at us (DNS
 * rebinding), Origin a page of another site.
 */
#ifndef CELLGATE_SERVICE_HTTP_SITE_H
#define CELLGATE_SERVICE_HTTP_SITE_H

#include "spoa/proto/http.h"

/* For every answer that a browser may come to show: it is not framed, not guessed at, and not read by other sites. */
#define HTTP_SITE_FIELDS                  \
    "X-Content-Type-Options: nosniff\r\n" \
    "X-Frame-Options: DENY\r\n"           \
    "Referrer-Policy: no-referrer\r\n"    \
    "Cross-Origin-Resource-Policy: same-origin\r\n"

/* A Host, or the authority of an Origin, without its port and without the brackets of IPv6. */
struct slice http_site_name(struct slice host);
/* `localhost` or an IP address: no name that DNS could point at us. */
bool http_site_is_unnamed(struct slice name);
/* `localhost`, 127.0.0.0/8 or ::1. */
bool http_site_is_loopback(struct slice name);
/* There is no Origin, or one that has the Host of the request itself. */
bool http_site_is_own(const struct http_head *head);

#endif
