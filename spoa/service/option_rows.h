/* SPDX-License-Identifier: MIT */
/*
 * option_rows: what the rows of the configuration's table are written with. A room has the keys that configure it in a file of its own,
 * `*_keys.[ch]`: the struct of the values, and the rows. settings_keys.c puts the rooms' rows together.
 */
#ifndef CELLGATE_SERVICE_OPTION_ROWS_H
#define CELLGATE_SERVICE_OPTION_ROWS_H

#include "spoa/service/options.h"

#define SECONDS(n)    ((int64_t)(n)*OPTION_SECOND)
#define MINUTES(n)    ((int64_t)(n)*OPTION_MINUTE)
#define HOURS(n)      ((int64_t)(n)*OPTION_HOUR)
#define KIB(n)        ((int64_t)(n) << 10)
#define MIB(n)        ((int64_t)(n) << 20)
#define GIB(n)        ((int64_t)(n) << 30)
#define RANGE(lo, hi) .min = (lo), .max = (hi)
#define ANY           RANGE(0, 0)

enum { SETTINGS_THREADS_MAX = 64 };

/* The keys of one room. */
struct option_part {
    const struct option *rows; /* with offsets in the room's own struct */
    size_t count;
};
#define OPTION_PART(rows)                     \
    {                                         \
        (rows), sizeof(rows) / sizeof *(rows) \
    }

/* Checks one of a list of networks. Returns what the text must be, or NULL. */
const char *option_check_network(struct slice text);

#endif
