/* SPDX-License-Identifier: MIT */
/*
 * time: times and durations are microseconds, uint64_t, of a clock that only goes forward (loop_clock); 250 * MILLISECOND.
 * What is meant on the wall clock says so: Unix seconds, or milliseconds as in a file of settings.
 */
#ifndef CELLGATE_BASE_OS_TIME_H
#define CELLGATE_BASE_OS_TIME_H

#include <stdint.h>

#define MILLISECOND UINT64_C(1000)
#define SECOND      UINT64_C(1000000)
#define MINUTE      (60 * SECOND)

#endif
