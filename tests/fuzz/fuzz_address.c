/* SPDX-License-Identifier: MIT */
/* Addresses, networks, names and URLs of workers: what is taken is what inet_pton takes, and is read again as it
 * was written. */
#include <arpa/inet.h>
#include <stdlib.h>

#include "spoa/agent/model/worker_url.h"
#include "spoa/base/bytes/writer.h"
#include "spoa/base/text/cidr.h"
#include "tests/fuzz/fuzz.h"

static void as_address(struct slice text, const char *copy)
{
    struct address a;
    uint8_t bytes[16];
    struct cidr all;
    if (!address_parse(text, &a))
        return;
    CHECK(strlen(copy) == text.len && inet_pton(a.family == 4 ? AF_INET : AF_INET6, copy, bytes) == 1);
    CHECK(memcmp(bytes, a.bytes, a.family == 4 ? 4 : 16) == 0);
    CHECK(cidr_parse(text, &all) && cidr_contains(&all, &a));
}

static void as_network(struct slice text)
{
    struct cidr c;
    if (!cidr_parse(text, &c))
        return;
    CHECK(c.bits <= (c.network.family == 4 ? 32 : 128) && cidr_contains(&c, &c.network));
    if (c.bits > 0) { /* with its last bit turned it is in no such network */
        struct address other = c.network;
        other.bytes[(c.bits - 1) / 8] ^= (uint8_t)(0x80 >> (c.bits - 1) % 8);
        CHECK(!cidr_contains(&c, &other));
    }
}

static void as_url(struct slice text)
{
    struct worker w;
    struct fail why = {""};
    if (!worker_url_parse(text, &w, &why)) {
        CHECK(why.text[0] != '\0');
        return;
    }
    CHECK(w.kind != WORKER_NONE && w.host.len > 0);
    CHECK(w.host.at >= text.at && w.host.at + w.host.len <= text.at + text.len);
    CHECK(w.addr.family == 0 || w.addr.family == 4 || w.addr.family == 6);
}

static void as_name(struct slice text)
{
    if (!hostname_valid(text))
        return;
    CHECK(text.len > 0 && text.len <= 253);
    for (size_t i = 0; i < text.len; i++)
        CHECK(text.at[i] > ' ' && text.at[i] < 0x7f && !strchr("/:@?#%[]", text.at[i]));
}

static int read_input(const uint8_t *data, size_t size)
{
    char *copy = malloc(size + 1);
    if (!copy)
        return 0;
    if (size)
        memcpy(copy, data, size);
    copy[size] = '\0';
    struct slice text = slice_of(data, size);
    as_address(text, copy);
    as_network(text);
    as_url(text);
    as_name(text);
    free(copy);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
