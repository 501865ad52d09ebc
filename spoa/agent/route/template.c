/* SPDX-License-Identifier: MIT */
#include "spoa/agent/route/template.h"

#include <stdlib.h>

#include "spoa/agent/route/path.h"

enum { STEPS_MAX = 24 };

/* Literal text and the capture after it, if any. */
struct step {
    struct slice literal;
    bool has_capture;
    uint8_t capture;
};

struct template
{
    size_t steps;
    struct step step[STEPS_MAX];
    char *text;
    size_t len;
};

static bool capture_find(const struct capture_names *names, struct slice name, uint8_t *capture)
{
    if (name.len > 3 && slice_is(slice_from(name, name.len - 3), "..."))
        name.len -= 3;
    for (size_t i = 0; i < names->count; i++)
        if (slice_equal(names->name[i], name)) {
            *capture = (uint8_t)i;
            return true;
        }
    return false;
}

static bool template_compile(struct template *t, const struct capture_names *names, struct fail *why)
{
    struct slice left = slice_of(t->text, t->len);
    if (!path_valid(left))
        return fail(why, "a path begins with '/' and is of printable ASCII");
    while (left.len) {
        if (t->steps == STEPS_MAX)
            return fail(why, "the path is too long");
        struct step *step = &t->step[t->steps++];
        size_t brace = slice_find(left, '{');
        step->literal = slice_sub(left, 0, brace);
        if (brace == left.len)
            return true;
        size_t end = slice_find(left, '}');
        if (end < brace || end == left.len)
            return fail(why, "braces do not match");
        struct slice name = slice_sub(left, brace + 1, end - brace - 1);
        if (!capture_find(names, name, &step->capture))
            return fail(why, "nothing captures '{%.*s}'", SLICE_PRINTF(name));
        step->has_capture = true;
        left = slice_from(left, end + 1);
    }
    return true;
}

struct template *template_new(struct slice text, const struct capture_names *names, struct fail *why)
{
    struct template *t = calloc(1, sizeof *t);
    if (!t || !(t->text = slice_dup(text))) {
        fail(why, "out of memory");
        template_free(t);
        return NULL;
    }
    t->len = text.len;
    struct fail what;
    if (!template_compile(t, names, &what)) {
        fail(why, "'%.*s': %s", (int)text.len, (const char *)text.at, what.text);
        template_free(t);
        return NULL;
    }
    return t;
}

void template_free(struct template *template)
{
    if (!template)
        return;
    free(template->text);
    free(template);
}

struct slice template_text(const struct template *template)
{
    return slice_of(template->text, template->len);
}

void template_write(const struct template *template, const struct captures *captures, struct writer *w)
{
    size_t start = w->len;
    for (size_t i = 0; i < template->steps; i++) {
        const struct step *step = &template->step[i];
        writer_put(w, step->literal);
        if (!step->has_capture)
            continue;
        if (slice_present(captures->value[step->capture]))
            writer_put(w, captures->value[step->capture]);
        else if (!w->full && w->len > start + 1 && w->at[w->len - 1] == '/')
            w->len--;
    }
}
