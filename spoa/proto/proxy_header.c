/* SPDX-License-Identifier: MIT */
#include "spoa/proto/proxy_header.h"

enum {
    VERSION_2_PROXY = 0x21,
    TCP_OVER_IPV4 = 0x11,
    TCP_OVER_IPV6 = 0x21,
    TYPE_AUTHORITY = 2,
    TYPE_UNIQUE_ID = 5
};

/* Returns the bytes of a TLV: type, length, value; 0 for an absent value, which is not written. */
static size_t size_of(struct slice value)
{
    return slice_present(value) ? 3 + value.len : 0;
}

static void put_value(struct writer *w, uint8_t type, struct slice value)
{
    if (!slice_present(value))
        return;
    writer_u8(w, type);
    writer_be(w, value.len, 2);
    writer_put(w, value);
}

void proxy_header_write(struct writer *w, const struct address *from, const struct address *to, uint16_t port,
                        struct slice authority, struct slice unique_id)
{
    static const struct address unspecified;
    size_t bytes = to->family == 4 ? 4 : 16;

    if (authority.len > PROXY_AUTHORITY_MAX || unique_id.len > PROXY_UNIQUE_ID_MAX) {
        w->full = true;
        return;
    }
    writer_text(w, "\r\n\r\n");
    writer_put(w, slice_of("\0\r\nQUIT\n", 8));
    writer_u8(w, VERSION_2_PROXY);
    writer_u8(w, to->family == 4 ? TCP_OVER_IPV4 : TCP_OVER_IPV6);
    writer_be(w, 2 * bytes + 4 + size_of(authority) + size_of(unique_id), 2);
    writer_put(w, slice_of(from ? from->bytes : unspecified.bytes, bytes));
    writer_put(w, slice_of(to->bytes, bytes));
    writer_be(w, 0, 2);
    writer_be(w, port, 2);
    put_value(w, TYPE_AUTHORITY, authority);
    put_value(w, TYPE_UNIQUE_ID, unique_id);
}
