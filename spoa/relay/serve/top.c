/* SPDX-License-Identifier: MIT */
#include "spoa/relay/serve/top.h"

#include <stdlib.h>

#include "spoa/base/bytes/ascii.h"
#include "spoa/base/json/json_write.h"
#include "spoa/relay/tunnel_io/tunnel_io.h"
#include "spoa/relay/tunnel_io/tunnel_stats.h"

enum { DESCRIBED_MOST = 8192, ENDS_SHOWN = TOP_ENDS, GAPS_MOST = 32 };

struct row {
    uint64_t key;
    const struct tunnel_seat *io; /* tunnel of the thread that is being read; NULL once `text` describes it */
    struct buffer text;
};

struct top {
    struct top_question question;
    uint64_t matching;
    bool good;
    size_t count;
    struct row rows[TOP_ROWS_MOST]; /* a heap, the smallest first */
    size_t ends_count;
    struct top_end ends[ENDS_SHOWN]; /* the newest first */
};

/* ---- the question ---- */
static const char *const orders[] = {
#define X(name) #name,
    TOP_ORDERS(X)
#undef X
};

static bool read_order(struct slice text, enum top_order *order, struct fail *why)
{
    for (unsigned i = 0; i < TOP_ORDERS_COUNT; i++) {
        if (slice_is(text, orders[i])) {
            *order = (enum top_order)i;
            return true;
        }
    }
    return fail(why, "sort is one of held, age, idle, bytes, redials, gap");
}

static bool read_rows(struct slice text, size_t *rows, struct fail *why)
{
    uint64_t n;
    if (!slice_u64(text, TOP_ROWS_MOST, &n))
        return fail(why, "rows is a number up to %d", TOP_ROWS_MOST);
    *rows = (size_t)n;
    return true;
}

bool top_question(struct top_question *q, struct slice sort, struct slice rows, struct slice filter,
                  struct fail *why)
{
    *q = (struct top_question){.order = TOP_held, .rows = TOP_ROWS};
    if (filter.len > TOP_FILTER)
        return fail(why, "filter is longer than %d bytes", TOP_FILTER);
    for (size_t i = 0; i < filter.len; i++)
        q->filter[i] = ascii_lower(filter.at[i]);
    q->filter_len = filter.len;
    return (!slice_present(sort) || read_order(sort, &q->order, why)) &&
           (!slice_present(rows) || read_rows(rows, &q->rows, why));
}

/* Decodes the escapes of an HTML form: %41 for a byte, + for a space. A '%' without two hexadecimal digits stays. */
static struct slice unescape(struct slice text, uint8_t *memory, size_t room)
{
    size_t len = 0;
    for (size_t i = 0; i < text.len && len < room; i++) {
        int high = text.at[i] == '%' && i + 2 < text.len ? ascii_hex_value(text.at[i + 1]) : -1;
        int low = high >= 0 ? ascii_hex_value(text.at[i + 2]) : -1;
        memory[len++] = low >= 0 ? (uint8_t)(high * 16 + low) : text.at[i] == '+' ? ' ' : text.at[i];
        i += low >= 0 ? 2 : 0;
    }
    return slice_of(memory, len);
}

bool top_question_query(struct top_question *q, struct slice query, struct fail *why)
{
    struct slice sort = {NULL, 0}, rows = sort, filter = sort, pair, name;
    uint8_t memory[TOP_FILTER + 1];

    while (slice_present(query) && query.len) {
        slice_split(&query, '&', &pair);
        slice_split(&pair, '=', &name);
        struct slice value = slice_present(pair) ? pair : SLICE_LITERAL("");
        if (slice_is(name, "sort"))
            sort = value;
        else if (slice_is(name, "rows"))
            rows = value;
        else if (slice_is(name, "filter"))
            filter = unescape(value, memory, sizeof memory);
    }
    return top_question(q, sort, rows, filter, why);
}

/* ---- which tunnels ---- */
static bool holds(struct slice text, struct slice part)
{
    for (size_t i = 0; i + part.len <= text.len; i++) {
        size_t same = 0;
        while (same < part.len && ascii_lower(text.at[i + same]) == part.at[same])
            same++;
        if (same == part.len)
            return true;
    }
    return false;
}

static bool fits(const struct top_question *q, const struct tunnel_stats *s)
{
    struct slice part = slice_of(q->filter, q->filter_len);
    const struct handover handover = upgrade_handover(s->upgrade), *h = &handover;
    const struct slice texts[] = {
        h->sandbox, h->space, h->route, h->session,
        h->org,     h->sub,   h->id,    slice_text(tunnel_state_names[s->tunnel->state])};
    char text[NET_TEXT];

    if (!part.len)
        return true;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (holds(texts[i], part))
            return true;
    if (holds(slice_text(tunnel_stats_worker(s, text)), part))
        return true;
    tunnel_stats_id(s, text);
    return slice_equal(slice_text(text), part);
}

static uint64_t key_of(const struct tunnel_stats *s, enum top_order order, uint64_t now)
{
    const struct tunnel *t = s->tunnel;

    switch (order) {
    case TOP_held:
        return s->use.held;
    case TOP_age:
        return now - t->opened;
    case TOP_idle:
        return now - t->forward.used;
    case TOP_bytes:
        return t->forward.legs[WORKER].bytes_out + t->forward.legs[CLIENT].bytes_out;
    case TOP_redials:
        return t->redials;
    default:
        return t->longest_gap;
    }
}

static void swap(struct row *a, struct row *b)
{
    struct row before = *a;
    *a = *b;
    *b = before;
}

static void sink(struct row *rows, size_t count, size_t at)
{
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (rows[child].key < rows[least].key)
                least = child;
        if (least == at)
            return;
        swap(&rows[at], &rows[least]);
        at = least;
    }
}

static void offer(struct top *top, uint64_t key, const struct tunnel_seat *io)
{
    if (top->count == top->question.rows) {
        if (!top->count || key <= top->rows[0].key)
            return;
        buffer_free(&top->rows[0].text);
        top->rows[0] = (struct row){key, io, buffer_with_limit(DESCRIBED_MOST)};
        sink(top->rows, top->count, 0);
        return;
    }
    size_t at = top->count++;
    top->rows[at] = (struct row){key, io, buffer_with_limit(DESCRIBED_MOST)};
    for (; at && top->rows[at].key < top->rows[(at - 1) / 2].key; at = (at - 1) / 2)
        swap(&top->rows[at], &top->rows[(at - 1) / 2]);
}

/* ---- on a thread ---- */
/* Cut: clients choose how long some of these are, and the answer is to stay small. */
static bool put_name(struct buffer *to, const char *key, struct slice value)
{
    return !slice_present(value) ||
           (json_write(to, ",\"%s\":", key) && json_write_text(to, slice_sub(value, 0, TOP_END_NAME)));
}

static bool describe(const struct tunnel_stats *s, uint64_t now, struct buffer *to)
{
    const struct tunnel *t = s->tunnel;
    const struct handover handover = upgrade_handover(s->upgrade), *h = &handover;
    char text[NET_TEXT];

    tunnel_stats_id(s, text);
    return json_write(to, "{\"id\":\"%s\",\"state\":\"%s\"", text, tunnel_state_names[t->state]) &&
           put_name(to, "route", h->route) && put_name(to, "sandbox", h->sandbox) &&
           put_name(to, "namespace", h->space) && put_name(to, "org", h->org) &&
           put_name(to, "worker", slice_text(tunnel_stats_worker(s, text))) &&
           json_write(to, ",\"age\":%.3f,\"idle\":%.3f,\"to_worker\":%llu,\"to_client\":%llu,\"held\":%llu,",
                      (double)(now - t->opened) / 1e6, (double)(now - t->forward.used) / 1e6,
                      (unsigned long long)t->forward.legs[WORKER].bytes_out,
                      (unsigned long long)t->forward.legs[CLIENT].bytes_out,
                      (unsigned long long)s->use.held) &&
           json_write(to, "\"redials\":%u,\"longest_gap\":%.3f}", t->redials, (double)t->longest_gap / 1e6);
}

static void take_ends(struct top *top, const struct top_ends *ends)
{
    const struct top_end *end;

    for (size_t i = 0; (end = top_ends_newest(ends, i)); i++) {
        size_t at = top->ends_count < ENDS_SHOWN ? top->ends_count++ : ENDS_SHOWN - 1;
        if (at == ENDS_SHOWN - 1 && top->ends[at].at >= end->at)
            return;
        for (; at && top->ends[at - 1].at < end->at; at--)
            top->ends[at] = top->ends[at - 1];
        top->ends[at] = *end;
    }
}

void top_look(struct relay_thread *thread, void *context)
{
    struct top *top = context;
    uint64_t now = loop_clock();
    struct tunnel_visit visit;
    struct tunnel_head head;

    for (struct tunnel_seat *p = thread->tunnels; p; p = tunnel_io_next(p)) {
        tunnel_visit(p, &visit, head.memory);
        if (!fits(&top->question, &visit.stats))
            continue;
        top->matching++;
        offer(top, key_of(&visit.stats, top->question.order, now), p);
    }
    for (size_t i = 0; i < top->count; i++) {
        struct row *row = &top->rows[i];
        if (!row->io)
            continue;
        tunnel_visit(row->io, &visit, head.memory);
        top->good = describe(&visit.stats, loop_clock(), &row->text) && top->good;
        row->io = NULL;
    }
    take_ends(top, &thread->ends);
}

/* ---- the answer ---- */
struct top *top_new(const struct top_question *question)
{
    struct top *top = calloc(1, sizeof *top);
    if (top) {
        top->question = *question;
        top->good = true;
    }
    return top;
}

void top_free(struct top *top)
{
    for (size_t i = 0; top && i < top->count; i++)
        buffer_free(&top->rows[i].text);
    free(top);
}

static int by_key(const void *a, const void *b)
{
    uint64_t one = ((const struct row *)a)->key, other = ((const struct row *)b)->key;
    return one < other ? 1 : one > other ? -1 : 0;
}

static bool write_rows(struct top *top, struct buffer *to)
{
    bool good = json_write(to, "\"shown\":[");
    qsort(top->rows, top->count, sizeof top->rows[0], by_key);
    for (size_t i = 0; i < top->count && good; i++)
        good = (!i || json_write(to, ",")) && buffer_put(to, buffer_slice(&top->rows[i].text));
    return good && json_write(to, "]");
}

static bool write_ends(const struct top *top, struct buffer *to)
{
    bool good = json_write(to, ",\"ends\":[");
    for (size_t i = 0; i < top->ends_count && good; i++) {
        const struct top_end *e = &top->ends[i];
        good =
            json_write(to, "%s{\"id\":\"%s\",\"reason\":\"%s\",\"at\":%.3f,\"sandbox\":", i ? "," : "", e->id,
                       close_reason_info((enum close_reason)e->reason)->name, (double)e->at / 1e3) &&
            json_write_text(to, slice_of(e->sandbox, e->sandbox_len)) && json_write(to, ",\"route\":") &&
            json_write_text(to, slice_of(e->route, e->route_len)) &&
            json_write(to, ",\"age\":%.3f,\"redials\":%u,\"longest_gap\":%.3f}", (double)e->age / 1e6,
                       e->redials, (double)e->longest_gap / 1e6);
    }
    return good && json_write(to, "]");
}

static bool write_sandboxes(struct limits *limits, struct buffer *to)
{
    struct limits_busy busy[TOP_SANDBOXES];
    size_t count = limits_busiest(limits, busy, TOP_SANDBOXES);
    bool good = json_write(to, ",\"sandboxes\":[");
    for (size_t i = 0; i < count && good; i++)
        good = json_write(to, "%s{\"tunnels\":%llu,\"sandbox\":", i ? "," : "",
                          (unsigned long long)busy[i].tunnels) &&
               json_write_text(to, slice_of(busy[i].name, busy[i].len)) && json_write(to, "}");
    return good && json_write(to, "]");
}

bool top_write(struct top *top, struct limits *limits, struct buffer *to)
{
    return top->good &&
           json_write(to, "\"sort\":\"%s\",\"matching\":%llu,", orders[top->question.order],
                      (unsigned long long)top->matching) &&
           write_rows(top, to) && write_ends(top, to) && write_sandboxes(limits, to);
}

/* ---- what is counted ---- */
static bool write_gaps(struct metrics *metrics, struct buffer *to)
{
    int64_t counts[GAPS_MOST];
    size_t count = metrics_buckets(metrics, METRIC_GAP, METRIC_PLAIN, counts, GAPS_MOST);
    const double *bounds = relay_metrics_gaps;
    bool good = json_write(to, "\"gaps\":[");
    for (size_t i = 0; i < count && i < GAPS_MOST && good; i++) {
        bool last = bounds[i] == 0;
        good = json_write(to, "%s{\"up_to\":", i ? "," : "") &&
               (last ? json_write(to, "null") : json_write(to, "%g", bounds[i])) &&
               json_write(to, ",\"count\":%lld}", (long long)counts[i]);
    }
    return good && json_write(to, "]");
}

static bool write_redials(struct metrics *metrics, struct buffer *to)
{
    bool good = json_write(to, ",\"redials_by_cause\":{");
    for (unsigned cause = 0; loss_names[cause] && good; cause++)
        good =
            json_write(to, "%s\"%s\":{\"resumed\":%lld,\"failed\":%lld}", cause ? "," : "", loss_names[cause],
                       (long long)metrics_value(metrics, METRIC_REDIALS, METRIC_INDEX(cause, REDIAL_RESUMED)),
                       (long long)metrics_value(metrics, METRIC_REDIALS, METRIC_INDEX(cause, REDIAL_FAILED)));
    return good && json_write(to, "}");
}

/* Writes an object with the counters that are not 0. */
static bool write_sums(const char *name, const char *const *values,
                       int64_t (*sum)(struct relay_metrics *m, unsigned i), struct relay_metrics *metrics,
                       struct buffer *to)
{
    bool good = json_write(to, ",\"%s\":{", name), any = false;
    for (unsigned i = 0; values[i] && good; i++) {
        int64_t count = sum(metrics, i);
        if (count)
            good = json_write(to, "%s\"%s\":%lld", any ? "," : "", values[i], (long long)count);
        any = any || count;
    }
    return good && json_write(to, "}");
}

static int64_t refused(struct relay_metrics *metrics, unsigned error)
{
    return metrics_value(relay_metrics_metrics(metrics), METRIC_REFUSED, METRIC_INDEX(error));
}

bool top_write_counts(struct relay_metrics *m, struct buffer *to)
{
    struct metrics *metrics = relay_metrics_metrics(m);
    return write_gaps(metrics, to) && write_redials(metrics, to) &&
           write_sums("reasons", close_reason_names, relay_metrics_ended, m, to) &&
           write_sums("refused", relay_metrics_refusals, refused, m, to) &&
           json_write(to, ",\"opened\":%lld,\"bytes_to_worker\":%lld,\"bytes_to_client\":%lld",
                      (long long)relay_metrics_opened(m),
                      (long long)metrics_value(metrics, METRIC_BYTES, METRIC_INDEX(BYTES_TO_WORKER)),
                      (long long)metrics_value(metrics, METRIC_BYTES, METRIC_INDEX(BYTES_TO_CLIENT)));
}
