/* SPDX-License-Identifier: MIT */
#include "spoa/proto/ws_handshake.h"

#include <openssl/evp.h>
#include <pthread.h>

#define KEY_LEN   (WS_KEY_SIZE - 1)
#define NONCE_LEN 16
#define SHA1_LEN  20

void ws_handshake_key(char key[WS_KEY_SIZE], const uint8_t nonce[16])
{
    EVP_EncodeBlock((unsigned char *)key, nonce, NONCE_LEN);
}

/* Decodes and encodes the key, which must not change: OpenSSL's decoder forgives blanks, padding, and bits beyond the last byte. */
bool ws_handshake_key_valid(struct slice key)
{
    unsigned char decoded[18], again[WS_KEY_SIZE];

    if (key.len != KEY_LEN || EVP_DecodeBlock(decoded, key.at, KEY_LEN) != (int)sizeof(decoded))
        return false;
    EVP_EncodeBlock(again, decoded, NONCE_LEN);
    return slice_equal(key, slice_of(again, KEY_LEN));
}

/* OpenSSL's SHA-1, fetched once for the process: a fetch takes as long as the digest. NULL if memory was short, and then the default
 * implementation serves. */
static const EVP_MD *sha1;

static void fetch_sha1(void)
{
    sha1 = EVP_MD_fetch(NULL, "SHA1", NULL);
}

bool ws_handshake_accept(char accept[WS_ACCEPT_SIZE], struct slice key)
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; /* RFC 6455 section 1.3 */
    unsigned char text[KEY_LEN + sizeof(guid) - 1], digest[SHA1_LEN];
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct writer w = writer_of(text, sizeof(text));

    pthread_once(&once, fetch_sha1);
    writer_put(&w, key);
    writer_text(&w, guid);
    if (w.full || !EVP_Digest(text, w.len, digest, NULL, sha1, NULL))
        return false;
    EVP_EncodeBlock((unsigned char *)accept, digest, SHA1_LEN);
    return true;
}

bool ws_handshake_offers(struct slice offered, struct slice protocol)
{
    struct slice part;
    while (slice_split(&offered, ',', &part))
        if (slice_equal(slice_trim(part), protocol))
            return true;
    return false;
}

/* ---- requests ---- */

static unsigned refuse(struct fail *why, unsigned status, const char *text)
{
    fail(why, "%s", text);
    return status;
}

unsigned ws_handshake_check_request(const struct http_head *head, struct slice *key, struct fail *why)
{
    if (!slice_is(head->method, "GET"))
        return refuse(why, 405, "an upgrade must be a GET");
    if (head->minor != 1)
        return refuse(why, 400, "an upgrade needs HTTP/1.1");
    if (http_framing(head, false) != HTTP_NO_BODY)
        return refuse(why, 400, "an upgrade must not have a body");
    if (!http_has_token(head, "Upgrade", "websocket") || !http_has_token(head, "Connection", "Upgrade"))
        return refuse(why, 426, "this path speaks WebSocket only");
    if (http_count(head, "Sec-WebSocket-Version") != 1 ||
        !slice_is(http_get(head, "Sec-WebSocket-Version"), "13"))
        return refuse(why, 426, "Sec-WebSocket-Version must be 13");
    *key = http_get(head, "Sec-WebSocket-Key");
    if (http_count(head, "Sec-WebSocket-Key") != 1 || !ws_handshake_key_valid(*key))
        return refuse(why, 400, "Sec-WebSocket-Key must be 16 bytes in base64");
    return 0;
}

void ws_handshake_put_request(struct writer *w, struct slice target, struct slice host, struct slice key,
                              struct slice protocols)
{
    writer_text(w, "GET ");
    writer_put(w, target);
    writer_text(w, " HTTP/1.1\r\nHost: ");
    writer_put(w, host);
    writer_text(
        w,
        "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ");
    writer_put(w, key);
    if (slice_present(protocols)) {
        writer_text(w, "\r\nSec-WebSocket-Protocol: ");
        writer_put(w, protocols);
    }
    writer_text(w, "\r\n");
}

/* ---- answers ---- */

static bool check_accept(const struct http_head *head, struct slice key, struct fail *why)
{
    char accept[WS_ACCEPT_SIZE];

    if (!ws_handshake_accept(accept, key))
        return fail(why, "out of memory");
    if (http_count(head, "Sec-WebSocket-Accept") != 1 ||
        !slice_is(http_get(head, "Sec-WebSocket-Accept"), accept))
        return fail(why, "answer to the upgrade has no correct Sec-WebSocket-Accept");
    return true;
}

static bool check_protocol(const struct http_head *head, struct slice offered, struct slice *protocol,
                           struct fail *why)
{
    size_t count = http_count(head, "Sec-WebSocket-Protocol");

    *protocol = http_get(head, "Sec-WebSocket-Protocol");
    if (count > 1 || (count == 1 && (!http_is_token(*protocol) || !ws_handshake_offers(offered, *protocol))))
        return fail(why, "answer to the upgrade selects a subprotocol that was not offered");
    return true;
}

bool ws_handshake_check_answer(const struct http_head *head, struct slice key, struct slice offered,
                               struct slice *protocol, struct fail *why)
{
    if (head->status != 101)
        return fail(why, "upgrade was refused with status %u", head->status);
    if (head->minor != 1)
        return fail(why, "answer to the upgrade is not HTTP/1.1");
    if (http_count(head, "Upgrade") != 1 ||
        !slice_equal_nocase(http_get(head, "Upgrade"), SLICE_LITERAL("websocket")))
        return fail(why, "answer to the upgrade is not for websocket");
    if (!http_has_token(head, "Connection", "Upgrade"))
        return fail(why, "answer to the upgrade has no Connection: Upgrade");
    if ((head->has_length && head->length > 0) || head->chunked)
        return fail(why, "answer to the upgrade has a body");
    if (http_count(head, "Sec-WebSocket-Extensions") != 0)
        return fail(why, "answer to the upgrade selects an extension that was not offered");
    return check_accept(head, key, why) && check_protocol(head, offered, protocol, why);
}

bool ws_handshake_put_answer(struct writer *w, struct slice key, struct slice protocol)
{
    char accept[WS_ACCEPT_SIZE];

    if (!ws_handshake_accept(accept, key))
        return false;
    writer_printf(w,
                  "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                  "Sec-WebSocket-Accept: %s\r\n",
                  accept);
    if (slice_present(protocol)) {
        writer_text(w, "Sec-WebSocket-Protocol: ");
        writer_put(w, protocol);
        writer_text(w, "\r\n");
    }
    return true;
}
