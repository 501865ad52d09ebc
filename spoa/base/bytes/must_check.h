/* SPDX-License-Identifier: MIT */
/*
 * must_check: marks a function whose result says whether it worked. A caller that drops the result does not compile. Every function
 * of a header that can fail has the mark after its parameters: `bool buffer_put(...) MUST_CHECK;`.
 */
#ifndef CELLGATE_BASE_BYTES_MUST_CHECK_H
#define CELLGATE_BASE_BYTES_MUST_CHECK_H

#define MUST_CHECK __attribute__((warn_unused_result))

#endif
