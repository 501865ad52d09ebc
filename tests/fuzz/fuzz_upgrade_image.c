/* SPDX-License-Identifier: MIT */
/*
 * What a neighbour process says of a tunnel's upgrade: an image that is the input, or one of a real upgrade that is spoiled: each three
 * bytes of the input are an offset (two bytes) and what stands there then. Whatever is loaded is used as a tunnel uses it, and is the same
 * when it is written and loaded again.
 */
#include "spoa/relay/tunnel/upgrade.h"
#include "tests/fuzz/fuzz.h"

enum { HEAD = 2 /* bytes: a version, no time */ };

static const char request[] =
    "GET /pty/x/ws?since=0&a=b HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    "Sec-WebSocket-Protocol: tty, other\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nCookie: a=b\r\n"
    "X-Cell-Handover: id=1;route=r;sandbox=s;org=o;resume=cell;end=exit-json;addr=127.0.0.1;addr_port=8080;"
    "hold=5000;strip=x-a\r\n\r\n";

static struct image_words *words;

static struct upgrade_kept *real_one(void)
{
    static struct http_head head;
    struct http_reader reader = http_reader_of(HTTP_REQUEST, HTTP_HEAD_MAX);
    enum refusal refusal;
    struct fail why;

    CHECK(http_read(&reader, slice_text(request), &head) == HTTP_DONE);
    struct upgrade *upgrade = upgrade_new(&head, &refusal, &why);
    CHECK(upgrade != NULL);
    upgrade->selected = slice_sub(upgrade->protocols, 0, 3);
    struct upgrade_kept *kept = upgrade_keep(upgrade);
    CHECK(kept != NULL);
    free(upgrade);
    return kept;
}

static struct upgrade_kept *load(struct slice image)
{
    size_t size = upgrade_saved_size(image);
    struct upgrade_kept *kept = size ? malloc(size) : NULL;

    CHECK(size <= UPGRADE_KEPT_MAX);
    if (!kept || upgrade_load(image, words, kept))
        return kept;
    free(kept);
    return NULL;
}

static void use(const struct upgrade_kept *kept)
{
    static uint8_t memory[UPGRADE_KEPT_MAX + 2 * UPGRADE_HEAD_MAX];
    struct upgrade upgrade = upgrade_unpack(kept);
    struct writer w = writer_of(memory, sizeof memory);
    const struct target to = {.addr = {4, {127, 0, 0, 1}}, .port = 1};

    upgrade_request(&upgrade, &to, SLICE_LITERAL("key"), SLICE_LITERAL("since=1"), slice_text(NULL), &w);
    w = writer_of(memory, sizeof memory);
    (void)upgrade_accept(&upgrade, &to, NULL, &w);
    w = writer_of(memory, sizeof memory);
    upgrade_refuse(&upgrade, REFUSAL_sandbox_not_found, &w);
    w = writer_of(memory, sizeof memory);
    handover_encode(&upgrade.handover, &w);
}

static void comes_back(const struct upgrade_kept *kept)
{
    struct buffer images[2] = {buffer_with_limit(2 * UPGRADE_KEPT_MAX),
                               buffer_with_limit(2 * UPGRADE_KEPT_MAX)};

    CHECK(upgrade_save(kept, words, &images[0]));
    struct upgrade_kept *back = load(buffer_slice(&images[0]));
    CHECK(back && upgrade_save(back, words, &images[1]));
    CHECK(slice_equal(buffer_slice(&images[0]), buffer_slice(&images[1])));
    free(back);
    buffer_free(&images[0]);
    buffer_free(&images[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct buffer real;
    struct buffer image = buffer_with_limit(1 << 20);

    if (!words) {
        struct upgrade_kept *kept = real_one();
        words = image_words_new(upgrade_words());
        real = buffer_with_limit(1 << 16);
        CHECK(words && upgrade_save(kept, words, &real));
        comes_back(kept);
        free(kept);
    }
    if (size < 2)
        return 0;
    CHECK(buffer_put(&image, data[0] & 1 ? buffer_slice(&real) : slice_sub(buffer_slice(&real), 0, HEAD)));
    if (!(data[0] & 1))
        CHECK(buffer_put(&image, slice_of(data + 1, size - 1)));
    for (size_t i = 1; data[0] & 1 && i + 3 <= size; i += 3)
        image.memory[((size_t)data[i] << 8 | data[i + 1]) % buffer_len(&image)] = data[i + 2];
    struct upgrade_kept *kept = load(buffer_slice(&image));
    if (kept) {
        use(kept);
        comes_back(kept);
    }
    free(kept);
    buffer_free(&image);
    return 0;
}
