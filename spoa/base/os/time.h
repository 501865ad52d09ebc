/* SPDX-License-Identifier: MIT */
/*
 * time: units of time. A time or a duration is a number of microseconds in a uint64_t, of a clock that only goes forward
 * (loop_clock); 250 * MILLISECOND is a quarter of a second. A value of the wall clock, or in another unit, says so in its name or
 * its comment.
 */
#ifndef CELLGATE_BASE_OS_TIME_H
#define CELLGATE_BASE_OS_TIME_H

#include <stdint.h>

#define MILLISECOND UINT64_C(1000)
#define SECOND      UINT64_C(1000000)
#define MINUTE      (60 * SECOND)

#endif
