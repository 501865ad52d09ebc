/* SPDX-License-Identifier: MIT */
/*
 * answer_cache: answers that were given a moment ago, for questions that are asked again: polls, assets, calls of one API.
 * One per thread, no locks, bounded.
 *
 * A question is found by a keyed hash of all its arguments but its id, and compared with them byte by byte. Its answer is
 * given again only if
 * - the decision said so, and until when (verdict.good_until): plain requests that were admitted, until their token
 *   expires, and nothing else;
 * - the policy, the records of a file, the addresses and the lists of revoked tokens are the same (its owner clears the
 *   cache when it takes another snapshot);
 * - a directory that is asked for each record has the very record still. It is asked as the decision would, so that what
 *   becomes of the record there (renewal, eviction, counters) is the same.
 * What counts, logs or reports decisions has the verdict as if it were made anew.
 *
 * While hardly any question comes again it rests most of the time, and looks now and then whether that has changed.
 */
#ifndef CELLGATE_AGENT_DECISION_THREAD_ANSWER_CACHE_H
#define CELLGATE_AGENT_DECISION_THREAD_ANSWER_CACHE_H

#include "spoa/agent/model/verdict.h"
#include "spoa/agent/state/snapshot.h"
#include "spoa/base/os/time.h"
#include "spoa/spop/spop.h"

struct answer_cache;

/* NULL when out of memory or without randomness. */
struct answer_cache *answer_cache_new(void);
void answer_cache_free(struct answer_cache *cache); /* NULL is fine */
/* Whatever was known: another snapshot is in force. */
void answer_cache_clear(struct answer_cache *cache);

/* A question of HAProxy, of which all slices point into its frame. */
struct answer_question {
    struct slice id;   /* absent: it has none, which is fine */
    struct slice rest; /* the arguments but the id, packed */
    uint64_t hash;
    /* no answer is looked for, and none kept: its id is not where it should be, or the cache rests */
    bool aside;
};

/* clock: loop_clock, or a little before. */
struct answer_question answer_question_of(struct answer_cache *cache, struct spop_args args, uint64_t clock);

/* Writes the answer and says its verdict, which is good until the cache is used again. NULL: the question has to be
 * decided; *finder, zeroed before but for what its owner sets, may have what the decision looks for. */
const struct verdict *answer_cache_give(struct answer_cache *cache, const struct answer_question *question,
                                        const struct snapshot *snapshot, struct snapshot_finder *finder,
                                        int64_t now, struct spop_actions *actions);

/* How it was answered: actions, and how many they are, by a decision with this finder. */
struct answer {
    struct slice bytes;
    unsigned count;
};
/* Keeps it from the second time on that the question is asked; or does not. */
void answer_cache_keep(struct answer_cache *cache, const struct answer_question *question,
                       const struct verdict *verdict, const struct answer *answer,
                       const struct snapshot_finder *finder);

#endif
