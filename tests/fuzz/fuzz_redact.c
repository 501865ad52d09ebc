/* SPDX-License-Identifier: MIT */
/*
 * The plain parts and what was cut out cover a text in order; a credential in it, in each of the forms that are
 * known, never is in a plain part, wherever it stands. First byte: the form; the first line is put before it, the
 * rest behind it.
 */
#include <stdlib.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/service/redact.h"
#include "tests/fuzz/fuzz.h"

static const char *const forms[] = {"eyJhbGciSECRETSECRET",   "v1.SECRETSECRETSECRET",   " Bearer SECRET",
                                    " basic SECRET",          " cellgate.bearer.SECRET", "?x=SECRET",
                                    " cellgate_token=SECRET", " __Host-cellgate=SECRET", " bearer%20SECRET"};

static bool holds(struct slice text, const char *what)
{
    return text.len > 0 && memmem(text.at, text.len, what, strlen(what)) != NULL;
}

static int read_input(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct slice rest = slice_of(data + 1, size - 1), before, plain;
    slice_split(&rest, '\n', &before);
    if (holds(before, "SECRET") || holds(rest, "SECRET"))
        return 0;
    uint8_t *memory = malloc(size + 64);
    if (!memory)
        return 0;
    struct writer w = writer_of(memory, size + 64);
    writer_put(&w, before);
    writer_text(&w, forms[data[0] % (sizeof forms / sizeof *forms)]);
    writer_text(&w, " ");
    writer_put(&w, rest);
    struct slice text = writer_slice(&w);
    const uint8_t *at = text.at;
    bool secret;
    do {
        secret = redact_split(&text, &plain);
        if (plain.at != at || holds(plain, "SECRET") || text.at < plain.at + plain.len)
            abort();
        if (!secret && text.len > 0)
            abort();
        at = text.at;
    } while (secret);
    free(memory);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
