/* SPDX-License-Identifier: MIT */
#include "spoa/agent/directory/options.h"

#include <stdlib.h>

#include "spoa/agent/directory/file.h"

static const struct directory_kind *const kinds[] = {
    &directory_kind_file, &directory_kind_http,       &directory_kind_redis,
    &directory_kind_dns,  &directory_kind_kubernetes, NULL,
};

const struct directory_kind *directory_kind_at(size_t i)
{
    return i < sizeof kinds / sizeof *kinds ? kinds[i] : NULL;
}

/* Fills in the kind's options, and checks what the rows of its table cannot express. */
static bool read_own(const struct settings *s, struct directory_options *o, struct fail *why)
{
    const struct directory_kind *kind = o->kind;
    struct fail inner;
    o->own = calloc(1, kind->options_size);
    if (!o->own)
        return fail(why, "out of memory");
    if (!options_read(s->doc, s->directory, kind->options, kind->options_count, s->base_dir, o->own, why))
        return false;
    if (kind->check && !kind->check(o->own, &inner))
        return json_fail(s->doc, s->directory, why, "%s", inner.text);
    return options_readable(kind->options, kind->options_count, o->own, &inner) ||
           json_fail(s->doc, s->directory, why, "directory.%s", inner.text);
}

struct directory_options *directory_options_read(const struct settings *s, struct fail *why)
{
    struct directory_options *o = calloc(1, sizeof *o);
    if (!o) {
        fail(why, "out of memory");
        return NULL;
    }
    o->references = 1;
    struct slice name;
    bool named = json_text(json_member(s->directory, "kind"), &name);
    for (size_t i = 0; named && kinds[i] && !o->kind; i++)
        o->kind = slice_is(name, kinds[i]->name) ? kinds[i] : NULL;
    if (!o->kind)
        json_fail(s->doc, s->directory, why, "directory: kind is missing or none that is known");
    else if (read_own(s, o, why))
        return o;
    directory_options_release(o);
    return NULL;
}

struct directory_options *directory_options_retain(struct directory_options *o)
{
    references_add(&o->references);
    return o;
}

void directory_options_release(struct directory_options *o)
{
    if (!o || !references_drop(&o->references))
        return;
    if (o->own)
        options_free(o->kind->options, o->kind->options_count, o->own);
    free(o->own);
    free(o);
}

bool directory_options_equal(const struct directory_options *a, const struct directory_options *b)
{
    return a->kind == b->kind && options_equal(a->kind->options, a->kind->options_count, a->own, b->own);
}

const char *directory_options_file(const struct directory_options *o)
{
    return o->kind == &directory_kind_file
               ? ((const struct directory_file_options *)(const void *)o->own)->path
               : NULL;
}
