/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spoa/agent/decision_thread/resolve.h"
#include "spoa/agent/token/ticket.h"
#include "spoa/base/text/base64url.h"

static struct key *key_of(const char *secret)
{
    struct fail why;
    struct key *key = key_secret(slice_text(secret), TICKET_SECRET, "test", &why);
    assert_non_null(key);
    return key;
}

static bool is_good(const struct key *key, const struct handover *h)
{
    return ticket_check(key, h) == TICKET_GOOD;
}

static struct handover admitted(void)
{
    struct handover h = handover_none();
    h.route = SLICE_LITERAL("pty");
    h.sandbox = SLICE_LITERAL("sb;1");
    h.space = SLICE_LITERAL("team");
    h.port = 8080;
    h.pending = 1;
    h.host_only = 2;
    h.org = SLICE_LITERAL("org-1");
    h.org_of_record = 1;
    h.jti = SLICE_LITERAL("j1");
    h.kid = SLICE_LITERAL("k1");
    h.needs = 8;
    h.ports = SLICE_LITERAL("\x1f\x90");
    h.bearer = SLICE_LITERAL("0f");
    h.key = SLICE_LITERAL("0123456789abcdef");
    h.iat = 1000;
    h.exp = 2000;
    h.egress = SLICE_LITERAL("api.example.org:443");
    h.inspect = 7;
    h.epoch = 3;
    return h;
}

static struct resolve_question question_of(const struct handover *h)
{
    struct resolve_question q = {.idle = 5, .epoch = 9, .ticket = h->ticket};
#define X(kind, field, key) q.field = h->field;
    HANDOVER_IDENTITY(X)
#undef X
    return q;
}

static void change_TEXT(struct slice *text)
{
    *text = slice_is(*text, "x") ? SLICE_LITERAL("y") : SLICE_LITERAL("x");
}

static void change_INT(int64_t *number)
{
    ++*number;
}

static void absent_TEXT(struct slice *text)
{
    *text = slice_text(NULL);
}

static void absent_INT(int64_t *number)
{
    *number = -1;
}

/* Each field of the identity, changed and left out; not what a relay says of itself. */
static void a_ticket_is_for_one_identity(void **state)
{
    struct key *key = key_of("0123456789abcdef0123456789abcdef"),
               *other = key_of("0123456789abcdef0123456789abcdeX");
    uint8_t memory[64];
    struct writer w = writer_of(memory, sizeof memory);
    struct handover h = admitted();
    (void)state;
    h.ticket = ticket_write(key, &h, &w);
    assert_int_equal(h.ticket.len, 22);
    assert_true(is_good(key, &h));
    assert_false(is_good(other, &h));
    assert_false(is_good(NULL, &h));
    struct resolve_question q = question_of(&h);
    assert_true(resolve_is_admitted(key, &q));
#define X(kind, field, name)                    \
    q = question_of(&h);                        \
    change_##kind(&q.field);                    \
    assert_false(resolve_is_admitted(key, &q)); \
    q = question_of(&h);                        \
    absent_##kind(&q.field);                    \
    assert_false(resolve_is_admitted(key, &q));
    HANDOVER_IDENTITY(X)
    X(TEXT, ticket, "ticket")
#undef X
    for (size_t i = 0; i < h.ticket.len; i++) {
        memory[i] ^= 1;
        assert_false(is_good(key, &h));
        memory[i] ^= 1;
    }
    h.ticket.len--;
    assert_false(is_good(key, &h));
    key_free(key);
    key_free(other);
}

/* Written by the agent before this one, which did not say all that is judged. It is for one identity, too. */
static void a_ticket_of_an_older_domain_is_known_as_one(void **state)
{
    struct key *key = key_of("0123456789abcdef0123456789abcdef");
    uint8_t text[1024], mac[KEY_SIGNATURE], memory[64];
    struct writer identity = writer_of(text, sizeof text), signature = writer_of(mac, sizeof mac),
                  w = writer_of(memory, sizeof memory);
    struct handover h = admitted();
    (void)state;
    h.pending = h.host_only = -1;
    h.ports = h.bearer = slice_text(NULL);
    writer_text(&identity, "cellgate ticket 1;");
    handover_encode_identity(&h, &identity);
    assert_true(key_sign(key, writer_slice(&identity), &signature));
    base64url_encode(slice_of(mac, TICKET_BYTES), &w);
    h.ticket = writer_slice(&w);
    assert_int_equal(ticket_check(key, &h), TICKET_OLD);
    struct resolve_question q = question_of(&h);
    assert_true(resolve_is_admitted(key, &q));
    assert_int_equal(q.old, 1);
    q.pending = 1;
    assert_false(resolve_is_admitted(key, &q));
    key_free(key);
}

/* What would read the same when it is put together. */
static void a_value_cannot_pass_for_another_field(void **state)
{
    struct key *key = key_of("0123456789abcdef0123456789abcdef");
    uint8_t memory[64];
    struct writer w = writer_of(memory, sizeof memory);
    struct handover h = handover_none();
    (void)state;
    h.route = SLICE_LITERAL("pty;sandbox=a");
    h.ticket = ticket_write(key, &h, &w);
    assert_true(is_good(key, &h));
    h.route = SLICE_LITERAL("pty");
    h.sandbox = SLICE_LITERAL("a");
    assert_false(is_good(key, &h));
    key_free(key);
}

static void without_room_there_is_none(void **state)
{
    static uint8_t large[20000];
    struct key *key = key_of("0123456789abcdef0123456789abcdef");
    uint8_t memory[64];
    struct writer w = writer_of(memory, 21);
    struct handover h = admitted();
    (void)state;
    assert_false(slice_present(ticket_write(key, &h, &w)));
    w = writer_of(memory, sizeof memory);
    assert_false(slice_present(ticket_write(NULL, &h, &w)));
    memset(large, 'a', sizeof large);
    h.sandbox = slice_of(large, sizeof large);
    assert_false(slice_present(ticket_write(key, &h, &w)));
    h.ticket = SLICE_LITERAL("0123456789012345678901");
    assert_false(is_good(key, &h));
    key_free(key);
}

/* ---- the key's file ---- */

static void put_file(const char *path, const char *text, mode_t mode)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void refuses(const char *path, const char *what)
{
    struct fail why = {""};
    assert_null(ticket_key_load(path, &why));
    if (!strstr(why.text, what) || !strstr(why.text, path))
        fail_msg("%s", why.text);
}

static void a_key_is_made_once_and_is_secret(void **state)
{
    char folder[] = "/tmp/cellgate-test-XXXXXX", path[64], other[64];
    struct fail why = {""};
    struct stat st;
    uint8_t memory[64];
    struct writer w = writer_of(memory, sizeof memory);
    struct handover h = admitted();
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/key", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    mode_t mask = umask(0);
    struct key *made = ticket_key_load(path, &why);
    umask(mask);
    assert_non_null(made);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, TICKET_SECRET);
    assert_int_equal(st.st_mode & 0777, 0600);
    h.ticket = ticket_write(made, &h, &w);
    struct key *again = ticket_key_load(path, &why), *another = ticket_key_load(other, &why);
    assert_true(is_good(again, &h));
    assert_false(is_good(another, &h));
    key_free(made);
    key_free(again);
    key_free(another);

    put_file(path, "short", 0600);
    refuses(path, "at least 32");
    put_file(path, "0123456789abcdef0123456789abcdef", 0604);
    refuses(path, "mode 604");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    refuses(path, "not a regular file");
    unlink(path);
    assert_int_equal(symlink(other, path), 0);
    refuses(path, "");
    unlink(path);
    unlink(other);
    rmdir(folder);
    refuses(path, "cannot be made");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ticket_is_for_one_identity),
        cmocka_unit_test(a_ticket_of_an_older_domain_is_known_as_one),
        cmocka_unit_test(a_value_cannot_pass_for_another_field),
        cmocka_unit_test(without_room_there_is_none),
        cmocka_unit_test(a_key_is_made_once_and_is_secret),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
