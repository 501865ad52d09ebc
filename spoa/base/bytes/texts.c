/* SPDX-License-Identifier: MIT */
#include "spoa/base/bytes/texts.h"

#include <stdlib.h>

bool texts_add(struct texts *texts, struct slice text)
{
    char **more = reallocarray(texts->at, texts->count + 1, sizeof *more);
    if (!more)
        return false;
    texts->at = more;
    if (!(more[texts->count] = slice_dup(text)))
        return false;
    texts->count++;
    return true;
}

void texts_free(struct texts *texts)
{
    for (size_t i = 0; i < texts->count; i++)
        free(texts->at[i]);
    free(texts->at);
    *texts = (struct texts){NULL, 0};
}
