/* SPDX-License-Identifier: MIT */
/* decide_bound: compares a token that is bound to one request (grant.h) with the request that its worker would get. */
#include "spoa/agent/decision/decide_steps.h"

static uint8_t upper_hex(uint8_t c)
{
    return c >= 'a' && c <= 'f' ? (uint8_t)(c - 'a' + 'A') : c;
}

/* Compares a signed path, whose escapes are in upper case, with the path of the request. */
static bool is_signed_path(struct slice written, struct slice path)
{
    size_t escaped = 0; /* remaining bytes of an escape */
    if (written.len != path.len)
        return false;
    for (size_t i = 0; i < path.len; i++) {
        if ((escaped ? upper_hex(path.at[i]) : path.at[i]) != written.at[i])
            return false;
        escaped = path.at[i] == '%' ? 2 : escaped ? escaped - 1 : 0;
    }
    return true;
}

static const char *defect(const struct decision *d)
{
    if (d->route->via == ROUTE_RELAY)
        return "it is for one request, and a tunnel of the relay outlives that";
    if (d->route->service || !d->port)
        return "it is for a port, and the route names none";
    if (!slice_equal(d->grant.method, d->request->method))
        return "it is for another method";
    return is_signed_path(d->grant.path, d->verdict->path) ? NULL : "it is for another path";
}

bool decide_bound(struct decision *d)
{
    const char *why = d->granted && slice_present(d->grant.method) ? defect(d) : NULL;
    return !why || decide_deny(d, REFUSAL_not_granted, "token", why);
}
