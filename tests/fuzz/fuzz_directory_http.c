/* SPDX-License-Identifier: MIT */
/* Whatever a control plane answers or announces: it is refused with a reason, or it is one thing that makes
 * sense. First byte: the status, or that the rest is an event. */
#include <stdlib.h>

#include "spoa/agent/directory/http_answer.h"
#include "tests/fuzz/fuzz.h"

static int told;

/* As of directory/kind.h: here they stand for the directory itself. */
void directory_changed(struct directory *directory, struct slice key, const struct record *record)
{
    CHECK(!directory && key.len > 0 && key.len <= DIRECTORY_HTTP_KEY_MAX && record);
    told++;
}

void directory_removed(struct directory *directory, struct slice key)
{
    CHECK(!directory && key.len > 0 && key.len <= DIRECTORY_HTTP_KEY_MAX);
    told++;
}

void directory_announced(struct directory *directory, struct slice key)
{
    directory_removed(directory, key);
}

bool directory_revoked_tokens(struct directory *directory, struct slice text, bool all, struct fail *why)
{
    struct revoked *list = NULL;
    (void)directory, (void)all;
    bool good = revoked_read(text, "list", 0, &list, NULL, NULL, why);
    revoked_release(list);
    told++;
    return good;
}

bool directory_revoked(struct directory *directory, int64_t not_before)
{
    CHECK(!directory && not_before >= 0);
    told++;
    return true;
}

static void read_event(struct slice rest, struct writer *scratch)
{
    struct slice name = slice_sub(rest, 0, slice_find(rest, '\n'));
    struct fail why = {""};
    told = 0;
    bool good = directory_http_event(NULL, name, slice_from(rest, name.len + 1), scratch, &why);
    CHECK(good ? told <= 1 : told == 0 && why.text[0]);
}

static void read_answer(unsigned status, struct slice rest, struct writer *scratch)
{
    struct slice head[3];
    for (int i = 0; i < 3; i++) {
        head[i] = slice_sub(rest, 0, slice_find(rest, '\n'));
        rest = slice_from(rest, head[i].len + 1);
    }
    struct directory_http_reply reply = {status, head[0], head[1], head[2], rest, false};
    struct directory_http_finding f;
    struct fail why = {""};
    directory_http_answer(&reply, scratch, &f, &why);
    CHECK((f.health == DIRECTORY_HTTP_GOOD) == (why.text[0] == '\0'));
    CHECK(f.health == DIRECTORY_HTTP_GOOD || f.outcome == LOOKUP_UNAVAILABLE);
    CHECK((f.ttl == 0 || (f.ttl >= SECOND && f.ttl <= 60 * MINUTE)) && f.pause <= 10 * SECOND);
    json_free(f.doc);
}

static int read_input(const uint8_t *data, size_t size)
{
    static const unsigned statuses[] = {200, 404, 410, 503, 429, 401, 302, 500};
    static uint8_t memory[128 * 1024];
    struct writer scratch = writer_of(memory, sizeof memory);
    if (size == 0)
        return 0;
    uint8_t *copy = malloc(size); /* a sanitizer sees the first byte that is read too far */
    CHECK(copy);
    memcpy(copy, data + 1, size - 1);
    if (data[0] & 0x80)
        read_event(slice_of(copy, size - 1), &scratch);
    else
        read_answer(statuses[data[0] % 8], slice_of(copy, size - 1), &scratch);
    free(copy);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
