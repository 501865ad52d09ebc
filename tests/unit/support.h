/* SPDX-License-Identifier: MIT */
/*
 * What every unit test may use: cmocka, memory that ends at a guard page, and allocations that fail on demand.
 */
#ifndef CELLGATE_TESTS_SUPPORT_H
#define CELLGATE_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* cmocka's macro fail() would hide the function of spoa/base/os/fail.h, and its fail_msg() is made of it */
#undef fail
#undef fail_msg
#define fail_msg(...) (print_error("ERROR: " __VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

#include "spoa/base/bytes/slice.h"

/* A copy of s whose last byte is the last of a page and is followed by one that must not be touched:
 * a parser that reads one byte too far dies. Freed with guarded_free. */
struct slice guarded(struct slice s);
void guarded_free(struct slice s);

/* The n-th allocation from now (1 = the next) fails, and all after it; 0 lets all succeed again. */
void alloc_fail_at(unsigned n);
/* How many allocations were asked for since alloc_fail_at was last called. */
unsigned alloc_count(void);

#endif
