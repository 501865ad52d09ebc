/* SPDX-License-Identifier: MIT */
/* However an API server's bytes arrive, they are the same objects; whatever an object holds, it is refused, or is a
 * sandbox with a good key; what is kept of one that is too large says who it is; and a store says of each key what the last object of its name said. First byte: a list or a
 * watch, how it is cut, which sort. */
#include <stdlib.h>

#include "spoa/agent/directory/kubernetes/json.h"
#include "spoa/agent/directory/kubernetes/store.h"
#include "spoa/agent/directory/kubernetes/stream.h"
#include "spoa/base/table/hash.h"
#include "tests/fuzz/fuzz.h"

enum { MOST = 8 };

struct seen {
    uint64_t digest, objects;
    bool failed, whole;
    enum kubernetes_sort sort;
    enum kubernetes_form form;
    size_t step;
    struct kubernetes_store *store;
};

static uint8_t scratch_memory[16 * 1024];

static void on_changed(void *context, struct slice key)
{
    (void)context;
    CHECK(key.len > 0 && key.len <= 255);
}

static bool is_key(struct slice key)
{
    for (size_t i = 0; i < key.len; i++)
        if (key.at[i] <= 0x20 || key.at[i] == 0x7f)
            return false;
    return key.len > 0 && key.len <= 255;
}

/* One that can be told is found by its key as it says, unless another has the same. */
static void keep(struct seen *seen, const struct kubernetes_object *o)
{
    struct record record;
    size_t source;
    if (!kubernetes_store_put(seen->store, 0, seen->sort, o)) {
        CHECK(!kubernetes_store_whole(seen->store));
        return;
    }
    enum lookup found = kubernetes_store_find(seen->store, o->key, &record, &source);
    CHECK(found == LOOKUP_FOUND || kubernetes_store_ambiguous(seen->store, o->key));
    if (found == LOOKUP_FOUND && seen->sort != KUBERNETES_ENDPOINT_SLICES)
        CHECK(record.state == o->record.state && record.bare == o->record.bare && source == 0 &&
              slice_equal(record.worker.host, o->record.worker.host) &&
              slice_equal(record.access_sha256, o->record.access_sha256));
    CHECK(kubernetes_store_count(seen->store) <= MOST);
}

static void read_object(struct seen *seen, struct slice text)
{
    static const struct kubernetes_slices slices = {"example.com/sandbox", "http"};
    struct writer scratch = writer_of(scratch_memory, sizeof scratch_memory);
    struct kubernetes_object o;
    struct fail why = {""};
    enum kubernetes_reading reading = kubernetes_object_read(seen->sort, &slices, text, &scratch, &o, &why);
    CHECK((reading == KUBERNETES_ODD || reading == KUBERNETES_UNREADABLE) == (why.text[0] != '\0'));
    if (reading == KUBERNETES_UNREADABLE)
        return;
    CHECK(o.name.len > 0 && o.space.len > 0);
    if (reading == KUBERNETES_NONE)
        return kubernetes_store_remove(seen->store, 0, o.space, o.name);
    CHECK(is_key(o.key) && (o.record.access_sha256.len == 0 || o.record.access_sha256.len == 64));
    CHECK(o.record.state != RECORD_RUNNING || o.record.worker.kind == WORKER_HTTP);
    keep(seen, &o);
}

static struct slice inner(struct slice object, const char *key)
{
    struct slice value;
    return kubernetes_json_member(object, key, &value) ? value : (struct slice){NULL, 0};
}

/* What is of another type is none. */
static struct slice label(struct slice object)
{
    struct slice value = inner(inner(inner(object, "metadata"), "labels"), "example.com/sandbox");
    return value.len && value.at[0] == '"' ? value : (struct slice){NULL, 0};
}

static bool is_plain(struct slice value)
{
    return value.len == 0 || (value.at[0] == '{' && kubernetes_json_sound(value));
}

static bool is_same(struct slice a, struct slice b)
{
    return slice_present(a) == slice_present(b) && slice_equal(a, b);
}

/* Who it is is the same in what is kept of it, should it be too large. */
static void check_abridged(const struct seen *seen, struct slice text, bool event)
{
    static uint8_t more[16 * 1024];
    struct kubernetes_abridged a;
    struct kubernetes_object whole, kept;
    struct writer scratch = writer_of(scratch_memory, sizeof scratch_memory),
                  other = writer_of(more, sizeof more);
    enum kubernetes_event one = KUBERNETES_ERROR, two = KUBERNETES_ERROR;
    struct slice object = text, short_object;
    struct fail why;
    kubernetes_abridged_begin(&a, event, "example.com/sandbox");
    for (struct slice rest = text; rest.len; rest = slice_from(rest, seen->step))
        kubernetes_abridged_feed(&a, slice_sub(rest, 0, seen->step));
    struct slice all = short_object = kubernetes_abridged_text(&a);
    bool taken = !event || kubernetes_event_read(text, &one, &object, &why);
    struct slice metadata = inner(object, "metadata");
    if (!all.len || !taken || !kubernetes_json_sound(text) || !is_plain(object) || !is_plain(metadata) ||
        !is_plain(inner(metadata, "labels")))
        return;
    CHECK(kubernetes_json_sound(all));
    CHECK(!event || (kubernetes_event_read(all, &two, &short_object, &why) && one == two));
    CHECK(kubernetes_object_identify(object, &scratch, &whole) ==
          kubernetes_object_identify(short_object, &other, &kept));
    CHECK(is_same(whole.version, kept.version) && is_same(whole.space, kept.space) &&
          is_same(whole.name, kept.name));
    CHECK(is_same(label(object), label(short_object)));
}

static void on_object(void *context, struct slice text, bool too_large)
{
    static const struct hash_secret secret = {1, 2};
    struct seen *seen = context;
    enum kubernetes_event event;
    struct slice object = text;
    struct fail why;
    CHECK(!too_large && slice_present(text) && text.len <= KUBERNETES_OBJECT_MAX);
    check_abridged(seen, text, seen->form == KUBERNETES_WATCH);
    seen->digest = seen->digest * 31 + hash_keyed(&secret, text) + too_large;
    seen->objects++;
    if (text.len && kubernetes_event_read(text, &event, &object, &why) && event == KUBERNETES_ERROR) {
        unsigned code;
        char message[64];
        kubernetes_status_read(object, &code, message, sizeof message);
        CHECK(code <= 999 && strlen(message) < sizeof message);
    }
    if (text.len)
        read_object(seen, object);
}

static void on_member(void *context, struct slice key, struct slice value)
{
    static const struct hash_secret secret = {1, 2};
    struct seen *seen = context;
    CHECK(value.len <= KUBERNETES_MEMBER_MAX);
    seen->digest = seen->digest * 31 + hash_keyed(&secret, key) * 7 + hash_keyed(&secret, value);
}

static void read_stepwise(enum kubernetes_form form, struct slice all, size_t step, struct seen *seen)
{
    const struct kubernetes_store_options options = {.most = MOST, .sources = 1, .changed = on_changed};
    struct kubernetes_stream s = {.object = on_object, .member = on_member, .context = seen};
    struct fail why;
    seen->form = form;
    seen->step = step;
    seen->store = kubernetes_store_new(&options);
    CHECK(seen->store);
    kubernetes_store_list(seen->store, 0);
    kubernetes_stream_begin(&s, form);
    while (all.len && !seen->failed) {
        seen->failed = !kubernetes_stream_feed(&s, slice_sub(all, 0, step), &why);
        CHECK(buffer_len(&s.held) <= KUBERNETES_OBJECT_MAX);
        all = slice_from(all, step);
    }
    seen->whole = !seen->failed && kubernetes_stream_whole(&s);
    kubernetes_stream_free(&s);
    kubernetes_store_listed(seen->store, 0);
    kubernetes_store_list(seen->store, 0);
    kubernetes_store_listed(seen->store, 0);
    CHECK(kubernetes_store_count(seen->store) == 0 && kubernetes_store_whole(seen->store));
    kubernetes_store_free(seen->store);
}

static int read_input(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    enum kubernetes_form form = data[0] & 1 ? KUBERNETES_WATCH : KUBERNETES_LIST;
    struct seen whole = {.sort = (data[0] >> 1) % KUBERNETES_SORTS}, cut = {.sort = whole.sort};
    uint8_t *copy = malloc(size); /* a sanitizer sees the first byte that is read too far */
    CHECK(copy);
    memcpy(copy, data + 1, size - 1);
    read_stepwise(form, slice_of(copy, size - 1), size, &whole);
    read_stepwise(form, slice_of(copy, size - 1), 1 + data[0] % 16, &cut);
    CHECK(whole.failed == cut.failed && whole.objects == cut.objects && whole.digest == cut.digest &&
          whole.whole == cut.whole);
    free(copy);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
