/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spoa/agent/decider.h"

/* At the end of the agent others still have news for a decider whose thread is gone: what they post is run, if at
 * all, when its memory is. A sanitizer sees what is used too late. */
static void what_comes_when_its_thread_is_gone_is_let_be(void **state)
{
    static const char config[] =
        "{\"open\": true, \"tokens\": [], \"directory\": {\"kind\": \"file\", \"path\": \"/nowhere\"}}";
    char path[] = "/tmp/cellgate-test-XXXXXX";
    struct fail why = {""};
    int file = mkstemp(path), listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(write(file, config, sizeof config - 1), sizeof config - 1);
    close(file);
    struct policy *policy = policy_load(path, NULL, 0, &why);
    unlink(path);
    if (!policy)
        fail_msg("%s", why.text);
    const struct snapshot_parts parts = {.policy = policy};
    struct snapshot *snapshot = snapshot_new(&parts);
    const struct decider_options options = {
        .listener = listener, .relay_listener = listener, .token_cache = 4, .lookup = 0.2};
    struct decider *decider = decider_start(&options, snapshot, &why);
    if (!decider)
        fail_msg("%s", why.text);
    decider_stop(decider);
    decider_use(decider, snapshot);
    decider_news(decider, SLICE_LITERAL("sb-1"));
    decider_free(decider);
    snapshot_release(snapshot);
    policy_release(policy);
    close(listener);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_comes_when_its_thread_is_gone_is_let_be)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
