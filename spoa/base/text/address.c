/* SPDX-License-Identifier: MIT */
#include "spoa/base/text/address.h"

#include <arpa/inet.h>

void address_write(struct writer *w, const struct address *address)
{
    char text[INET6_ADDRSTRLEN];

    if (address->family == 4)
        writer_ip4(w, address->bytes);
    else if (address->family == 6)
        writer_text(w, inet_ntop(AF_INET6, address->bytes, text, sizeof text));
}
