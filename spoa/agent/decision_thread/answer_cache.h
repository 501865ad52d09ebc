/* SPDX-License-Identifier: MIT */
/*
 * answer_cache: recent answers, for questions that repeat: polls, assets, calls of one API. One per thread, no locks, bounded.
 *
 * A keyed hash of all arguments but the id finds a question, and all bytes are compared. An answer is reused only if
 * - the decision allows it, until a given time (verdict.good_until): only plain, admitted requests, until their token expires;
 * - the policy, the records of a file, the addresses and the lists of revoked tokens are unchanged (the owner clears the cache when it
 *   takes another snapshot);
 * - a directory that is asked for each record still has exactly this record. It is asked as the decision would ask, so that renewal,
 *   eviction and counters there do not differ.
 * Code that counts, logs or reports decisions gets the verdict as if it were new.
 *
 * If hardly any question repeats, the cache pauses most of the time, and checks now and then whether that has changed.
 */
#ifndef CELLGATE_AGENT_DECISION_THREAD_ANSWER_CACHE_H
#define CELLGATE_AGENT_DECISION_THREAD_ANSWER_CACHE_H

#include "spoa/agent/model/verdict.h"
#include "spoa/agent/state/snapshot.h"
#include "spoa/base/os/time.h"
#include "spoa/spop/spop.h"

struct answer_cache;

/* Returns NULL if memory is short or there is no randomness. */
struct answer_cache *answer_cache_new(void);
void answer_cache_free(struct answer_cache *cache); /* cache may be NULL */
/* Drops all answers; call it when another snapshot takes effect. */
void answer_cache_clear(struct answer_cache *cache);

/* A question of HAProxy; all slices point into its frame. */
struct answer_question {
    struct slice id;   /* absent if the question has none, which is allowed */
    struct slice rest; /* packed arguments without the id */
    uint64_t hash;
    /* the cache is not used for this question: its id is not at the usual place, or the cache pauses */
    bool aside;
};

/* `clock` is loop_clock, or slightly earlier. */
struct answer_question answer_question_of(struct answer_cache *cache, struct spop_args args, uint64_t clock);

/* Writes a cached answer and returns its verdict, which is valid until the next call of the cache. Returns NULL if the question must be
 * decided; *finder (zeroed, except the members that its owner sets) may then hold a record that the decision needs. */
const struct verdict *answer_cache_give(struct answer_cache *cache, const struct answer_question *question,
                                        const struct snapshot *snapshot, struct snapshot_finder *finder,
                                        int64_t now, struct spop_actions *actions);

/* The answer of a decision: its packed actions, and their number. */
struct answer {
    struct slice bytes;
    unsigned count;
};
/* Caches an answer, if the question repeats and the decision allows it. `finder` is the decision's. */
void answer_cache_keep(struct answer_cache *cache, const struct answer_question *question,
                       const struct verdict *verdict, const struct answer *answer,
                       const struct snapshot_finder *finder);

#endif
