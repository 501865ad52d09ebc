/* SPDX-License-Identifier: MIT */
/*
 * Lines of the input: a pattern, a subject, a template. Captures are bytes of the subject (or the pattern's
 * default), put back into the pattern they give the subject again, and a template of the same captures gives a
 * path. First byte: the kind of pattern.
 */
#include <stdlib.h>

#include "spoa/agent/route/path.h"
#include "spoa/agent/route/pattern.h"
#include "spoa/agent/route/template.h"
#include "spoa/base/bytes/writer.h"
#include "tests/fuzz/fuzz.h"

static bool inside(struct slice part, struct slice whole)
{
    return !slice_present(part) ||
           (slice_present(whole) && part.at >= whole.at && part.at + part.len <= whole.at + whole.len);
}

static struct slice decoded(struct slice s, uint8_t *memory)
{
    struct writer w = writer_of(memory, s.len);
    path_decode(s, &w);
    CHECK(!w.full);
    return writer_slice(&w);
}

/* Literals are compared decoded, so both sides are before they are compared. */
static void put_back(struct slice pattern, const struct capture_names *names, const struct captures *captures,
                     struct slice subject)
{
    struct fail why;
    struct template *template = template_new(pattern, names, &why);
    if (!template)
        return;
    size_t size = pattern.len + subject.len * 16 + 16;
    uint8_t *memory[3] = {malloc(size), malloc(size), malloc(subject.len + 1)};
    CHECK(memory[0] && memory[1] && memory[2]);
    struct writer w = writer_of(memory[0], size);
    template_write(template, captures, &w);
    CHECK(!w.full);
    CHECK(slice_equal(decoded(writer_slice(&w), memory[1]), decoded(subject, memory[2])));
    for (size_t i = 0; i < 3; i++)
        free(memory[i]);
    template_free(template);
}

/* most: bytes that a capture may have */
static void write_template(struct slice text, const struct capture_names *names,
                           const struct captures *captures, size_t most)
{
    struct fail why;
    struct template *template = template_new(text, names, &why);
    if (!template)
        return;
    size_t size = text.len * (most + 1) + 16;
    uint8_t *memory = malloc(size);
    CHECK(memory != NULL);
    struct writer w = writer_of(memory, size);
    template_write(template, captures, &w);
    CHECK(!w.full && w.len > 0 && w.at[0] == '/');
    free(memory);
    template_free(template);
}

static void match(enum pattern_kind kind, struct slice text, struct slice subject, struct slice to)
{
    struct capture_names names;
    struct captures captures;
    struct fail why;

    capture_names_init(&names);
    struct pattern *pattern = pattern_new(kind, text, &names, &why);
    if (!pattern)
        return;
    CHECK(slice_equal_nocase(pattern_text(pattern), text) && names.count <= CAPTURES_MAX);
    memset(&captures, 0, sizeof captures);
    enum pattern_result result = pattern_match(pattern, subject, &captures);
    if (result != PATTERN_MISS) {
        for (size_t i = 0; i < CAPTURES_MAX; i++)
            CHECK(inside(captures.value[i], subject) || inside(captures.value[i], pattern_text(pattern)));
        if (kind == PATTERN_PATH && result == PATTERN_MATCH)
            put_back(text, &names, &captures, subject);
        write_template(to, &names, &captures, subject.len + text.len);
    }
    pattern_free(pattern);
}

/* Climbing in the plainest reading is climbing. */
static void climb(struct slice tail)
{
    struct slice rest = tail, segment;
    int depth = 0, lowest = 0;
    while (slice_split(&rest, '/', &segment)) {
        depth += slice_is(segment, "..") ? -1 : slice_is(segment, ".") ? 0 : 1;
        lowest = depth < lowest ? depth : lowest;
    }
    if (lowest < 0)
        CHECK(path_climbs(tail));
}

static int read_input(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 4096)
        return 0;
    struct slice rest = slice_of(data + 1, size - 1), text, subject;
    enum pattern_kind kind = (enum pattern_kind)(data[0] % 3);
    if (!slice_split(&rest, '\n', &text) || !slice_split(&rest, '\n', &subject))
        return 0;
    if (kind == PATTERN_PATH && !path_valid(subject))
        return 0;
    match(kind, text, subject, rest);
    if (path_valid(subject))
        climb(slice_from(subject, 1));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
