/* SPDX-License-Identifier: MIT */
#include "tests/unit/support.h"

#include "spoa/agent/decision/upgrade.h"
#include "spoa/agent/model/request_text.h"

#define KEY "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
#define V13 "Sec-WebSocket-Version: 13"
#define UPG "Upgrade: websocket"
#define CON "Connection: Upgrade"
#define WS  UPG, CON, V13, KEY

enum { LINES = 10 };

struct row {
    const char *what;
    enum refusal refusal;
    const char *line; /* NULL: GET http://a/ */
    const char *lines[LINES];
};

#define ok  REFUSAL_NONE
#define bad REFUSAL_bad_request
#define m   REFUSAL_method_not_allowed
#define v   REFUSAL_upgrade_version

static const struct row rows[] = {
    /* as it should be */
    {"plain", ok, NULL, {WS}},
    {"lower-case names and values", ok, NULL, {"upgrade: WebSocket", "connection: upgrade", V13, KEY}},
    {"Firefox's Connection", ok, NULL, {UPG, "Connection: keep-alive, Upgrade", V13, KEY}},
    {"other order", ok, NULL, {UPG, "Connection: Upgrade,Keep-Alive", V13, KEY}},
    {"empty list elements", ok, NULL, {UPG, "Connection: ,Upgrade, ,", V13, KEY}},
    {"two Connection lines", ok, NULL, {UPG, "Connection: keep-alive", CON, V13, KEY}},
    {"Content-Length 0", ok, NULL, {WS, "Content-Length: 0"}},
    {"a port in Host", ok, "GET http://a:8080/", {WS}},
    {"an IPv6 Host", ok, "GET http://[::1]:80/", {WS}},
    {"subprotocols and extensions",
     ok,
     NULL,
     {WS, "Sec-WebSocket-Protocol: a, b", "Sec-WebSocket-Extensions: x"}},
    /* the method */
    {"POST", m, "POST http://a/", {WS}},
    {"HEAD", m, "HEAD http://a/", {WS}},
    {"OPTIONS", m, "OPTIONS http://a/", {WS}},
    {"CONNECT", m, "CONNECT http://a/", {WS}},
    {"PUT", m, "PUT http://a/", {WS}},
    {"DELETE", m, "DELETE http://a/", {WS}},
    {"PRI", m, "PRI http://a/", {WS}},
    {"get", m, "get http://a/", {WS}},
    {"Get", m, "Get http://a/", {WS}},
    {"GETT", m, "GETT http://a/", {WS}},
    /* HTTP's version */
    {"HTTP/1.0", bad, "GET http://a/ HTTP/1.0", {WS}},
    {"HTTP/0.9", bad, "GET http://a/ HTTP/0.9", {WS}},
    {"HTTP/1.2", bad, "GET http://a/ HTTP/1.2", {WS}},
    {"HTTP/1", bad, "GET http://a/ HTTP/1", {WS}},
    {"no version", bad, "GET http://a/ HTTP/", {WS}},
    {"HTTP/2.0 written by an HTTP/1 client", bad, "GET http://a/ HTTP/2.0", {WS}},
    /* Upgrade */
    {"no Upgrade", bad, NULL, {CON, V13, KEY}},
    {"empty Upgrade", bad, NULL, {"Upgrade:", CON, V13, KEY}},
    {"h2c", bad, NULL, {"Upgrade: h2c", CON, V13, KEY}},
    {"h2c and websocket", bad, NULL, {"Upgrade: h2c, websocket", CON, V13, KEY}},
    {"websocket and h2c", bad, NULL, {"Upgrade: websocket, h2c", CON, V13, KEY}},
    {"websocket twice in a line", bad, NULL, {"Upgrade: websocket, websocket", CON, V13, KEY}},
    {"websocket in two lines", bad, NULL, {UPG, UPG, CON, V13, KEY}},
    {"websocket and h2c in two lines", bad, NULL, {UPG, "Upgrade: h2c", CON, V13, KEY}},
    {"websocket/13", bad, NULL, {"Upgrade: websocket/13", CON, V13, KEY}},
    {"web socket", bad, NULL, {"Upgrade: web socket", CON, V13, KEY}},
    {"websockets", bad, NULL, {"Upgrade: websockets", CON, V13, KEY}},
    {"websocke", bad, NULL, {"Upgrade: websocke", CON, V13, KEY}},
    {"websocket alone", v, NULL, {UPG, CON}},
    {"websocket without Connection", bad, NULL, {UPG}},
    {"h2c and websocket, and no key", bad, NULL, {"Upgrade: h2c,WebSocket", CON}},
    {"h2c, and websocket in another line", bad, NULL, {"Upgrade: h2c", UPG, CON}},
    {"a trailing comma", bad, NULL, {"Upgrade: websocket,", CON, V13, KEY}},
    /* Connection */
    {"no Connection", bad, NULL, {UPG, V13, KEY}},
    {"empty Connection", bad, NULL, {UPG, "Connection:", V13, KEY}},
    {"keep-alive only", bad, NULL, {UPG, "Connection: keep-alive", V13, KEY}},
    {"close", bad, NULL, {UPG, "Connection: close", V13, KEY}},
    {"close and Upgrade", bad, NULL, {UPG, "Connection: close, Upgrade", V13, KEY}},
    {"names Authorization", bad, NULL, {UPG, "Connection: Upgrade, Authorization", V13, KEY}},
    {"names a routing header", bad, NULL, {UPG, "Connection: Upgrade, X-Sandbox-ID", V13, KEY}},
    {"names the key", bad, NULL, {UPG, "Connection: Upgrade, Sec-WebSocket-Key", V13, KEY}},
    {"names Host in a second line", bad, NULL, {UPG, CON, "Connection: Host", V13, KEY}},
    {"names TE", bad, NULL, {UPG, "Connection: Upgrade, TE", V13, KEY}},
    {"three lines", ok, NULL, {UPG, CON, CON, "Connection: keep-alive", V13, KEY}},
    {"names Host in a third line", bad, NULL, {UPG, CON, CON, "Connection: Host", V13, KEY}},
    {"Upgrades", bad, NULL, {UPG, "Connection: Upgrades", V13, KEY}},
    {"quoted", bad, NULL, {UPG, "Connection: \"Upgrade\"", V13, KEY}},
    {"with a semicolon", bad, NULL, {UPG, "Connection: Upgrade; x", V13, KEY}},
    /* Sec-WebSocket-Version */
    {"no version", v, NULL, {UPG, CON, KEY}},
    {"empty version", v, NULL, {UPG, CON, KEY, "Sec-WebSocket-Version:"}},
    {"8", v, NULL, {UPG, CON, KEY, "Sec-WebSocket-Version: 8"}},
    {"0", v, NULL, {UPG, CON, KEY, "Sec-WebSocket-Version: 0"}},
    {"14", v, NULL, {UPG, CON, KEY, "Sec-WebSocket-Version: 14"}},
    {"777", v, NULL, {UPG, CON, KEY, "Sec-WebSocket-Version: 777"}},
    {"a list", v, NULL, {UPG, CON, KEY, "Sec-WebSocket-Version: 13, 8"}},
    {"13 twice in a line", v, NULL, {UPG, CON, KEY, "Sec-WebSocket-Version: 13, 13"}},
    {"13 in two lines", v, NULL, {WS, V13}},
    {"hexadecimal", v, NULL, {UPG, CON, KEY, "Sec-WebSocket-Version: 0xd"}},
    {"013", v, NULL, {UPG, CON, KEY, "Sec-WebSocket-Version: 013"}},
    {"+13", v, NULL, {UPG, CON, KEY, "Sec-WebSocket-Version: +13"}},
    {"13.0", v, NULL, {UPG, CON, KEY, "Sec-WebSocket-Version: 13.0"}},
    /* Sec-WebSocket-Key */
    {"no key", bad, NULL, {UPG, CON, V13}},
    {"empty key", bad, NULL, {UPG, CON, V13, "Sec-WebSocket-Key:"}},
    {"two keys", bad, NULL, {WS, KEY}},
    {"two keys in a line", bad, NULL, {UPG, CON, V13, KEY ", dGhlIHNhbXBsZSBub25jZQ=="}},
    {"15 bytes", bad, NULL, {UPG, CON, V13, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j"}},
    {"17 bytes", bad, NULL, {UPG, CON, V13, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZWU="}},
    {"18 bytes", bad, NULL, {UPG, CON, V13, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZWVl"}},
    {"one byte", bad, NULL, {UPG, CON, V13, "Sec-WebSocket-Key: eA=="}},
    {"no padding", bad, NULL, {UPG, CON, V13, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ"}},
    {"base64url", bad, NULL, {UPG, CON, V13, "Sec-WebSocket-Key: -_hlIHNhbXBsZSBub25jZQ=="}},
    {"a blank inside", bad, NULL, {UPG, CON, V13, "Sec-WebSocket-Key: dGhlIHNh XBsZSBub25jZQ=="}},
    {"padding inside", bad, NULL, {UPG, CON, V13, "Sec-WebSocket-Key: dGhlIHNhbXBs=SBub25jZQ=="}},
    {"bits behind the 16th byte", bad, NULL, {UPG, CON, V13, "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZR=="}},
    {"not base64", bad, NULL, {UPG, CON, V13, "Sec-WebSocket-Key: !!!!!!!!!!!!!!!!!!!!!!=="}},
    /* Host */
    {"no Host", bad, "GET /", {WS}},
    {"empty Host", bad, "GET /", {WS, "Host:"}},
    {"two Hosts", bad, "GET /", {WS, "Host: a", "Host: b"}},
    {"the same Host twice", bad, "GET /", {WS, "Host: a", "Host: a"}},
    {"user information", bad, "GET /", {WS, "Host: a@b"}},
    {"a list", bad, "GET /", {WS, "Host: a, b"}},
    {"a path", bad, "GET /", {WS, "Host: a/b"}},
    {"a bad port", bad, "GET /", {WS, "Host: a:b"}},
    {"port 0", bad, "GET /", {WS, "Host: a:0"}},
    {"port 65536", bad, "GET /", {WS, "Host: a:65536"}},
    {"an empty port", bad, "GET /", {WS, "Host: a:"}},
    {"two ports", bad, "GET /", {WS, "Host: a:1:2"}},
    {"an open bracket", bad, "GET /", {WS, "Host: [::1"}},
    {"a blank", bad, "GET /", {WS, "Host: a b"}},
    {"a percent sign", bad, "GET /", {WS, "Host: a%2eb"}},
    /* a body */
    {"Content-Length", bad, NULL, {WS, "Content-Length: 5"}},
    {"Content-Length 2^64", bad, NULL, {WS, "Content-Length: 18446744073709551616"}},
    {"Content-Length of another form", bad, NULL, {WS, "Content-Length: 00"}},
    {"empty Content-Length", bad, NULL, {WS, "Content-Length:"}},
    {"chunked", bad, NULL, {WS, "Transfer-Encoding: chunked"}},
    {"identity", bad, NULL, {WS, "Transfer-Encoding: identity"}},
    /* HTTP/2, as HAProxy shows RFC 8441 */
    {"HTTP/2", ok, "GET http://a/ HTTP/2.0", {UPG, CON, V13}},
    {"HTTP/2 without Connection", ok, "GET http://a/ HTTP/2.0", {UPG, V13}},
    {"HTTP/2 with keep-alive only", bad, "GET http://a/ HTTP/2.0", {UPG, "Connection: keep-alive", V13}},
    {"HTTP/2 with a foreign Connection", bad, "GET http://a/ HTTP/2.0", {UPG, "Connection: upgrade, x", V13}},
    {"HTTP/2 with a key", bad, "GET http://a/ HTTP/2.0", {UPG, CON, V13, KEY}},
    {"HTTP/2 without version", v, "GET http://a/ HTTP/2.0", {UPG, CON}},
    {"HTTP/2, version 8", v, "GET http://a/ HTTP/2.0", {UPG, CON, "Sec-WebSocket-Version: 8"}},
    {"HTTP/2, connect-udp", bad, "GET http://a/ HTTP/2.0", {"Upgrade: connect-udp", CON, V13}},
    {"HTTP/2, POST", m, "POST http://a/ HTTP/2.0", {UPG, CON, V13}},
    {"HTTP/2, no authority", bad, "GET / HTTP/2.0", {UPG, CON, V13}},
    {"HTTP/2, a body", bad, "GET http://a/ HTTP/2.0", {UPG, CON, V13, "Content-Length: 1"}},
};

static void request_make(const struct row *row, struct header_line *lines, struct request *request)
{
    struct fail why;
    size_t count = 0;
    for (; count < LINES && row->lines[count]; count++)
        assert_true(header_line_parse(slice_text(row->lines[count]), &lines[count]));
    static uint8_t memory[4096];
    struct writer w = writer_of(memory, sizeof memory);
    struct slice line = slice_text(row->line ? row->line : "GET http://a/");
    assert_true(request_from_text(line, lines, count, &w, request, &why));
}

static void judges_every_defect(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct header_line lines[LINES];
        struct request request;
        const char *why;
        request_make(&rows[i], lines, &request);
        assert_true(upgrade_claimed(&request));
        enum refusal refusal = upgrade_judge(&request, &why);
        if (refusal != rows[i].refusal)
            fail_msg("%s: refusal %d, not %d (%s)", rows[i].what, refusal, rows[i].refusal, why);
        assert_int_equal(why[0] == '\0', refusal == REFUSAL_NONE);
    }
}

static void an_upgrade_is_claimed_by_any_of_its_headers(void **state)
{
    static const struct row claims[] = {
        {"Upgrade", ok, NULL, {"Upgrade: WebSocket"}},
        {"in a list", ok, NULL, {"Upgrade: h2c, websocket"}},
        {"in a second line", ok, NULL, {"Upgrade: h2c", "Upgrade: websocket"}},
        {"HTTP/2, of another protocol", ok, "GET http://a/ HTTP/2.0", {"Upgrade: connect-udp"}},
        {"HTTP/2, Connection", ok, "GET http://a/ HTTP/2.0", {CON}},
        {"key", ok, NULL, {KEY}},
        {"version", ok, NULL, {V13}},
    };
    static const struct row none[] = {
        {"nothing", ok, NULL, {NULL}},
        {"keep-alive", ok, NULL, {"Connection: keep-alive"}},
        {"subprotocol", ok, NULL, {"Sec-WebSocket-Protocol: a"}},
        {"insecure requests", ok, NULL, {"Upgrade-Insecure-Requests: 1"}},
        {"h2c as curl and Java offer it",
         ok,
         NULL,
         {"Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: x"}},
        {"TLS", ok, NULL, {"Upgrade: TLS/1.0", CON}},
        {"several", ok, NULL, {"Upgrade: h2c, TLS/1.3", "Upgrade: IRC/6.9", CON}},
        {"Connection without Upgrade, as proxies write it", ok, NULL, {CON}},
        {"nothing offered", ok, NULL, {"Upgrade:", CON}},
    };
    struct header_line lines[LINES];
    struct request request;
    (void)state;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        request_make(&claims[i], lines, &request);
        assert_true(upgrade_claimed(&request));
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        request_make(&none[i], lines, &request);
        assert_false(upgrade_claimed(&request));
    }
}

static void a_plain_connection_names_hop_by_hop_headers_only(void **state)
{
    static const struct row plain[] = {
        {"nothing", ok, NULL, {NULL}},
        {"keep-alive", ok, NULL, {"Connection: Keep-Alive"}},
        {"close", ok, NULL, {"Connection: close"}},
        {"TE", ok, NULL, {"Connection: TE, close"}},
        {"two lines", ok, NULL, {"Connection: close", "Connection: te"}},
        {"three lines", ok, NULL, {"Connection: close", "Connection: close", "Connection: te"}},
        {"Cookie in a third line", bad, NULL, {"Connection: close", "Connection: te", "Connection: Cookie"}},
        {"an offer", ok, NULL, {"Connection: Upgrade, HTTP2-Settings"}},
        {"Authorization", bad, NULL, {"Connection: close, Authorization"}},
        {"Cookie in a second line", bad, NULL, {"Connection: close", "Connection: cookie"}},
        {"a header of the application", bad, NULL, {"Connection: X-App"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        struct header_line lines[LINES];
        struct request request;
        const char *why;
        request_make(&plain[i], lines, &request);
        if (upgrade_connection(&request, &why) != plain[i].refusal)
            fail_msg("%s", plain[i].what);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(judges_every_defect),
        cmocka_unit_test(an_upgrade_is_claimed_by_any_of_its_headers),
        cmocka_unit_test(a_plain_connection_names_hop_by_hop_headers_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
