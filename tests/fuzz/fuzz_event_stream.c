/* SPDX-License-Identifier: MIT */
/* However its bytes arrive, a stream holds the same events; and no more is held than was allowed. First byte:
 * how the rest is cut. */

#include "spoa/base/table/hash.h"
#include "spoa/proto/event_stream.h"
#include "tests/fuzz/fuzz.h"

#define LIMIT 256

struct seen {
    uint64_t digest, events;
    bool failed;
    char id[EVENT_STREAM_ID_MAX + 1];
};

static void on_event(void *context, struct slice name, struct slice data)
{
    static const struct hash_secret secret = {1, 2};
    struct seen *seen = context;
    CHECK(data.len <= LIMIT && name.len <= EVENT_STREAM_NAME_MAX);
    seen->digest = seen->digest * 31 + hash_keyed(&secret, name) * 7 + hash_keyed(&secret, data);
    seen->events++;
}

static void read_stepwise(struct slice all, size_t step, struct seen *seen)
{
    struct event_stream s = {.event = on_event, .context = seen};
    struct fail why;
    event_stream_init(&s, LIMIT);
    while (all.len && !seen->failed) {
        seen->failed = !event_stream_feed(&s, slice_sub(all, 0, step), &why);
        CHECK(buffer_len(&s.line) <= LIMIT && buffer_len(&s.data) <= LIMIT);
        all = slice_from(all, step);
    }
    memcpy(seen->id, event_stream_last_id(&s), sizeof seen->id);
    event_stream_free(&s);
}

static int read_input(const uint8_t *data, size_t size)
{
    struct seen whole = {0}, cut = {0};
    if (size == 0)
        return 0;
    read_stepwise(slice_of(data + 1, size - 1), size, &whole);
    read_stepwise(slice_of(data + 1, size - 1), 1 + data[0] % 16, &cut);
    CHECK(whole.failed == cut.failed && whole.events == cut.events && whole.digest == cut.digest);
    CHECK(memcmp(whole.id, cut.id, strlen(whole.id) + 1) == 0);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
