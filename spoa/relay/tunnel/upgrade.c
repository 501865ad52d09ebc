/* SPDX-License-Identifier: MIT */
#include "spoa/relay/tunnel/upgrade.h"

#include "spoa/proto/ws.h"

#include <stdio.h>
#include <stdlib.h>

#define PROTOCOL_CELLGATE SLICE_LITERAL("cellgate")
#define FIELD_RESUME      SLICE_LITERAL("cell-resume")
#define PROTOCOL_RESUME   SLICE_LITERAL("cell-resume.1")

/* ---- fields ---- */

/* Returns true for fields that are forwarded. Fields that concern one connection, or that the relay writes itself, are not. */
static bool is_passed(struct slice name)
{
    static const struct slice own[] = {
        SLICE_STATIC("connection"), SLICE_STATIC("content-length"), SLICE_STATIC("host"),
        SLICE_STATIC("http2-settings"), SLICE_STATIC("keep-alive"),
        /* CGI programs would see this as the variable HTTP_PROXY */
        SLICE_STATIC("proxy"), SLICE_STATIC("proxy-authenticate"), SLICE_STATIC("proxy-authorization"),
        SLICE_STATIC("proxy-connection"), SLICE_STATIC("te"), SLICE_STATIC("trailer"),
        SLICE_STATIC("transfer-encoding"), SLICE_STATIC("upgrade")};

    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (http_same_name(name, own[i]))
            return false;
    return !http_name_starts(name, "x-cell-") && !http_name_starts(name, "sec-websocket-");
}

static void put_field(struct writer *w, struct slice name, struct slice value)
{
    writer_put(w, name);
    writer_text(w, ": ");
    writer_put(w, value);
    writer_text(w, "\r\n");
}

static bool in_list(struct slice list, struct slice name)
{
    struct slice part;

    while (slice_split(&list, ',', &part))
        if (http_same_name(part, name))
            return true;
    return false;
}

static bool has_field(struct slice fields, struct slice wanted)
{
    struct slice name, value;

    while (target_header(&fields, &name, &value))
        if (http_same_name(name, wanted))
            return true;
    return false;
}

/* Writes the fields of a worker's head for the client, without the credentials that the relay gave to the worker. */
static void put_passed(const struct upgrade *u, const struct target *from, const struct http_head *head,
                       struct writer *w)
{
    for (size_t i = 0; i < head->count; i++) {
        const struct http_field *field = &head->fields[i];
        bool resume = http_same_name(field->name, FIELD_RESUME);
        if (is_passed(field->name) && !has_field(from->headers, field->name) &&
            (u->client_resumes || !resume))
            put_field(w, field->name, field->value);
    }
}

/* ---- the client's request ---- */
static enum refusal refusal_of(unsigned status)
{
    return status == 405   ? REFUSAL_method_not_allowed
           : status == 426 ? REFUSAL_upgrade_version
                           : REFUSAL_bad_request;
}

static struct slice keep(struct writer *w, struct slice text)
{
    size_t start = w->len;
    writer_put(w, text);
    return slice_present(text) ? slice_of(w->at + start, text.len) : text;
}

/* Joins all lines of Sec-WebSocket-Protocol to one list. */
static struct slice keep_protocols(struct writer *w, const struct http_head *head)
{
    size_t start = w->len;

    for (size_t i = 0; i < head->count; i++) {
        if (!slice_equal_nocase(head->fields[i].name, SLICE_LITERAL("sec-websocket-protocol")))
            continue;
        if (w->len > start)
            writer_text(w, ", ");
        writer_put(w, head->fields[i].value);
    }
    return w->len > start ? slice_of(w->at + start, w->len - start) : slice_text(NULL);
}

/* Returns the value to forward. The Referer loses its query and fragment, because a page's address may hold a credential there. */
static struct slice passed_value(const struct http_field *field)
{
    struct slice value = field->value;
    if (!http_same_name(field->name, SLICE_LITERAL("referer")))
        return value;
    value = slice_sub(value, 0, slice_find(value, '?'));
    return slice_sub(value, 0, slice_find(value, '#'));
}

/* Copies the forwarded fields, except those in `strip`. */
static struct slice keep_fields(struct writer *w, const struct http_head *head, struct slice strip)
{
    size_t start = w->len;

    for (size_t i = 0; i < head->count; i++) {
        const struct http_field *field = &head->fields[i];
        struct slice value = passed_value(field);
        if (!is_passed(field->name) || in_list(strip, field->name))
            continue;
        writer_be(w, field->name.len, 2);
        writer_put(w, field->name);
        writer_be(w, value.len, 2);
        writer_put(w, value);
    }
    return slice_of(w->at + start, w->len - start);
}

static struct slice query_of(struct slice target)
{
    return slice_from(target, slice_find(target, '?') + 1);
}

static struct slice parameter_name(struct slice parameter)
{
    return slice_sub(parameter, 0, slice_find(parameter, '='));
}

static bool has_parameter(struct slice query, struct slice name)
{
    struct slice part;

    while (slice_split(&query, '&', &part))
        if (slice_equal(parameter_name(part), name))
            return true;
    return false;
}

/* Returns true if the client speaks Cell-Resume: by the header, or by both the subprotocol and the parameter, which browsers use. */
static bool speaks_resume(const struct upgrade *u)
{
    return has_field(u->fields, FIELD_RESUME) ||
           (ws_handshake_offers(u->protocols, PROTOCOL_RESUME) &&
            has_parameter(query_of(u->target), SLICE_LITERAL("cr_tunnel")));
}

/* Returns true if the handover's port and status are in range, because they are stored in narrower types. */
static bool fits(const struct handover *h)
{
    bool port = !h->addr.family || (h->addr_port > 0 && h->addr_port <= UINT16_MAX);
    return port && (h->refuse < 0 || (h->refuse >= 400 && h->refuse <= 599));
}

static bool fill(struct upgrade *u, const struct http_head *head, struct slice key, struct writer *w,
                 struct fail *why)
{
    if (http_count(head, HANDOVER_HEADER) != 1)
        return fail(why, "no " HANDOVER_HEADER ", or several");
    if (!handover_decode(&u->handover, http_get(head, HANDOVER_HEADER), w, why))
        return false;
    bool whose = slice_present(u->handover.sandbox) || slice_present(u->handover.mux);
    if (!slice_present(u->handover.route) || !whose)
        return fail(why, HANDOVER_HEADER " has no route or no sandbox");
    if (!fits(&u->handover))
        return fail(why, HANDOVER_HEADER " has a port or a status that is none");
    if (slice_present(u->handover.egress) && !u->handover.addr.family)
        return fail(why, HANDOVER_HEADER " says nothing of where it goes");
    u->target = keep(w, head->target);
    u->host = keep(w, http_get(head, "Host"));
    u->key = keep(w, key);
    u->protocols = keep_protocols(w, head);
    u->fields = keep_fields(w, head, u->handover.strip);
    u->client_resumes = u->handover.resume == HANDOVER_RESUME_CELL && speaks_resume(u);
    return !w->full || fail(why, "head is too large");
}

struct upgrade *upgrade_new(const struct http_head *head, enum refusal *refusal, struct fail *why)
{
    struct slice key;
    /* each line is stored as name and value with two lengths, which is no longer than the line with its end, except for a space after the
     * colon that may be missing */
    size_t size = head->len + head->count;

    unsigned status = ws_handshake_check_request(head, &key, why);
    *refusal = refusal_of(status);
    if (status)
        return NULL;
    struct upgrade *u = calloc(1, sizeof *u + size);
    if (!u) {
        *refusal = REFUSAL_relay_unavailable;
        fail(why, "out of memory");
        return NULL;
    }
    u->size = size;
    struct writer w = writer_of(u->memory, size);
    if (!fill(u, head, key, &w, why)) {
        free(u);
        return NULL;
    }
    return u;
}

/* ---- kept ---- */
#define KEPT_TEXTS(X) X(target) X(host) X(key) X(protocols) X(fields)

enum {
#define X(text) KEPT_##text,
    KEPT_TEXTS(X)
#undef X
        KEPT_handover,
    KEPT_COUNT
};

struct upgrade_kept {
    /* length plus one of each text in `memory`, in this order; 0 if the text is absent */
    uint32_t len[KEPT_COUNT];
    uint32_t selected_at, selected_len; /* offset and length of the selected subprotocol in the protocols */
    bool client_resumes;
    uint8_t memory[];
};

static uint32_t put_kept(struct writer *w, struct slice text)
{
    writer_put(w, text);
    return slice_present(text) ? (uint32_t)text.len + 1 : 0;
}

struct upgrade_kept *upgrade_keep(const struct upgrade *u)
{
    size_t size = u->size + HANDOVER_PACKED_MAX;
    struct upgrade_kept *kept = malloc(sizeof *kept + size);

    if (!kept)
        return NULL;
    *kept = (struct upgrade_kept){.client_resumes = u->client_resumes};
    struct writer w = writer_of(kept->memory, size);
#define X(text) kept->len[KEPT_##text] = put_kept(&w, u->text);
    KEPT_TEXTS(X)
#undef X
    size_t before = w.len;
    handover_pack(&u->handover, &w);
    kept->len[KEPT_handover] = (uint32_t)(w.len - before) + 1;
    upgrade_keep_selected(kept, u);
    struct upgrade_kept *smaller = realloc(kept, sizeof *kept + w.len);
    return smaller ? smaller : kept;
}

static size_t kept_len(const struct upgrade_kept *kept, unsigned which)
{
    return kept->len[which] ? kept->len[which] - 1 : 0;
}

static struct slice kept_text(const struct upgrade_kept *kept, unsigned which)
{
    size_t at = 0;

    if (!kept->len[which])
        return slice_text(NULL);
    for (unsigned i = 0; i < which; i++)
        at += kept_len(kept, i);
    return slice_of(kept->memory + at, kept_len(kept, which));
}

struct handover upgrade_handover(const struct upgrade_kept *kept)
{
    return handover_unpack(kept_text(kept, KEPT_handover));
}

struct upgrade upgrade_unpack(const struct upgrade_kept *kept)
{
    struct upgrade u = {.handover = upgrade_handover(kept), .client_resumes = kept->client_resumes};

#define X(text) u.text = kept_text(kept, KEPT_##text);
    KEPT_TEXTS(X)
#undef X
    if (kept->selected_len)
        u.selected = slice_sub(u.protocols, kept->selected_at, kept->selected_len);
    return u;
}

void upgrade_keep_selected(struct upgrade_kept *kept, const struct upgrade *u)
{
    if (slice_present(u->selected)) {
        kept->selected_at = (uint32_t)(u->selected.at - u->protocols.at);
        kept->selected_len = (uint32_t)u->selected.len;
    }
}

struct upgrade_kept *upgrade_with_handover(const struct upgrade_kept *kept, const struct handover *handover)
{
    struct upgrade u = upgrade_unpack(kept);

    u.handover = *handover;
    u.size = upgrade_kept_size(kept) + handover->org.len + handover->ticket.len;
    return upgrade_keep(&u);
}

size_t upgrade_kept_size(const struct upgrade_kept *kept)
{
    size_t size = sizeof *kept;

    for (unsigned i = 0; i < KEPT_COUNT; i++)
        size += kept_len(kept, i);
    return size;
}

/* Words that upgrades have in common, as `struct upgrade_kept` holds them: an address of the handover, and fields as HAProxy forwards
 * them, each text after its length in two bytes. If several places begin alike, only the first is found. */
static const char common_words[] =
    "\1\1\4\177\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\2"
    "\0\6pragma\0\10no-cache\0\15cache-control\0\10no-cache\0\12user-agent\0oMozilla/5.0 ("
    "Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
    "\0\6origin\0\30https://"
    "Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/"
    "X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
    "Version/26.0 Safari/605.1.15"
    "\0\17accept-encoding\0\27gzip, deflate, br, "
    "zstd\0\17accept-language\0\16en-US,en;q=0.9\0\15cache-control\0\10no-cache\0\6pragma\0\10no-cache"
    "\0\17x-forwarded-for\0\11"
    "127.0.0.1\0\20x-forwarded-host\0\11localhost"
    "\0\21x-forwarded-proto\0\4http\0\22x-forwarded-prefix\0\7/r/\0\14x-request-id\0$"
    "\0\21x-forwarded-proto\0\5https\0\22x-forwarded-prefix\0\0/"
    "\0\6origin\0\26http://localhost"
    "\0\12user-agent\0\30python-websockets/15.0\0\12user-agent\0\22Go-http-client/1.1\0\12user-agent\0\4node"
    "\0\6accept\0\3*/"
    "*\0\17accept-language\0\1*\0\16sec-fetch-dest\0\11websocket\0\16sec-fetch-mode\0\11websocket\0\16sec-"
    "fetch-site\0\11same-sitesame-origincross-site"
    "en-GB,en-US;q=0.9,en;q=0.8,de-DE,de;q=0.9,en-US;q=0.8,en;q=0.7"
    "\0\6cookie\0(\0\15authorization\0\310Bearer eyJ\0\20x-forwarded-port\0\3"
    "443\0\13traceparent\0"
    "700-\0\12tracestate\0\24"
    "cell-resume.1, cellgate.bearer.";

struct slice upgrade_words(void)
{
    return slice_of(common_words, sizeof common_words - 1);
}

bool upgrade_forget_key(struct upgrade_kept *kept)
{
    struct slice key = kept_text(kept, KEPT_key);

    if (!slice_present(key))
        return false;
    size_t from = (size_t)(key.at - kept->memory), behind = from + key.len;
    memmove(kept->memory + from, kept->memory + behind, upgrade_kept_size(kept) - sizeof *kept - behind);
    kept->len[KEPT_key] = 0;
    return true;
}

/* ---- as an image ---- */
enum { VERSION = 1, PACKED_MAX = IMAGE_PACK_MAX + IMAGE_PACK_MAX / 128 + 1 };

static bool holds(const void *object)
{
    const struct upgrade_kept *kept = object;

    return upgrade_kept_size(kept) <= UPGRADE_KEPT_MAX && kept->len[KEPT_handover] &&
           (uint64_t)kept->selected_at + kept->selected_len <= kept_len(kept, KEPT_protocols);
}

static const struct image_field kept_fields[] = {
    IMAGE_NUMBERS(struct upgrade_kept, len, UINT32_MAX),
    IMAGE_ANY(struct upgrade_kept, selected_at),
    IMAGE_ANY(struct upgrade_kept, selected_len),
    IMAGE_FLAG(struct upgrade_kept, client_resumes),
};
IMAGE_TABLE(upgrade_table, struct upgrade_kept, kept_fields, .holds = holds);

/* Writes the text packed, or unpacked if it is too long. */
bool upgrade_save(const struct upgrade_kept *kept, const struct image_words *words, struct buffer *to)
{
    static _Thread_local uint8_t memory[PACKED_MAX];
    struct writer w = writer_of(memory, sizeof memory);
    struct image image = image_to(to, VERSION, 0);
    struct slice text = slice_of(kept->memory, upgrade_kept_size(kept) - sizeof *kept);
    bool packs = text.len <= IMAGE_PACK_MAX;

    /* writing an image changes nothing in the upgrade */
    image_part(&image, &upgrade_table, (struct upgrade_kept *)kept);
    image_bit(&image, packs);
    if (packs)
        image_pack(words, text, &w);
    return image_done(&image) && buffer_put(to, packs ? writer_slice(&w) : text);
}

/* Reads the fields before the text. */
static bool read_front(struct slice saved, struct upgrade_kept *kept, bool *packed, struct slice *text)
{
    struct image image = image_from(saved, VERSION, 0);

    image_part(&image, &upgrade_table, kept);
    *packed = image_bit(&image, false);
    *text = image.from.rest;
    return !image.failed;
}

size_t upgrade_saved_size(struct slice saved)
{
    struct upgrade_kept front = {.client_resumes = false};
    struct slice text;
    bool packed;

    return read_front(saved, &front, &packed, &text) ? upgrade_kept_size(&front) : 0;
}

bool upgrade_load(struct slice saved, const struct image_words *words, struct upgrade_kept *kept)
{
    struct slice text;
    bool packed;

    *kept = (struct upgrade_kept){.client_resumes = false};
    if (!read_front(saved, kept, &packed, &text))
        return false;
    struct writer w = writer_of(kept->memory, upgrade_kept_size(kept) - sizeof *kept);
    if (!packed)
        writer_put(&w, text);
    bool whole = packed ? image_unpack(words, text, &w) : !w.full && w.len == w.size;
    if (!whole || !handover_is_packed(kept_text(kept, KEPT_handover)))
        return false;
    const struct handover handover = upgrade_handover(kept);
    return fits(&handover);
}

/* ---- to a worker ---- */

/* Returns the target with the parameters of `query`, which replace those with the same name. */
static struct slice with_query(struct slice target, struct slice query, struct writer *w)
{
    struct slice rest = query_of(target), part;
    char between = '?';

    if (!query.len)
        return target;
    writer_put(w, slice_sub(target, 0, slice_find(target, '?')));
    while (slice_split(&rest, '&', &part)) {
        if (!part.len || has_parameter(query, parameter_name(part)))
            continue;
        writer_u8(w, (uint8_t)between);
        writer_put(w, part);
        between = '&';
    }
    writer_u8(w, (uint8_t)between);
    writer_put(w, query);
    return writer_slice(w);
}

static struct slice host_for(const struct upgrade *u, const struct target *to)
{
    return slice_present(to->host) ? to->host : u->host;
}

/* Writes the client's fields and those of the record. A client's Cell-Resume is only for workers of routes that know it. */
static void put_fields(const struct upgrade *u, const struct target *to, struct writer *w)
{
    struct slice rest = u->fields, name, value;

    while (target_header(&rest, &name, &value))
        if (!has_field(to->headers, name) && (u->client_resumes || !http_same_name(name, FIELD_RESUME)) &&
            !(to->withhold && http_same_name(name, SLICE_LITERAL("authorization"))))
            put_field(w, name, value);
    for (rest = to->headers; target_header(&rest, &name, &value);)
        put_field(w, name, value);
}

void upgrade_request(const struct upgrade *u, const struct target *to, struct slice key, struct slice query,
                     struct slice fields, struct writer *w)
{
    uint8_t memory[HTTP_HEAD_MAX];
    struct writer target = writer_of(memory, sizeof memory);

    ws_handshake_put_request(w, with_query(u->target, query, &target), host_for(u, to), key, u->protocols);
    put_fields(u, to, w);
    writer_put(w, fields);
    writer_text(w, "\r\n");
    w->full = w->full || target.full;
}

void upgrade_probe(const struct upgrade *u, const struct target *to, struct slice target, struct writer *w)
{
    writer_text(w, "GET ");
    writer_put(w, target);
    writer_text(w, " HTTP/1.1\r\n");
    put_field(w, SLICE_LITERAL("Host"), host_for(u, to));
    put_field(w, SLICE_LITERAL("Connection"), SLICE_LITERAL("close"));
    put_fields(u, to, w);
    writer_text(w, "\r\n");
}

bool upgrade_check(struct upgrade *u, const struct http_head *answer, struct slice key, bool first,
                   struct fail *why)
{
    struct slice selected, part, offered = u->protocols;

    if (!ws_handshake_check_answer(answer, key, u->protocols, &selected, why))
        return false;
    if (!first)
        return slice_equal(selected, u->selected) ||
               fail(why, "another subprotocol than the worker before selected");
    /* point into the upgrade's own memory, which outlives the answer */
    while (slice_present(selected) && slice_split(&offered, ',', &part))
        if (slice_equal(slice_trim(part), selected))
            u->selected = slice_trim(part);
    return true;
}

/* ---- to the client ---- */
/* Returns the first offered subprotocol that is no token. A browser that offered subprotocols rejects a 101 without one, and would never
 * see the Close after it. */
static struct slice first_offered(const struct upgrade *u)
{
    struct slice offered = u->protocols, part;

    while (slice_split(&offered, ',', &part))
        if (!slice_starts(slice_trim(part), "cellgate.bearer."))
            return slice_trim(part);
    return slice_text(NULL);
}

bool upgrade_accept(const struct upgrade *u, const struct target *from, const struct http_head *answer,
                    struct writer *w)
{
    struct slice selected = u->selected;

    if (!slice_present(selected) && u->handover.select_cellgate)
        selected = PROTOCOL_CELLGATE;
    if (!slice_present(selected) && !answer)
        selected = first_offered(u);
    if (!ws_handshake_put_answer(w, u->key, selected))
        return false;
    if (answer)
        put_passed(u, from, answer, w);
    writer_text(w, "\r\n");
    return !w->full;
}

/* Writes a 101 and a Close. If SHA-1 fails, nothing is written and the connection ends. */
static void put_closed(const struct upgrade *u, unsigned status, struct slice code, struct writer *w)
{
    uint8_t frame[WS_CONTROL_FRAME_MAX];

    if (upgrade_accept(u, NULL, NULL, w))
        writer_put(w, slice_of(frame, ws_encode_close(frame, 4000 + status, code, NULL)));
}

void upgrade_pass_refusal(const struct upgrade *u, const struct target *from, const struct http_head *answer,
                          struct slice body, struct writer *w)
{
    bool error = answer->status >= 400 && answer->status <= 599;

    if (u->handover.close) {
        put_closed(u, error ? answer->status : 502, SLICE_LITERAL("worker_refused"), w);
        return;
    }
    writer_printf(w, "HTTP/1.1 %u ", answer->status);
    writer_put(w, answer->reason);
    writer_text(w, "\r\n");
    put_passed(u, from, answer, w);
    if (answer->status != 204 && answer->status != 304)
        writer_printf(w, "Content-Length: %zu\r\n", body.len);
    writer_text(w, "Connection: close\r\n\r\n");
    writer_put(w, body);
}

void upgrade_refuse(const struct upgrade *u, enum refusal refusal, struct writer *w)
{
    const struct refusal_info *info = refusal_info(refusal);
    char body[512];

    if (u && u->handover.close) {
        put_closed(u, (unsigned)info->status, slice_text(info->code), w);
        return;
    }
    int len = snprintf(body, sizeof body, "{\"error\":\"%s\",\"message\":\"%s\",\"retryable\":%s}",
                       info->code, info->sentence, info->retryable ? "true" : "false");

    writer_printf(w,
                  "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
                  "Cache-Control: no-store\r\nConnection: close\r\n",
                  info->status, info->code, len);
    if (info->status == 401)
        writer_text(w, "WWW-Authenticate: Bearer\r\n");
    if (info->status == 405)
        writer_text(w, "Allow: GET\r\n");
    if (info->status == 426)
        writer_text(w, "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n");
    if (info->retryable)
        writer_printf(w, "Retry-After: %d\r\n", info->retry_after);
    writer_text(w, "\r\n");
    writer_put(w, slice_of(body, (size_t)len));
}
