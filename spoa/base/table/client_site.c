/* SPDX-License-Identifier: MIT */
#include "spoa/base/table/client_site.h"

#include "spoa/base/text/cidr.h"

enum { HOST_V4 = 4, HOST_V6 = 8, SITE_V6 = 6 /* bytes */ };

struct address client_site(const struct address *source, const struct hash_secret *secret)
{
    const struct address own = cidr_unmapped(source);
    struct address site = {.family = own.family};
    if (own.family != 6) {
        memcpy(site.bytes, own.bytes, HOST_V4);
        return site;
    }
    memcpy(site.bytes, own.bytes, SITE_V6);
    site.bytes[HOST_V6 - 1] =
        (uint8_t)(hash_keyed(secret, slice_of(own.bytes, HOST_V6)) % CLIENT_SITE_OWNERS);
    return site;
}
