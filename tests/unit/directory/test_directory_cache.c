/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "spoa/agent/directory/cache.h"

#define MS MILLISECOND

struct world {
    struct directory_cache *cache;
    uint64_t now;
    bool refuses;            /* look-ups cannot be begun */
    bool crowded;            /* who asks has too many of them on their way */
    struct fair_owner owner; /* who asked last, and who joined last */
    struct fair_owner joined;
    const char *pushed;              /* just then, if it is set */
    bool (*faster)(struct world *w); /* what another thread does between this one's clock and its lock */
    unsigned asked, told, works;
    uint64_t waiters; /* that were told last */
    char last_asked[256], last_told[256];
};

static uint64_t clock_of(void *context)
{
    struct world *w = context;
    bool (*faster)(struct world *) = w->faster;
    uint64_t now = w->now;
    w->faster = NULL;
    if (faster) {
        w->now++;
        assert_true(faster(w));
    }
    return now;
}

static struct record record_of(const char *host, int64_t epoch)
{
    return (struct record){
        .state = RECORD_RUNNING,
        .epoch = epoch,
        .worker = {.kind = WORKER_HTTP, .host = slice_text(host), .port = 80},
    };
}

static enum directory_ask on_look_up(void *context, struct slice key, struct fair_owner owner)
{
    struct world *w = context;
    struct record pushed = record_of(w->pushed, 0);
    if (w->refuses && w->pushed)
        directory_cache_changed(w->cache, key, &pushed);
    w->asked++;
    snprintf(w->last_asked, sizeof w->last_asked, "%.*s", SLICE_PRINTF(key));
    w->owner = owner;
    return w->refuses ? ASK_REFUSED : w->crowded ? ASK_CROWDED : ASK_BEGUN;
}

static void on_joined(void *context, struct slice key, struct fair_owner owner)
{
    (void)key;
    ((struct world *)context)->joined = owner;
}

static void on_notified(void *context, struct slice key, uint64_t waiters)
{
    struct world *w = context;
    w->waiters = waiters;
    w->told++;
    snprintf(w->last_told, sizeof w->last_told, "%.*s", SLICE_PRINTF(key));
}

static void on_work(void *context)
{
    ((struct world *)context)->works++;
}

static struct directory_cache_options options_of(struct world *w)
{
    return (struct directory_cache_options){.entries = 100,
                                            .ttl = 3 * SECOND,
                                            .stale = 600 * SECOND,
                                            .patience = 200 * MS,
                                            .clock = clock_of,
                                            .look_up = on_look_up,
                                            .join = on_joined,
                                            .notify = on_notified,
                                            .work = on_work,
                                            .context = w};
}

static void restart(struct world *w, const struct directory_cache_options *options)
{
    directory_cache_free(w->cache);
    w->cache = directory_cache_new(options);
    assert_non_null(w->cache);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    struct directory_cache_options options = options_of(w);
    w->now = 1000 * SECOND;
    restart(w, &options);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    directory_cache_free(w->cache);
    free(w);
    return 0;
}

static void answer_epoch(struct world *w, const char *key, const char *host, int64_t epoch)
{
    struct record record = record_of(host, epoch);
    directory_cache_answered(w->cache, slice_text(key), LOOKUP_FOUND, &record, 0);
}

static void answer(struct world *w, const char *key, const char *host)
{
    answer_epoch(w, key, host, 0);
}

static void answer_none(struct world *w, const char *key, enum lookup outcome)
{
    directory_cache_answered(w->cache, slice_text(key), outcome, NULL, 0);
}

/* "found HOST", "absent", "unavailable", "pending" */
static const char *find_or_last(struct world *w, const char *key, bool last)
{
    static char text[300];
    static const char *const names[] = {
        [LOOKUP_ABSENT] = "absent", [LOOKUP_UNAVAILABLE] = "unavailable", [LOOKUP_PENDING] = "pending"};
    struct shared_record *box;
    enum lookup found =
        directory_cache_find(w->cache, slice_text(key), last, 1, (struct fair_owner){0}, &box);
    if (found != LOOKUP_FOUND) {
        assert_null(box);
        return names[found];
    }
    snprintf(text, sizeof text, "found %.*s", SLICE_PRINTF(box->record.worker.host));
    shared_record_release(box);
    return text;
}

static const char *find(struct world *w, const char *key)
{
    return find_or_last(w, key, false);
}

static void learn(struct world *w, const char *key, const char *host)
{
    find(w, key);
    answer(w, key, host);
}

/* ---- asking ---- */

static void however_many_ask_there_is_one_look_up_and_all_are_told(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 1000; i++)
        assert_string_equal(find(w, "a"), "pending");
    assert_int_equal(w->asked, 1);
    assert_string_equal(w->last_asked, "a");
    answer(w, "a", "one");
    assert_int_equal(w->told, 1);
    assert_string_equal(w->last_told, "a");
    assert_string_equal(find(w, "a"), "found one");
    assert_int_equal(w->asked, 1);
    struct directory_cache_counts counts = directory_cache_counts(w->cache);
    assert_int_equal(counts.waits, 1000);
    assert_int_equal(counts.hits, 1);
    assert_int_equal(counts.look_ups, 1);
    assert_int_equal(counts.found, 1);
    assert_int_equal(counts.records, 1);
}

static bool asks_for_a(struct world *w)
{
    return strcmp(find(w, "a"), "pending") == 0;
}

static bool wakes_a(struct world *w)
{
    return directory_cache_may_wake(w->cache, SLICE_LITERAL("a"));
}

/* Else the answer of the second look-up could come behind a push, and would not be known to be older. */
static void who_read_the_clock_first_and_has_the_lock_second_asks_no_second_time(void **state)
{
    struct world *w = *state;
    w->faster = asks_for_a;
    assert_string_equal(find(w, "a"), "pending");
    assert_int_equal(w->asked, 1);
    answer(w, "a", "one");
    w->now += 10 * SECOND;
    w->faster = asks_for_a;
    assert_true(directory_cache_refresh(w->cache, SLICE_LITERAL("a"), 1, (struct fair_owner){0}));
    assert_int_equal(w->asked, 2);
    w->faster = wakes_a;
    assert_false(directory_cache_may_wake(w->cache, SLICE_LITERAL("a")));
}

static void how_long_a_look_up_took_is_said_once(void **state)
{
    struct world *w = *state;
    struct record record = record_of("one", 0);
    find(w, "a");
    w->now += 250 * MS;
    assert_int_equal(directory_cache_answered(w->cache, SLICE_LITERAL("a"), LOOKUP_FOUND, &record, 0),
                     250 * MS);
    assert_true(directory_cache_answered(w->cache, SLICE_LITERAL("a"), LOOKUP_FOUND, &record, 0) ==
                DIRECTORY_CACHE_UNASKED);
    assert_true(directory_cache_answered(w->cache, SLICE_LITERAL("b"), LOOKUP_FOUND, &record, 0) ==
                DIRECTORY_CACHE_UNASKED);
}

static void a_record_in_use_is_looked_up_again_without_anybody_waiting(void **state)
{
    struct world *w = *state;
    learn(w, "a", "one");
    w->now += 3 * SECOND - 1;
    assert_string_equal(find(w, "a"), "found one");
    assert_int_equal(w->asked, 1);
    w->now += 1;
    assert_string_equal(find(w, "a"), "found one");
    assert_string_equal(find(w, "a"), "found one");
    assert_int_equal(w->asked, 2);
    answer(w, "a", "two");
    assert_string_equal(find(w, "a"), "found two");
    assert_int_equal(w->told, 1); /* only who had to wait */
}

static void a_record_that_was_not_used_for_longer_is_waited_for(void **state)
{
    struct world *w = *state;
    learn(w, "a", "one");
    w->now += 6 * SECOND;
    assert_string_equal(find(w, "a"), "pending");
    answer(w, "a", "two");
    assert_int_equal(w->told, 2);
    assert_string_equal(find(w, "a"), "found two");
}

static void the_answer_may_say_how_long_it_is_good(void **state)
{
    struct world *w = *state;
    struct record record = record_of("one", 0);
    find(w, "a");
    directory_cache_answered(w->cache, SLICE_LITERAL("a"), LOOKUP_FOUND, &record, MINUTE);
    w->now += 59 * SECOND;
    assert_string_equal(find(w, "a"), "found one");
    assert_int_equal(w->asked, 1);
    w->now += SECOND;
    assert_string_equal(find(w, "a"), "found one");
    assert_int_equal(w->asked, 2);
    directory_cache_answered(w->cache, SLICE_LITERAL("a"), LOOKUP_FOUND, &record, 1);
    w->now += MS;
    find(w, "a");
    assert_int_equal(w->asked, 3);
}

static void while_changes_are_pushed_a_record_serves_longer(void **state)
{
    struct world *w = *state;
    directory_cache_health(w->cache, true, true);
    learn(w, "a", "one");
    w->now += 30 * SECOND - 1;
    assert_string_equal(find(w, "a"), "found one");
    assert_int_equal(w->asked, 1);
    directory_cache_health(w->cache, true, false);
    assert_string_equal(find(w, "a"), "pending");
    assert_int_equal(w->asked, 2);
}

static void absence_is_believed_for_a_second(void **state)
{
    struct world *w = *state;
    find(w, "a");
    answer_none(w, "a", LOOKUP_ABSENT);
    assert_int_equal(w->told, 1);
    w->now += SECOND - 1;
    assert_string_equal(find(w, "a"), "absent");
    w->now += 1;
    assert_string_equal(find(w, "a"), "pending");
    answer_none(w, "a", LOOKUP_UNAVAILABLE); /* no reason to say that there is none */
    assert_string_equal(find(w, "a"), "unavailable");
}

static void what_is_no_key_is_absent(void **state)
{
    struct world *w = *state;
    char key[257];
    memset(key, 'k', sizeof key);
    key[256] = '\0';
    assert_string_equal(find(w, ""), "absent");
    assert_string_equal(find(w, key), "absent");
    assert_int_equal(w->asked, 0);
    directory_cache_removed(w->cache, slice_text(key));
    directory_cache_announced(w->cache, slice_text(key));
    answer(w, key, "x");
    assert_false(directory_cache_pin(w->cache, slice_text(key), 1));
    directory_cache_unpin(w->cache, slice_text(key));
    assert_false(directory_cache_refresh(w->cache, slice_text(key), 1, (struct fair_owner){0}));
    assert_false(directory_cache_may_wake(w->cache, slice_text(key)));
    key[255] = '\0';
    assert_string_equal(find(w, key), "pending");
}

/* ---- a directory that does not answer ---- */

static void the_last_good_record_serves_until_it_is_stale(void **state)
{
    struct world *w = *state;
    learn(w, "a", "one");
    for (uint64_t age = 3; age < 600; age++) {
        w->now += SECOND;
        assert_string_equal(find(w, "a"), age < 600 ? "found one" : "unavailable");
        if (w->asked > 1)
            answer_none(w, "a", LOOKUP_UNAVAILABLE);
    }
    w->now += 3 * SECOND;
    find(w, "a");
    answer_none(w, "a", LOOKUP_UNAVAILABLE);
    assert_string_equal(find(w, "a"), "unavailable");
    assert_string_equal(find_or_last(w, "a", true), "unavailable");
    w->now += SECOND;
    assert_string_equal(find(w, "a"), "pending");
    answer(w, "a", "two");
    assert_string_equal(find(w, "a"), "found two");
    assert_true(directory_cache_counts(w->cache).stale > 500);
}

static void what_is_not_answered_is_asked_again_in_a_second_and_sooner_while_nothing_is(void **state)
{
    struct world *w = *state;
    find(w, "a");
    answer_none(w, "a", LOOKUP_UNAVAILABLE); /* others are answered */
    w->now += 999 * MS;
    assert_string_equal(find(w, "a"), "unavailable");
    w->now += MS;
    assert_string_equal(find(w, "a"), "pending");
    directory_cache_health(w->cache, false, false);
    answer_none(w, "a", LOOKUP_UNAVAILABLE);
    w->now += 99 * MS;
    assert_string_equal(find(w, "a"), "unavailable");
    w->now += MS;
    assert_string_equal(find(w, "a"), "pending");
    assert_int_equal(w->asked, 3);
}

static void nobody_waits_for_a_directory_that_is_known_not_to_answer(void **state)
{
    struct world *w = *state;
    learn(w, "a", "one");
    w->now += 60 * SECOND;
    directory_cache_health(w->cache, false, false);
    assert_string_equal(find(w, "a"), "found one");
    assert_int_equal(w->asked, 2);
    assert_int_equal(directory_cache_counts(w->cache).stale, 1);
}

static void only_the_first_waits_for_one_that_hangs(void **state)
{
    struct world *w = *state;
    learn(w, "a", "one");
    w->now += 60 * SECOND;
    assert_string_equal(find(w, "a"), "pending");
    w->now += 199 * MS;
    assert_string_equal(find(w, "a"), "pending");
    assert_string_equal(find_or_last(w, "a", true), "found one");
    w->now += MS;
    assert_string_equal(find(w, "a"), "found one");
    assert_int_equal(w->asked, 2);
    assert_string_equal(find(w, "b"), "pending");
    w->now += 200 * MS;
    assert_string_equal(find_or_last(w, "b", true), "pending"); /* nothing is known of it */
}

static void after_no_answer_it_is_asked_again_a_second_later(void **state)
{
    struct world *w = *state;
    find(w, "a");
    answer_none(w, "a", LOOKUP_UNAVAILABLE);
    assert_int_equal(w->told, 1);
    w->now += SECOND - 1;
    assert_string_equal(find(w, "a"), "unavailable");
    assert_int_equal(w->asked, 1);
    w->now += 1;
    assert_string_equal(find(w, "a"), "pending");
    assert_int_equal(w->asked, 2);
}

static void one_that_cannot_be_asked_now_is_asked_soon(void **state)
{
    struct world *w = *state;
    w->refuses = true;
    assert_string_equal(find(w, "a"), "unavailable");
    assert_string_equal(find(w, "a"), "unavailable");
    assert_int_equal(w->asked, 1);
    w->refuses = false;
    w->now += 100 * MS;
    assert_string_equal(find(w, "a"), "pending");
}

static void an_answer_that_never_comes_is_given_up(void **state)
{
    struct world *w = *state;
    find(w, "a");
    w->now += 60 * SECOND - 1;
    assert_string_equal(find(w, "a"), "pending");
    assert_int_equal(w->asked, 1);
    w->now += 1;
    assert_string_equal(find(w, "a"), "pending");
    assert_int_equal(w->asked, 2);
}

/* ---- what is not to be believed ---- */

static void an_epoch_that_goes_back_is_ignored_and_counted(void **state)
{
    struct world *w = *state;
    find(w, "a");
    answer_epoch(w, "a", "five", 5);
    struct record old = record_of("four", 4), none = record_of("none", 0), six = record_of("six", 6);
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &old);
    assert_string_equal(find(w, "a"), "found five");
    assert_int_equal(directory_cache_counts(w->cache).behind, 1);
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &six);
    assert_string_equal(find(w, "a"), "found six");
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &none);
    assert_string_equal(find(w, "a"), "found none");
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &six);
    directory_cache_removed(w->cache, SLICE_LITERAL("a"));
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &old); /* another life */
    assert_string_equal(find(w, "a"), "found four");
}

/* Which the directory says of a sandbox that moves or wakes; it has no epoch. */
static void an_epoch_that_goes_back_is_ignored_behind_a_state_alone_too(void **state)
{
    struct world *w = *state;
    const struct record moves = {.state = RECORD_MIGRATING, .bare = true};
    struct record old = record_of("four", 4), next = record_of("six", 6);
    find(w, "a");
    answer_epoch(w, "a", "five", 5);
    w->now += 3 * SECOND;
    find(w, "a");
    directory_cache_answered(w->cache, SLICE_LITERAL("a"), LOOKUP_FOUND, &moves, SECOND);
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &old);
    assert_string_equal(find(w, "a"), "found ");
    assert_int_equal(directory_cache_counts(w->cache).behind, 1);
    w->now += SECOND;
    find(w, "a");
    assert_int_equal(w->asked, 3); /* the state is good for as long as it was */
    answer_epoch(w, "a", "six", 6);
    assert_string_equal(find(w, "a"), "found six");
    directory_cache_answered(w->cache, SLICE_LITERAL("a"), LOOKUP_FOUND, &moves, SECOND);
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &next); /* the same again */
    assert_string_equal(find(w, "a"), "found six");
}

/* It is older than what is known, and says nothing of what is asked for or was announced meanwhile. */
static void a_push_whose_epoch_goes_back_overtakes_nothing(void **state)
{
    struct world *w = *state;
    struct record old = record_of("four", 4);
    find(w, "a");
    answer_epoch(w, "a", "five", 5);
    w->now += 3 * SECOND;
    assert_string_equal(find(w, "a"), "found five");
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &old);
    answer_epoch(w, "a", "six", 6);
    assert_string_equal(find(w, "a"), "found six");
    directory_cache_announced(w->cache, SLICE_LITERAL("a"));
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &old);
    assert_string_equal(find(w, "a"), "pending");
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &old);
    assert_int_equal(w->told, 1); /* the look-up is still on its way */
    answer_epoch(w, "a", "seven", 7);
    assert_int_equal(w->told, 2);
    assert_string_equal(find(w, "a"), "found seven");
    assert_int_equal(directory_cache_counts(w->cache).behind, 3);
}

static void where_absence_is_doubt_the_record_serves_30_seconds_more(void **state)
{
    struct world *w = *state;
    struct directory_cache_options options = options_of(w);
    options.absence_is_doubt = true;
    restart(w, &options);
    learn(w, "a", "one");
    w->asked = 0;
    w->now += 3 * SECOND;
    assert_string_equal(find(w, "a"), "found one");
    answer_none(w, "a", LOOKUP_ABSENT);
    for (unsigned i = 1; i < 30; i++) {
        w->now += SECOND;
        assert_string_equal(find(w, "a"), "found one");
        assert_int_equal(w->asked, 1 + i); /* asked each second */
        answer_none(w, "a", LOOKUP_ABSENT);
    }
    w->now += SECOND;
    find(w, "a");
    answer_none(w, "a", LOOKUP_ABSENT);
    assert_string_equal(find(w, "a"), "absent");
    w->now += SECOND;
    learn(w, "a", "two");
    assert_string_equal(find(w, "a"), "found two");
}

/* The directory was asked just before, and has not to be again for a second. */
static void after_30_seconds_of_doubt_it_is_asked_once_more_and_nobody_is_turned_away(void **state)
{
    struct world *w = *state;
    struct directory_cache_options options = options_of(w);
    options.absence_is_doubt = true;
    restart(w, &options);
    learn(w, "a", "one");
    w->now += 3 * SECOND;
    find(w, "a");
    answer_none(w, "a", LOOKUP_ABSENT);
    w->now += 29500 * MS;
    assert_string_equal(find(w, "a"), "found one");
    answer_none(w, "a", LOOKUP_ABSENT);
    w->now += 600 * MS;
    assert_string_equal(find(w, "a"), "pending");
    answer_none(w, "a", LOOKUP_ABSENT);
    assert_string_equal(find(w, "a"), "absent");
}

static void a_doubt_ends_when_the_record_is_there_again(void **state)
{
    struct world *w = *state;
    struct directory_cache_options options = options_of(w);
    options.absence_is_doubt = true;
    restart(w, &options);
    learn(w, "a", "one");
    w->now += 3 * SECOND;
    find(w, "a");
    answer_none(w, "a", LOOKUP_ABSENT);
    w->now += 29 * SECOND;
    find(w, "a");
    answer(w, "a", "one");
    w->now += 3 * SECOND;
    find(w, "a");
    answer_none(w, "a", LOOKUP_ABSENT);
    w->now += 29 * SECOND;
    assert_string_equal(find(w, "a"), "found one");
}

static void absence_that_was_announced_is_no_doubt(void **state)
{
    struct world *w = *state;
    struct directory_cache_options options = options_of(w);
    options.absence_is_doubt = true;
    restart(w, &options);
    learn(w, "a", "one");
    directory_cache_announced(w->cache, SLICE_LITERAL("a"));
    assert_string_equal(find(w, "a"), "pending");
    answer_none(w, "a", LOOKUP_ABSENT);
    assert_string_equal(find(w, "a"), "absent");
}

static void what_is_announced_while_the_record_is_in_doubt_is_waited_for(void **state)
{
    struct world *w = *state;
    struct directory_cache_options options = options_of(w);
    options.absence_is_doubt = true;
    restart(w, &options);
    learn(w, "a", "one");
    w->now += 3 * SECOND;
    find(w, "a");
    answer_none(w, "a", LOOKUP_ABSENT);
    assert_string_equal(find(w, "a"), "found one");
    directory_cache_announced(w->cache, SLICE_LITERAL("a"));
    assert_string_equal(find(w, "a"), "pending");
    answer_none(w, "a", LOOKUP_ABSENT);
    assert_string_equal(find(w, "a"), "absent");
}

/* ---- pushes ---- */

static void pushes_with_content_are_used_at_once_if_the_key_is(void **state)
{
    struct world *w = *state;
    struct record one = record_of("one", 1), two = record_of("two", 2);
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &one);
    assert_string_equal(find(w, "a"), "pending"); /* nobody had asked for it */
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &one);
    assert_int_equal(w->told, 1);
    assert_string_equal(find(w, "a"), "found one");
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &two);
    assert_int_equal(w->told, 1); /* nobody watches it */
    assert_string_equal(find(w, "a"), "found two");
    directory_cache_removed(w->cache, SLICE_LITERAL("a"));
    assert_string_equal(find(w, "a"), "absent");
    assert_int_equal(w->asked, 1);
}

static void a_push_overtakes_the_answer_of_an_earlier_look_up(void **state)
{
    struct world *w = *state;
    struct record two = record_of("two", 0);
    find(w, "a");
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &two);
    answer(w, "a", "one");
    assert_string_equal(find(w, "a"), "found two");
    assert_int_equal(w->told, 1);
}

static void a_push_overtakes_what_says_that_there_is_none_or_still_one(void **state)
{
    struct world *w = *state;
    struct record two = record_of("two", 0);
    learn(w, "a", "one");
    w->now += 3 * SECOND;
    find(w, "a");
    directory_cache_removed(w->cache, SLICE_LITERAL("a"));
    answer(w, "a", "one");
    assert_string_equal(find(w, "a"), "absent");
    w->now += SECOND;
    assert_string_equal(find(w, "a"), "pending");
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &two);
    answer_none(w, "a", LOOKUP_ABSENT);
    assert_string_equal(find(w, "a"), "found two");
    /* one answer is older than a push, not each that follows */
    w->now += 3 * SECOND;
    find(w, "a");
    answer(w, "a", "three");
    assert_string_equal(find(w, "a"), "found three");
}

static void a_push_does_not_overtake_a_later_look_up(void **state)
{
    struct world *w = *state;
    w->refuses = true;
    w->pushed = "pushed";
    assert_string_equal(find(w, "a"), "unavailable");
    assert_string_equal(find(w, "a"), "found pushed");
    w->refuses = false;
    w->now += 3 * SECOND;
    find(w, "a");
    answer(w, "a", "later");
    assert_string_equal(find(w, "a"), "found later");
}

static void an_announcement_during_a_look_up_is_looked_up_after_it(void **state)
{
    struct world *w = *state;
    assert_true(directory_cache_pin(w->cache, SLICE_LITERAL("a"), 1));
    find(w, "a");
    directory_cache_announced(w->cache, SLICE_LITERAL("a"));
    directory_cache_work(w->cache, true);
    assert_int_equal(w->asked, 1);
    w->works = 0;
    answer(w, "a", "one");
    assert_int_equal(w->works, 1);
    directory_cache_work(w->cache, true);
    assert_int_equal(w->asked, 2);
    assert_string_equal(find(w, "a"), "pending");
    answer(w, "a", "two");
    assert_string_equal(find(w, "a"), "found two");
    directory_cache_work(w->cache, true);
    assert_int_equal(w->asked, 2);
    directory_cache_unpin(w->cache, SLICE_LITERAL("a"));
}

static void what_is_pinned_is_looked_up_by_itself_and_told_about(void **state)
{
    struct world *w = *state;
    assert_true(directory_cache_pin(w->cache, SLICE_LITERAL("a"), 1));
    directory_cache_work(w->cache, false);
    assert_int_equal(w->asked, 1);
    answer(w, "a", "one");
    assert_int_equal(w->told, 1);
    w->now += 3 * SECOND;
    directory_cache_work(w->cache, true);
    assert_int_equal(w->asked, 1); /* nothing was announced */
    directory_cache_work(w->cache, false);
    assert_int_equal(w->asked, 2);
    answer(w, "a", "one");
    assert_int_equal(w->told, 1); /* nothing is new */
    directory_cache_announced(w->cache, SLICE_LITERAL("a"));
    assert_int_equal(w->works, 1);
    directory_cache_work(w->cache, true);
    assert_int_equal(w->asked, 3);
    answer(w, "a", "two");
    assert_int_equal(w->told, 2);
    directory_cache_unpin(w->cache, SLICE_LITERAL("a"));
    w->now += 3 * SECOND;
    directory_cache_work(w->cache, false);
    assert_int_equal(w->asked, 3);
}

static void after_pushes_may_have_been_lost_all_in_use_is_looked_up_again(void **state)
{
    struct world *w = *state;
    directory_cache_health(w->cache, true, true);
    assert_true(directory_cache_pin(w->cache, SLICE_LITERAL("a"), 1));
    learn(w, "a", "one");
    learn(w, "b", "one");
    assert_int_equal(w->asked, 2);
    w->now += MS;
    find(w, "c"); /* on its way meanwhile: may be older than what was lost */
    w->now += MS;
    directory_cache_missed(w->cache);
    assert_int_equal(w->works, 1);
    answer(w, "c", "one");
    assert_int_equal(w->asked, 3);
    directory_cache_work(w->cache, true);
    assert_int_equal(w->asked, 4);
    assert_string_equal(w->last_asked, "a");
    assert_string_equal(find(w, "b"), "found one"); /* nobody waits */
    assert_int_equal(w->asked, 5);
    assert_string_equal(find(w, "c"), "found one");
    assert_int_equal(w->asked, 6);
    directory_cache_unpin(w->cache, SLICE_LITERAL("a"));
}

/* What was lost may have been a revocation; that changes are pushed again does not bring it. */
static void what_was_learned_before_pushes_were_lost_serves_no_longer_for_those_that_come_again(void **state)
{
    struct world *w = *state;
    directory_cache_health(w->cache, true, true);
    learn(w, "a", "one");
    w->now += SECOND;
    directory_cache_health(w->cache, true, false);
    w->now += 10 * SECOND;
    directory_cache_missed(w->cache);
    directory_cache_health(w->cache, true, true);
    assert_string_equal(find(w, "a"), "pending");
    answer(w, "a", "two");
    w->now += 20 * SECOND;
    assert_string_equal(find(w, "a"), "found two");
    assert_int_equal(w->asked, 2);
}

static void a_directory_that_does_not_answer_is_not_asked_for_all_that_is_pinned(void **state)
{
    struct world *w = *state;
    char key[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "%d", i);
        assert_true(directory_cache_pin(w->cache, slice_text(key), 1));
    }
    directory_cache_health(w->cache, false, false);
    directory_cache_work(w->cache, false);
    assert_in_range(w->asked, 1, 32);
    directory_cache_health(w->cache, true, false);
    directory_cache_work(w->cache, false);
    assert_int_equal(w->asked, 1000);
}

static enum directory_ask answers_at_once(void *context, struct slice key, struct fair_owner owner)
{
    struct world *w = context;
    (void)owner;
    struct record record = record_of("one", 0);
    w->asked++;
    directory_cache_answered(w->cache, key, LOOKUP_FOUND, &record, 0);
    return ASK_BEGUN;
}

static void what_is_pinned_and_was_learned_at_once_is_not_looked_up_again_at_once(void **state)
{
    enum { KEYS = 1000, STEPS = 100 };
    struct world *w = *state;
    unsigned most = 0;
    char key[16];
    struct directory_cache_options options = options_of(w);
    options.look_up = answers_at_once;
    restart(w, &options);
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "%d", i);
        assert_true(directory_cache_pin(w->cache, slice_text(key), 1));
        learn(w, key, "one");
    }
    w->asked = 0;
    for (int i = 0; i < STEPS; i++) {
        unsigned before = w->asked;
        w->now += 3 * SECOND / STEPS;
        directory_cache_work(w->cache, false);
        most = w->asked - before > most ? w->asked - before : most;
        assert_true(w->asked == 0 || i >= STEPS * 3 / 4 - 1);
    }
    assert_int_equal(w->asked, KEYS); /* each in its time */
    assert_in_range(most, 1, KEYS / 5);
}

enum { WATCHED = 1000, AT_A_TIME = 32 };

/* The keys "0" to "999" are watched and known; then pushes may have been lost. */
static void miss_all_of_many(struct world *w)
{
    char key[16];
    for (int i = 0; i < WATCHED; i++) {
        snprintf(key, sizeof key, "%d", i);
        assert_true(directory_cache_pin(w->cache, slice_text(key), 1));
        learn(w, key, "one");
    }
    w->now += MS;
    w->asked = w->works = 0;
    directory_cache_missed(w->cache);
    assert_int_equal(w->works, 1);
    directory_cache_work(w->cache, true);
}

static void what_nobody_waits_for_leaves_the_directory_to_those_who_wait(void **state)
{
    struct world *w = *state;
    struct directory_cache_options options = options_of(w);
    options.entries = 100000; /* many stripes */
    restart(w, &options);
    miss_all_of_many(w);
    assert_int_equal(w->asked, AT_A_TIME);
    directory_cache_work(w->cache, false);
    assert_int_equal(w->asked, AT_A_TIME);
    assert_string_equal(find(w, "cold"), "pending");
    assert_int_equal(w->asked, AT_A_TIME + 1);
    directory_cache_announced(w->cache, SLICE_LITERAL("0"));
    directory_cache_announced(w->cache, SLICE_LITERAL("999"));
    assert_true(directory_cache_pin(w->cache, SLICE_LITERAL("new"), 1));
    directory_cache_work(w->cache, true);
    directory_cache_work(w->cache, false);
    assert_in_range(w->asked, AT_A_TIME + 2, AT_A_TIME + 4); /* one or two may be among the first */
}

static void each_answer_lets_the_next_one_be_looked_up(void **state)
{
    struct world *w = *state;
    miss_all_of_many(w);
    for (unsigned i = AT_A_TIME; i < WATCHED; i++) {
        assert_int_equal(w->asked, i);
        w->works = 0;
        answer(w, w->last_asked, "one");
        assert_int_equal(w->works, 1);
        directory_cache_work(w->cache, true);
    }
    assert_int_equal(w->asked, WATCHED); /* each once */
    directory_cache_work(w->cache, true);
    w->works = 0;
    answer(w, w->last_asked, "one");
    assert_int_equal(w->works, 0); /* there is no next one */
    directory_cache_work(w->cache, false);
    assert_int_equal(w->asked, WATCHED);
}

static void look_ups_that_hang_hold_up_no_other_for_long(void **state)
{
    struct world *w = *state;
    miss_all_of_many(w);
    w->now += SECOND - 1;
    directory_cache_work(w->cache, false);
    assert_int_equal(w->asked, AT_A_TIME);
    for (unsigned i = 1; i <= WATCHED / AT_A_TIME; i++) {
        w->now += i == 1 ? 1 : SECOND;
        directory_cache_work(w->cache, false);
        assert_int_equal(w->asked, (i + 1) * AT_A_TIME < WATCHED ? (i + 1) * AT_A_TIME : WATCHED);
    }
}

static unsigned times_asked[WATCHED];

static enum directory_ask counts_times(void *context, struct slice key, struct fair_owner owner)
{
    uint64_t number = 0;
    assert_true(slice_u64(key, WATCHED - 1, &number));
    times_asked[number]++;
    return on_look_up(context, key, owner);
}

/* All are broken: the first ones are due again long before it was the last one's turn. */
static void each_has_a_turn(struct world *w, size_t entries)
{
    struct directory_cache_options options = options_of(w);
    options.entries = entries;
    options.look_up = counts_times;
    restart(w, &options);
    memset(times_asked, 0, sizeof times_asked);
    miss_all_of_many(w);
    for (unsigned i = 0; i < 4 * WATCHED / AT_A_TIME; i++) {
        for (unsigned k = 0; k < WATCHED; k++) {
            char key[16];
            snprintf(key, sizeof key, "%u", k);
            answer_none(w, key, LOOKUP_UNAVAILABLE);
        }
        w->now += SECOND;
        directory_cache_work(w->cache, false);
    }
    for (unsigned k = 0; k < WATCHED; k++)
        assert_true(times_asked[k] > 1); /* once it was learned */
}

static void those_that_are_due_again_are_behind_those_that_had_no_turn_yet(void **state)
{
    each_has_a_turn(*state, 100);    /* one stripe */
    each_has_a_turn(*state, 100000); /* many */
}

/* What is on its way for one that was given a turn, did not use it, and answers after all, is not the other's. */
static void an_answer_that_comes_late_gives_back_no_turn_but_its_own(void **state)
{
    struct world *w = *state;
    char late[256];
    miss_all_of_many(w);
    snprintf(late, sizeof late, "%s", w->last_asked);
    w->now += SECOND;
    directory_cache_work(w->cache, false);
    assert_int_equal(w->asked, 2 * AT_A_TIME);
    w->works = 0;
    answer(w, late, "one");
    assert_int_equal(w->works, 0);
    directory_cache_work(w->cache, false);
    assert_int_equal(w->asked, 2 * AT_A_TIME);
}

static void a_redial_asks_afresh_and_is_told(void **state)
{
    struct world *w = *state;
    learn(w, "a", "one");
    w->told = 0;
    w->now += 50 * MS;
    assert_false(directory_cache_refresh(w->cache, SLICE_LITERAL("a"), 1, (struct fair_owner){0}));
    w->now += 50 * MS;
    assert_true(directory_cache_refresh(w->cache, SLICE_LITERAL("a"), 1, (struct fair_owner){0}));
    assert_true(directory_cache_refresh(w->cache, SLICE_LITERAL("a"), 1, (struct fair_owner){0}));
    assert_int_equal(w->asked, 2);
    assert_string_equal(find(w, "a"), "found one"); /* others do not wait */
    answer(w, "a", "one");
    assert_int_equal(w->told, 1);
    w->now += SECOND;
    w->refuses = true;
    assert_false(directory_cache_refresh(w->cache, SLICE_LITERAL("a"), 1, (struct fair_owner){0}));
}

static void a_redial_does_not_wait_for_a_directory_that_is_away(void **state)
{
    struct world *w = *state;
    learn(w, "a", "one");
    w->now += SECOND;
    assert_true(directory_cache_refresh(w->cache, SLICE_LITERAL("a"), 1, (struct fair_owner){0}));
    w->now += 200 * MS;
    assert_false(directory_cache_refresh(w->cache, SLICE_LITERAL("a"), 1, (struct fair_owner){0}));
    answer(w, "a", "one");
    w->now += SECOND;
    directory_cache_health(w->cache, false, false);
    assert_false(directory_cache_refresh(w->cache, SLICE_LITERAL("a"), 1, (struct fair_owner){0}));
    assert_int_equal(w->asked, 3); /* it is asked nevertheless */
    assert_true(directory_cache_refresh(w->cache, SLICE_LITERAL("b"), 1,
                                        (struct fair_owner){0})); /* nothing else is known */
}

static void waking_is_asked_for_once_in_five_seconds(void **state)
{
    struct world *w = *state;
    assert_true(directory_cache_may_wake(w->cache, SLICE_LITERAL("a")));
    assert_false(directory_cache_may_wake(w->cache, SLICE_LITERAL("a")));
    assert_true(directory_cache_may_wake(w->cache, SLICE_LITERAL("b")));
    w->now += 5 * SECOND;
    assert_true(directory_cache_may_wake(w->cache, SLICE_LITERAL("a")));
}

/* ---- memory ---- */

static void it_is_bounded_and_what_is_used_stays(void **state)
{
    struct world *w = *state;
    char key[32];
    assert_true(directory_cache_pin(w->cache, SLICE_LITERAL("pinned"), 1));
    learn(w, "pinned", "one");
    learn(w, "used", "one");
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "record-%d", i);
        learn(w, key, "one");
        snprintf(key, sizeof key, "absent-%d", i);
        find(w, key);
        answer_none(w, key, LOOKUP_ABSENT);
        assert_string_equal(find(w, "used"), "found one");
    }
    struct directory_cache_counts counts = directory_cache_counts(w->cache);
    assert_in_range(counts.records, 90, 101);
    assert_in_range(counts.empty, 16, 64);
    assert_int_equal(counts.pinned, 1);
    assert_int_equal(counts.evicted, 10000 + 2 - counts.records - counts.empty - counts.pinned);
    assert_string_equal(find(w, "pinned"), "found one");
    assert_true(counts.bytes < 200000);
    directory_cache_unpin(w->cache, SLICE_LITERAL("pinned"));
}

static void learn_large(struct world *w, const char *key)
{
    static uint8_t large[60000];
    struct record record = record_of("one", 0);
    record.headers = slice_of(large, sizeof large);
    find(w, key);
    directory_cache_answered(w->cache, slice_text(key), LOOKUP_FOUND, &record, 0);
}

static void large_records_are_bounded_by_their_bytes(void **state)
{
    struct world *w = *state;
    char key[32];
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "%d", i);
        learn_large(w, key);
    }
    struct directory_cache_counts counts = directory_cache_counts(w->cache);
    assert_true(counts.bytes <= 100 * 4096);
    assert_in_range(counts.records, 1, 8);
}

static void a_large_record_that_was_just_answered_stays_whatever_the_others_take(void **state)
{
    struct world *w = *state;
    char key[32];
    for (int i = 0; i < 8; i++) {
        snprintf(key, sizeof key, "watched-%d", i);
        assert_true(directory_cache_pin(w->cache, slice_text(key), 1));
        learn_large(w, key);
    }
    assert_true(directory_cache_counts(w->cache).bytes > 100 * 4096);
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "new-%d", i);
        assert_string_equal(find(w, key), "pending");
        learn_large(w, key);
        assert_string_equal(find(w, key), "found one");
    }
    assert_int_equal(directory_cache_counts(w->cache).records, 1);
    for (int i = 0; i < 8; i++) {
        snprintf(key, sizeof key, "watched-%d", i);
        directory_cache_unpin(w->cache, slice_text(key));
    }
    assert_true(directory_cache_counts(w->cache).bytes <= 100 * 4096);
}

/* Asks for keys that nobody has asked for, whose answers are still to come. Returns how many were refused. */
static int find_unknown(struct world *w, int from, int to)
{
    char key[32];
    int refused = 0;
    for (int i = from; i < to; i++) {
        snprintf(key, sizeof key, "unknown-%d", i);
        const char *found = find(w, key);
        refused += strcmp(found, "unavailable") == 0;
        assert_true(strcmp(found, "unavailable") == 0 || strcmp(found, "pending") == 0);
    }
    return refused;
}

static void a_look_up_on_its_way_is_not_given_up_for_others(void **state)
{
    struct world *w = *state;
    struct record moved = record_of("moved", 0);
    find_unknown(w, 0, 20);
    assert_string_equal(find(w, "a"), "pending");
    find_unknown(w, 20, 5000);
    unsigned asked = w->asked;
    assert_string_equal(find(w, "a"), "pending");
    assert_int_equal(w->asked, asked);
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &moved);
    assert_int_equal(w->told, 1);
    assert_string_equal(w->last_told, "a");
    answer(w, "a", "as it was before");
    assert_string_equal(find(w, "a"), "found moved");
}

static void a_record_that_is_looked_up_is_not_given_up_for_others(void **state)
{
    struct world *w = *state;
    char key[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "record-%d", i);
        learn(w, key, "one");
        if (i >= 20)
            continue;
        w->now += 100 * MS;
        assert_true(directory_cache_refresh(w->cache, slice_text(key), 1, (struct fair_owner){0}));
    }
    assert_in_range(directory_cache_counts(w->cache).records, 90, 100);
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "record-%d", i);
        unsigned told = w->told;
        answer(w, key, "two");
        assert_int_equal(w->told, told + 1);
        assert_string_equal(w->last_told, key);
    }
}

static void what_was_just_answered_stays_however_many_records_are_looked_up(void **state)
{
    struct world *w = *state;
    char key[32];
    for (int i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "record-%d", i);
        learn(w, key, "one");
        w->now += 100 * MS;
        assert_int_equal(directory_cache_refresh(w->cache, slice_text(key), 1, (struct fair_owner){0}),
                         i < 75);
    }
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "new-%d", i);
        learn(w, key, "one");
        assert_string_equal(find(w, key), "found one");
        assert_int_equal(directory_cache_counts(w->cache).records, 100);
    }
    w->now += 100 * MS;
    assert_false(directory_cache_refresh(w->cache, SLICE_LITERAL("new-39"), 1, (struct fair_owner){0}));
    answer(w, "record-0", "two");
    assert_true(directory_cache_refresh(w->cache, SLICE_LITERAL("new-39"), 1, (struct fair_owner){0}));
}

static void look_ups_of_what_is_unknown_are_bounded(void **state)
{
    struct world *w = *state;
    learn(w, "known", "one");
    assert_true(directory_cache_pin(w->cache, SLICE_LITERAL("pinned"), 1));
    int refused = find_unknown(w, 0, 5000);
    assert_in_range(5000 - refused, 128, 256);
    assert_int_equal(w->asked, 1 + 5000 - refused);
    struct directory_cache_counts counts = directory_cache_counts(w->cache);
    assert_in_range(counts.empty, 5000 - refused, 5000 - refused + 64);
    assert_int_equal(counts.crowded, refused);
    assert_int_equal(counts.unavailable, refused);
    assert_false(directory_cache_refresh(w->cache, SLICE_LITERAL("unknown-4999"), 1, (struct fair_owner){0}));
    /* each answer makes room for one */
    answer_none(w, "unknown-0", LOOKUP_UNAVAILABLE);
    assert_string_equal(find(w, "unknown-4998"), "pending");
    assert_string_equal(find(w, "unknown-4999"), "unavailable");
    /* who waited for one of them has yet to read the answer */
    answer_none(w, "unknown-1", LOOKUP_ABSENT);
    assert_string_equal(find(w, "unknown-4999"), "pending");
    assert_string_equal(find(w, "unknown-1"), "absent");
    /* who is known or watched has no part in it */
    w->now += 10 * SECOND;
    assert_string_equal(find(w, "known"), "pending");
    assert_string_equal(find(w, "pinned"), "pending");
    answer(w, "known", "two");
    assert_string_equal(find(w, "known"), "found two");
    directory_cache_unpin(w->cache, SLICE_LITERAL("pinned"));
}

static void look_ups_that_cannot_be_begun_make_room_for_others(void **state)
{
    struct world *w = *state;
    w->refuses = true;
    assert_int_equal(find_unknown(w, 0, 5000), 5000);
    assert_int_equal(w->asked, 5000);
    assert_int_equal(directory_cache_counts(w->cache).crowded, 0);
    w->refuses = false;
    assert_string_equal(find(w, "a"), "pending");
}

static void answers_that_never_come_make_room_for_others(void **state)
{
    struct world *w = *state;
    assert_true(find_unknown(w, 0, 5000) > 0);
    w->now += 60 * SECOND - 1;
    assert_int_equal(find_unknown(w, 5000, 5001), 1);
    w->now += 1;
    assert_int_equal(find_unknown(w, 5001, 5101), 0);
    assert_in_range(directory_cache_counts(w->cache).empty, 128, 256);
}

static void a_record_lives_on_with_who_holds_it(void **state)
{
    struct world *w = *state;
    struct shared_record *box;
    struct record one = record_of("one", 1);
    one.headers = SLICE_LITERAL("packed");
    find(w, "a");
    directory_cache_answered(w->cache, SLICE_LITERAL("a"), LOOKUP_FOUND, &one, 0);
    assert_int_equal(
        directory_cache_find(w->cache, SLICE_LITERAL("a"), false, 1, (struct fair_owner){0}, &box),
        LOOKUP_FOUND);
    directory_cache_removed(w->cache, SLICE_LITERAL("a"));
    assert_true(slice_is(box->record.worker.host, "one"));
    assert_true(slice_is(box->record.headers, "packed"));
    assert_false(slice_present(box->record.org));
    shared_record_release(box);
}

static void without_memory_nothing_is_known_and_nothing_is_lost(void **state)
{
    struct world *w = *state;
    struct record two = record_of("two", 0);
    alloc_fail_at(1);
    assert_string_equal(find(w, "a"), "unavailable");
    assert_false(directory_cache_pin(w->cache, SLICE_LITERAL("a"), 1));
    alloc_fail_at(0);
    learn(w, "a", "one");
    alloc_fail_at(1);
    directory_cache_changed(w->cache, SLICE_LITERAL("a"), &two); /* is looked up again instead */
    alloc_fail_at(0);
    assert_string_equal(find(w, "a"), "pending");
    alloc_fail_at(1);
    answer(w, "a", "two");
    alloc_fail_at(0);
    assert_string_equal(find(w, "a"), "found one");
    struct directory_cache_options options = options_of(w);
    alloc_fail_at(1);
    assert_null(directory_cache_new(&options));
    alloc_fail_at(0);
}

/* ---- threads ---- */

struct crowd {
    struct directory_cache *cache;
    atomic_uint look_ups, news;
    _Atomic uint64_t now;
};

static uint64_t crowd_clock(void *context)
{
    return 1000 * SECOND +
           atomic_fetch_add_explicit(&((struct crowd *)context)->now, 100 * MS, memory_order_relaxed) +
           100 * MS;
}

static enum directory_ask crowd_look_up(void *context, struct slice key, struct fair_owner owner)
{
    (void)key, (void)owner;
    bool good =
        (atomic_fetch_add_explicit(&((struct crowd *)context)->look_ups, 1, memory_order_relaxed) + 1) % 7;
    return good ? ASK_BEGUN : ASK_REFUSED;
}

static void crowd_notified(void *context, struct slice key, uint64_t waiters)
{
    (void)waiters;
    (void)key;
    atomic_fetch_add_explicit(&((struct crowd *)context)->news, 1, memory_order_relaxed);
}

static void crowd_work(void *context)
{
    (void)context;
}

static void one_of_all(struct crowd *crowd, struct slice key, unsigned what)
{
    struct directory_cache *c = crowd->cache;
    struct record record = record_of("host", (int64_t)what);
    struct shared_record *box;
    switch (what % 12) {
    case 0:
        directory_cache_changed(c, key, &record);
        break;
    case 1:
        directory_cache_removed(c, key);
        break;
    case 2:
        directory_cache_announced(c, key);
        break;
    case 3:
        if (directory_cache_pin(c, key, 1)) {
            directory_cache_work(c, true);
            directory_cache_unpin(c, key);
        }
        break;
    case 4:
        directory_cache_refresh(c, key, 1, (struct fair_owner){0});
        break;
    case 5:
        directory_cache_missed(c);
        break;
    case 6:
        directory_cache_health(c, what % 24 == 6, what % 36 == 6);
        break;
    case 7:
    case 8:
        directory_cache_answered(c, key, what % 3 ? LOOKUP_FOUND : LOOKUP_ABSENT, &record, 0);
        break;
    default:
        if (directory_cache_find(c, key, what % 2, 1, (struct fair_owner){0}, &box) == LOOKUP_FOUND)
            assert_true(slice_is(box->record.worker.host, "host"));
        shared_record_release(box);
    }
}

static void *run_crowd(void *context)
{
    struct crowd *crowd = context;
    unsigned seed = 1;
    for (int i = 0; i < 20000; i++) {
        char key[16];
        seed = seed * 1664525u + 1013904223u;
        snprintf(key, sizeof key, "%u", seed >> 8 & 127);
        one_of_all(crowd, slice_text(key), seed >> 16);
    }
    return NULL;
}

static void threads_may_do_everything_at_once(void **state)
{
    (void)state;
    struct crowd crowd = {.cache = NULL};
    const struct directory_cache_options options = {.entries = 64,
                                                    .ttl = 3 * SECOND,
                                                    .stale = 600 * SECOND,
                                                    .patience = 200 * MS,
                                                    .clock = crowd_clock,
                                                    .look_up = crowd_look_up,
                                                    .notify = crowd_notified,
                                                    .work = crowd_work,
                                                    .context = &crowd};
    pthread_t threads[4];
    crowd.cache = directory_cache_new(&options);
    assert_non_null(crowd.cache);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_crowd, &crowd), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    struct directory_cache_counts counts = directory_cache_counts(crowd.cache);
    assert_int_equal(counts.pinned, 0);
    assert_true(counts.records <= 64);
    assert_true(crowd.look_ups > 0 && crowd.news > 0);
    directory_cache_free(crowd.cache);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* ---- who has yet to prove that he may know ---- */

static enum lookup find_alike(struct world *w, const char *key, bool last)
{
    struct shared_record *box;
    enum lookup found =
        directory_cache_find_alike(w->cache, slice_text(key), last, 1, (struct fair_owner){0}, &box);
    shared_record_release(box);
    return found;
}

/* Whether the directory was asked, and what the asker noticed: an answer, that he waits, or that nobody can say. */
static unsigned noticed(struct world *w, const char *key, bool last)
{
    unsigned before = w->asked;
    enum lookup found = find_alike(w, key, last);
    unsigned seen = found == LOOKUP_FOUND || found == LOOKUP_ABSENT ? 0 : found == LOOKUP_PENDING ? 1 : 2;
    return 4 * (w->asked - before) + seen;
}

/* Its owner uses it: whatever that asks the directory is answered before anybody else asks. */
static void owner_uses(struct world *w, const char *key, uint64_t ttl)
{
    struct record record = record_of("a", 0);
    struct shared_record *box;
    unsigned before = w->asked;
    (void)directory_cache_find(w->cache, slice_text(key), false, 1, (struct fair_owner){0}, &box);
    shared_record_release(box);
    if (w->asked > before)
        directory_cache_answered(w->cache, slice_text(key), LOOKUP_FOUND, &record, ttl);
}

static void answer_both(struct world *w, uint64_t ttl, bool answers)
{
    struct record record = record_of("a", 0);
    if (!answers) {
        directory_cache_answered(w->cache, slice_text("here"), LOOKUP_UNAVAILABLE, NULL, 0);
        directory_cache_answered(w->cache, slice_text("none"), LOOKUP_UNAVAILABLE, NULL, 0);
        return;
    }
    directory_cache_answered(w->cache, slice_text("here"), LOOKUP_FOUND, &record, ttl);
    directory_cache_answered(w->cache, slice_text("none"), LOOKUP_ABSENT, NULL, 0);
}

/* Whatever happens, in step: a directory that answers soon or late or not at all, pushes or not, records that say how
 * long they are good or do not, and one that is in use. (A look-up of its owner's that is answered right after one was
 * not tells: there the directory is in trouble.) */
static void nothing_tells_absence_from_a_record(void **state)
{
    struct world *w = *state;
    unsigned seed = 7, waited = 0, asked = 0, served = 0;
    for (unsigned run = 0; run < 80; run++) {
        struct directory_cache_options options = options_of(w);
        bool in_use = run >= 40;
        options.absence_is_doubt = run % 2;
        restart(w, &options);
        w->refuses = false;
        uint64_t ttl = run % 4 < 2 ? 0 : 20 * SECOND;
        bool away = false;
        for (unsigned step = 0; step < 400; step++) {
            seed = seed * 1103515245 + 12345;
            unsigned what = seed >> 16 & 31;
            w->now += what < 16 ? 50 * MS : what < 24 ? 700 * MS : what == 24 ? 15 * SECOND : 2 * SECOND;
            if (what == 30 && !in_use) {
                away = !away;
                directory_cache_health(w->cache, !away, !away && run % 3 == 0);
            }
            if (what == 29 && !in_use)
                w->refuses = !w->refuses;
            if (what == 28)
                directory_cache_missed(w->cache);
            if (in_use)
                owner_uses(w, "here", ttl);
            bool last = seed >> 22 & 1;
            unsigned one = noticed(w, "here", last), other = noticed(w, "none", last);
            if (one != other)
                fail_msg("run %u step %u: %u of the one that is there, %u of the one that is not", run, step,
                         one, other);
            asked += one / 4, waited += one % 4 == 1, served += one % 4 == 0;
            if (what & 1 && w->asked)
                answer_both(w, ttl, !away);
        }
    }
    assert_true(asked > 500 && waited > 100 && served > 1000);
}

/* Who may know learns within a second of a sandbox that was made. */
static void who_may_know_believes_absence_for_a_second_only(void **state)
{
    struct world *w = *state;
    struct shared_record *box;
    struct slice key = SLICE_LITERAL("none");
    assert_int_equal(find_alike(w, "none", false), LOOKUP_PENDING);
    directory_cache_answered(w->cache, key, LOOKUP_ABSENT, NULL, 0);
    w->now += 1100 * MS;
    assert_int_equal(find_alike(w, "none", false), LOOKUP_ABSENT);
    assert_int_equal(w->asked, 1);
    assert_int_equal(directory_cache_find(w->cache, key, false, 1, (struct fair_owner){0}, &box),
                     LOOKUP_PENDING);
    assert_int_equal(w->asked, 2);
}

static void only_who_waits_or_watches_is_told(void **state)
{
    struct world *w = *state;
    struct shared_record *box;
    const struct slice key = SLICE_LITERAL("sb");
    assert_int_equal(directory_cache_find(w->cache, key, false, 2, (struct fair_owner){0}, &box),
                     LOOKUP_PENDING);
    assert_int_equal(directory_cache_find(w->cache, key, false, 8, (struct fair_owner){0}, &box),
                     LOOKUP_PENDING);
    assert_int_equal(
        directory_cache_find(w->cache, SLICE_LITERAL("other"), false, 16, (struct fair_owner){0}, &box),
        LOOKUP_PENDING);
    answer_epoch(w, "sb", "one", 1);
    assert_int_equal(w->waiters, 2 | 8);
    answer_epoch(w, "other", "one", 1);
    assert_int_equal(w->waiters, 16);
    assert_true(directory_cache_pin(w->cache, key, 4));
    assert_true(directory_cache_pin(w->cache, key, 32));
    const struct record two = record_of("two", 2), three = record_of("three", 3);
    directory_cache_changed(w->cache, key, &two);
    assert_int_equal(w->waiters, 4 | 32);
    w->now += SECOND;
    assert_true(directory_cache_refresh(w->cache, key, 64, (struct fair_owner){0}));
    answer_epoch(w, "sb", "two", 2);
    assert_int_equal(w->waiters, 64); /* nothing has changed for who watches */
    directory_cache_unpin(w->cache, key);
    directory_cache_unpin(w->cache, key);
    w->told = 0;
    directory_cache_changed(w->cache, key, &three);
    assert_int_equal(w->told, 0);
}

static enum lookup find_as(struct world *w, const char *key, uint64_t owner, enum fair_rank rank)
{
    struct shared_record *box;
    enum lookup found = directory_cache_find(w->cache, slice_text(key), false, (uint64_t)1 << owner,
                                             (struct fair_owner){owner, rank}, &box);
    shared_record_release(box);
    return found;
}

/* Who asks for too much is refused; that says nothing of what it has asked for. */
static void who_is_crowded_out_takes_nothing_from_others(void **state)
{
    struct world *w = *state;
    w->crowded = true;
    assert_int_equal(find_as(w, "a", 1, FAIR_VERIFIED), LOOKUP_UNAVAILABLE);
    w->crowded = false;
    assert_int_equal(find_as(w, "a", 2, FAIR_VERIFIED), LOOKUP_PENDING);
    assert_int_equal(w->asked, 2);
    assert_int_equal(w->owner.hash, 2);
    assert_int_equal(directory_cache_counts(w->cache).crowded, 1);
    assert_int_equal(directory_cache_counts(w->cache).failed, 0);
}

static void who_waits_for_what_was_not_asked_after_all_is_told_and_may_ask(void **state)
{
    struct world *w = *state;
    assert_int_equal(find_as(w, "a", 1, FAIR_UNVERIFIED), LOOKUP_PENDING);
    assert_int_equal(find_as(w, "a", 2, FAIR_VERIFIED), LOOKUP_PENDING);
    assert_int_equal(w->asked, 1);
    assert_int_equal(w->joined.hash, 2);
    directory_cache_unasked(w->cache, SLICE_LITERAL("a"));
    assert_int_equal(w->told, 1);
    assert_int_equal(w->waiters, 1 << 1 | 1 << 2);
    assert_int_equal(find_as(w, "a", 2, FAIR_VERIFIED), LOOKUP_PENDING);
    assert_int_equal(w->asked, 2);
    directory_cache_unasked(w->cache, SLICE_LITERAL("b")); /* which nobody has asked for */
}

/* But who has yet to prove that he may know of it does not hear of it by how soon he is answered. */
static void what_is_in_use_is_asked_for_as_that(void **state)
{
    struct world *w = *state;
    struct shared_record *box;
    assert_int_equal(find_as(w, "a", 1, FAIR_VERIFIED), LOOKUP_PENDING);
    assert_int_equal(w->owner.rank, FAIR_VERIFIED);
    answer(w, "a", "one");
    w->now += 700 * SECOND;
    assert_int_equal(find_as(w, "a", 1, FAIR_VERIFIED), LOOKUP_PENDING);
    assert_int_equal(w->owner.rank, FAIR_IN_USE);
    answer(w, "a", "one");
    w->now += 700 * SECOND;
    (void)directory_cache_find_alike(w->cache, SLICE_LITERAL("a"), false, 1,
                                     (struct fair_owner){1, FAIR_UNVERIFIED}, &box);
    shared_record_release(box);
    assert_int_equal(w->owner.rank, FAIR_UNVERIFIED);
    assert_true(directory_cache_pin(w->cache, SLICE_LITERAL("b"), 1));
    directory_cache_work(w->cache, false);
    assert_int_equal(w->owner.rank, FAIR_IN_USE);
    directory_cache_unpin(w->cache, SLICE_LITERAL("b"));
}

/* All of them are due still: they are asked for later, and the loop goes on. */
static void what_is_pinned_and_finds_no_place_is_asked_for_the_next_time(void **state)
{
    struct world *w = *state;
    char key[16];
    for (unsigned i = 0; i < 100; i++) {
        snprintf(key, sizeof key, "%u", i);
        assert_true(directory_cache_pin(w->cache, slice_text(key), 1));
    }
    w->crowded = true;
    directory_cache_work(w->cache, false);
    assert_in_range(w->asked, 1, 100);
    w->crowded = false;
    for (unsigned i = 0; i < 4; i++)
        directory_cache_work(w->cache, false);
    assert_in_range(w->asked, 101, 200);
}

static void what_was_not_woken_may_be_woken_at_once(void **state)
{
    struct world *w = *state;
    assert_true(directory_cache_may_wake(w->cache, SLICE_LITERAL("a")));
    assert_false(directory_cache_may_wake(w->cache, SLICE_LITERAL("a")));
    directory_cache_not_woken(w->cache, SLICE_LITERAL("a"));
    assert_true(directory_cache_may_wake(w->cache, SLICE_LITERAL("a")));
    directory_cache_not_woken(w->cache, SLICE_LITERAL("b"));
    directory_cache_not_woken(w->cache, SLICE_LITERAL(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(only_who_waits_or_watches_is_told),
        TEST(nothing_tells_absence_from_a_record),
        TEST(who_may_know_believes_absence_for_a_second_only),
        TEST(however_many_ask_there_is_one_look_up_and_all_are_told),
        TEST(who_read_the_clock_first_and_has_the_lock_second_asks_no_second_time),
        TEST(how_long_a_look_up_took_is_said_once),
        TEST(a_record_in_use_is_looked_up_again_without_anybody_waiting),
        TEST(a_record_that_was_not_used_for_longer_is_waited_for),
        TEST(the_answer_may_say_how_long_it_is_good),
        TEST(while_changes_are_pushed_a_record_serves_longer),
        TEST(absence_is_believed_for_a_second),
        TEST(what_is_no_key_is_absent),
        TEST(the_last_good_record_serves_until_it_is_stale),
        TEST(what_is_not_answered_is_asked_again_in_a_second_and_sooner_while_nothing_is),
        TEST(nobody_waits_for_a_directory_that_is_known_not_to_answer),
        TEST(only_the_first_waits_for_one_that_hangs),
        TEST(after_no_answer_it_is_asked_again_a_second_later),
        TEST(one_that_cannot_be_asked_now_is_asked_soon),
        TEST(an_answer_that_never_comes_is_given_up),
        TEST(an_epoch_that_goes_back_is_ignored_and_counted),
        TEST(an_epoch_that_goes_back_is_ignored_behind_a_state_alone_too),
        TEST(a_push_whose_epoch_goes_back_overtakes_nothing),
        TEST(where_absence_is_doubt_the_record_serves_30_seconds_more),
        TEST(after_30_seconds_of_doubt_it_is_asked_once_more_and_nobody_is_turned_away),
        TEST(a_doubt_ends_when_the_record_is_there_again),
        TEST(absence_that_was_announced_is_no_doubt),
        TEST(what_is_announced_while_the_record_is_in_doubt_is_waited_for),
        TEST(pushes_with_content_are_used_at_once_if_the_key_is),
        TEST(a_push_overtakes_the_answer_of_an_earlier_look_up),
        TEST(a_push_overtakes_what_says_that_there_is_none_or_still_one),
        TEST(a_push_does_not_overtake_a_later_look_up),
        TEST(an_announcement_during_a_look_up_is_looked_up_after_it),
        TEST(what_is_pinned_is_looked_up_by_itself_and_told_about),
        TEST(after_pushes_may_have_been_lost_all_in_use_is_looked_up_again),
        TEST(what_was_learned_before_pushes_were_lost_serves_no_longer_for_those_that_come_again),
        TEST(a_directory_that_does_not_answer_is_not_asked_for_all_that_is_pinned),
        TEST(what_is_pinned_and_was_learned_at_once_is_not_looked_up_again_at_once),
        TEST(what_nobody_waits_for_leaves_the_directory_to_those_who_wait),
        TEST(each_answer_lets_the_next_one_be_looked_up),
        TEST(look_ups_that_hang_hold_up_no_other_for_long),
        TEST(those_that_are_due_again_are_behind_those_that_had_no_turn_yet),
        TEST(an_answer_that_comes_late_gives_back_no_turn_but_its_own),
        TEST(a_redial_asks_afresh_and_is_told),
        TEST(a_redial_does_not_wait_for_a_directory_that_is_away),
        TEST(waking_is_asked_for_once_in_five_seconds),
        TEST(it_is_bounded_and_what_is_used_stays),
        TEST(large_records_are_bounded_by_their_bytes),
        TEST(a_large_record_that_was_just_answered_stays_whatever_the_others_take),
        TEST(a_look_up_on_its_way_is_not_given_up_for_others),
        TEST(a_record_that_is_looked_up_is_not_given_up_for_others),
        TEST(what_was_just_answered_stays_however_many_records_are_looked_up),
        TEST(look_ups_of_what_is_unknown_are_bounded),
        TEST(look_ups_that_cannot_be_begun_make_room_for_others),
        TEST(answers_that_never_come_make_room_for_others),
        TEST(who_is_crowded_out_takes_nothing_from_others),
        TEST(who_waits_for_what_was_not_asked_after_all_is_told_and_may_ask),
        TEST(what_is_in_use_is_asked_for_as_that),
        TEST(what_is_pinned_and_finds_no_place_is_asked_for_the_next_time),
        TEST(what_was_not_woken_may_be_woken_at_once),
        TEST(a_record_lives_on_with_who_holds_it),
        TEST(without_memory_nothing_is_known_and_nothing_is_lost),
        cmocka_unit_test(threads_may_do_everything_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
