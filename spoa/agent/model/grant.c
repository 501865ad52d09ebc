/* SPDX-License-Identifier: MIT */
#include "spoa/agent/model/grant.h"

#include "spoa/base/bytes/reader.h"

static const struct {
    unsigned bit;
    const char *word;
} needs_table[] = {
#define X(name, bit, word) {bit, word},
    NEEDS(X)
#undef X
};

#define NEED_COUNT (sizeof(needs_table) / sizeof(*needs_table))

unsigned need_of(struct slice word)
{
    for (size_t i = 0; i < NEED_COUNT; i++)
        if (slice_is(word, needs_table[i].word))
            return needs_table[i].bit;
    return 0;
}

void need_text(unsigned needs, struct writer *w)
{
    const char *comma = "";
    for (size_t i = 0; i < NEED_COUNT; i++)
        if (needs & needs_table[i].bit) {
            writer_text(w, comma);
            writer_text(w, needs_table[i].word);
            comma = ",";
        }
}

void grant_put_port(struct writer *packed, uint16_t port)
{
    writer_be(packed, port, 2);
}

static bool port_at(struct slice ports, size_t i, uint16_t *port)
{
    struct reader r = reader_of(slice_sub(ports, 2 * i, 2));
    *port = (uint16_t)reader_be(&r, 2);
    return !r.failed;
}

bool grant_port(const struct grant *grant, size_t i, uint16_t *port)
{
    return port_at(grant->ports, i, port);
}

bool grant_ports_have(struct slice ports, uint16_t port)
{
    uint16_t allowed;
    for (size_t i = 0; port_at(ports, i, &allowed); i++)
        if (allowed == port)
            return true;
    return false;
}

bool grant_allows_port(const struct grant *grant, uint16_t port)
{
    return port == 0 || !slice_present(grant->ports) || grant_ports_have(grant->ports, port);
}
