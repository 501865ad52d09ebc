/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/top_frame.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "spoa/base/bytes/writer.h"
#include "spoa/base/json/json_string.h"

enum { LINE = 1024, BAR = 20, ENDS_ON_SCREEN = 5, NAME = 20 };

struct frame {
    struct top_screen screen;
    struct buffer *to;
    bool good;
    size_t used; /* lines */
    uint8_t memory[LINE];
    struct writer line;
};

/* ---- lines ---- */

static bool is_full(const struct frame *f)
{
    return f->screen.rows && f->used >= f->screen.rows;
}

/* Ends a line. On a screen the rest of the line is cleared first, because that is impossible after the last column. The last line has no
 * line end, because that would scroll. */
static void end_line(struct frame *f)
{
    struct slice text = writer_slice(&f->line);
    while (text.len && text.at[text.len - 1] == ' ')
        text.len--;
    bool first = f->used == 0, screen = f->screen.columns > 0;
    if (!is_full(f)) {
        f->good = f->good && (!screen || first || buffer_put(f->to, SLICE_LITERAL("\r\n"))) &&
                  (!screen || buffer_put(f->to, SLICE_LITERAL("\x1b[K"))) &&
                  buffer_put(f->to, slice_sub(text, 0, screen ? f->screen.columns : text.len)) &&
                  (screen || buffer_put(f->to, SLICE_LITERAL("\n")));
        f->used++;
    }
    f->line = writer_of(f->memory, sizeof f->memory);
}

/* Prints one column for each character; '?' replaces characters that are not ASCII or that a terminal would obey. */
static void put(struct frame *f, struct slice text, size_t width)
{
    size_t columns = 0, most = width ? width : LINE;
    while (text.len && columns < most) {
        size_t len = text.at[0] < 0x80 ? 1 : json_string_utf8(text);
        bool plain = len == 1 && text.at[0] >= ' ' && text.at[0] < 0x7f;
        writer_u8(&f->line, plain ? text.at[0] : '?');
        text = slice_from(text, len ? len : 1);
        columns++;
    }
    for (; columns < width; columns++)
        writer_u8(&f->line, ' ');
}

__attribute__((format(printf, 2, 3))) static void say(struct frame *f, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    put(f, slice_text(text), 0);
}

/* ---- values ---- */

/* Limit above any real counter; a larger number does not come from a daemon of cellgate. */
#define NUMBER_MOST ((int64_t)1 << 53)

static int64_t number(const struct json *doc, const json_node *object, const char *key)
{
    int64_t value = 0;
    (void)json_int(doc, json_member(object, key), -NUMBER_MOST, NUMBER_MOST, &value);
    return value;
}

static double real(const json_node *object, const char *key)
{
    double value = 0;
    (void)json_real(json_member(object, key), &value);
    return value;
}

static struct slice text_of(const json_node *object, const char *key)
{
    struct slice value = {NULL, 0};
    (void)json_text(json_member(object, key), &value);
    return value;
}

static const char *bytes(double n, char text[static 16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    for (; n >= 1024 && unit < 4; unit++)
        n /= 1024;
    snprintf(text, 16, unit ? "%.1f %s" : "%.0f %s", n < 99999 ? n : 99999, units[unit]);
    return text;
}

static const char *duration(double seconds, char text[static 16])
{
    double shown = seconds < 1      ? seconds * 1e3
                   : seconds < 120  ? seconds
                   : seconds < 7200 ? seconds / 60
                                    : seconds / 3600;
    const char *unit = seconds < 1 ? "ms" : seconds < 120 ? "s" : seconds < 7200 ? "min" : "h";
    int digits = seconds < 0.001 ? 2 : seconds < 0.01 ? 1 : seconds < 1 ? 0 : 1;
    snprintf(text, 16, "%.*f %s", digits, shown < 99999 ? shown : 99999, unit);
    return text;
}

void top_frame_sums(const struct top_view *view, int64_t at, struct top_sums *sums)
{
    *sums = (struct top_sums){.at = at};
    if (view->relay) {
        const json_node *relay = json_root(view->relay);
        sums->opened = number(view->relay, relay, "opened");
        for (const json_node *n = json_first(json_member(relay, "reasons")); n; n = json_next(n)) {
            int64_t count = 0;
            (void)json_int(view->relay, n, 0, NUMBER_MOST, &count);
            sums->ended = sums->ended < NUMBER_MOST ? sums->ended + count : sums->ended;
        }
        sums->to_worker = number(view->relay, relay, "bytes_to_worker");
        sums->to_client = number(view->relay, relay, "bytes_to_client");
    }
    if (view->agent)
        sums->decisions = number(view->agent, json_member(json_root(view->agent), "status"), "decisions");
}

/* Returns the rate. A restarted daemon counts from 0. */
static double rate(const struct top_view *view, int64_t now, int64_t before)
{
    int64_t passed = view->now.at - view->before.at;
    return view->before.at && passed > 0 && now > before ? (double)(now - before) * 1e6 / (double)passed : 0;
}

/* ---- parts ---- */

static void put_state(struct frame *f, const char *daemon, const json_node *object)
{
    say(f, "%s: ", daemon);
    put(f, object ? text_of(object, "state") : SLICE_LITERAL("does not answer"), 0);
    say(f, "   ");
}

static void put_error(struct frame *f, const char *daemon, const struct json *doc, const char *error)
{
    if (doc || !error)
        return;
    say(f, "%-10s", daemon);
    put(f, slice_text(error), 0);
    end_line(f);
}

static void put_heading(struct frame *f, const struct top_view *view)
{
    const json_node *agent = view->agent ? json_member(json_root(view->agent), "status") : NULL;
    say(f, "cellgate top   ");
    put_state(f, "relay", view->relay ? json_root(view->relay) : NULL);
    put_state(f, "agent", agent);
    if (agent) {
        const json_node *directory = json_member(agent, "directory");
        bool up = false;
        (void)json_bool(json_member(directory, "up"), &up);
        say(f, "cell: ");
        put(f, text_of(agent, "cell"), 0);
        say(f, "   directory: ");
        put(f, text_of(directory, "kind"), 0);
        say(f, " %s, %" PRId64 " records", up ? "up" : "down", number(view->agent, agent, "records"));
    }
    end_line(f);
}

static void put_bar(struct frame *f, int64_t part, int64_t all)
{
    double share = all > 0 ? (double)part / (double)all : 0;
    say(f, " [");
    for (int i = 0; i < BAR; i++)
        say(f, "%c", share * BAR > i ? '#' : '.');
    say(f, "] %3.0f %%   ", share < 9 ? share * 100 : 900);
}

static void put_limits(struct frame *f, const struct json *doc)
{
    const json_node *relay = json_root(doc);
    int64_t tunnels = number(doc, relay, "tunnels"), most = number(doc, relay, "max_tunnels");
    int64_t held = number(doc, relay, "held"), memory = number(doc, relay, "memory");
    char one[16], other[16];
    say(f, "tunnels   %" PRId64 " of %" PRId64, tunnels, most);
    put_bar(f, tunnels, most);
    say(f, "held %s of %s", bytes((double)held, one), bytes((double)memory, other));
    put_bar(f, held, memory);
    end_line(f);
}

static void put_rates(struct frame *f, const struct top_view *view)
{
    const struct top_sums *now = &view->now, *before = &view->before;
    char one[16], other[16];
    if (!before->at)
        return;
    say(f, "a second  opened %.1f, ended %.1f, to workers %s, to clients %s, decisions %.1f",
        rate(view, now->opened, before->opened), rate(view, now->ended, before->ended),
        bytes(rate(view, now->to_worker, before->to_worker), one),
        bytes(rate(view, now->to_client, before->to_client), other),
        rate(view, now->decisions, before->decisions));
    end_line(f);
}

static void put_redials(struct frame *f, const struct json *doc)
{
    say(f, "redials   ");
    for (const json_node *n = json_first(json_member(json_root(doc), "redials_by_cause")); n;
         n = json_next(n)) {
        int64_t failed = number(doc, n, "failed");
        put(f, slice_text(json_key(n)), 0);
        say(f, " %" PRId64, number(doc, n, "resumed") + failed);
        if (failed)
            say(f, " (%" PRId64 " failed)", failed);
        say(f, "   ");
    }
    end_line(f);
}

static void put_gaps(struct frame *f, const struct json *doc)
{
    bool any = false;
    char text[16];
    say(f, "gaps      ");
    for (const json_node *n = json_first(json_member(json_root(doc), "gaps")); n; n = json_next(n)) {
        double up_to;
        int64_t count = number(doc, n, "count");
        if (!count)
            continue;
        any = true;
        if (json_real(json_member(n, "up_to"), &up_to))
            say(f, "up to %s: %" PRId64 "   ", duration(up_to, text), count);
        else
            say(f, "longer: %" PRId64 "   ", count);
    }
    if (!any)
        say(f, "none");
    end_line(f);
}

/* Prints the members of an object, each with its number. */
static void put_counts(struct frame *f, const char *title, const struct json *doc, const char *key)
{
    const json_node *first = json_first(json_member(json_root(doc), key));
    say(f, "%s", title);
    for (const json_node *n = first; n; n = json_next(n)) {
        int64_t count = 0;
        (void)json_int(doc, n, INT64_MIN, INT64_MAX, &count);
        put(f, slice_text(json_key(n)), 0);
        say(f, " %" PRId64 "   ", count);
    }
    if (!first)
        say(f, "none");
    end_line(f);
}

static void put_sandboxes(struct frame *f, const struct json *doc)
{
    const json_node *first = json_first(json_member(json_root(doc), "sandboxes"));
    say(f, "most in   ");
    for (const json_node *n = first; n; n = json_next(n)) {
        struct slice name = text_of(n, "sandbox");
        put(f, slice_sub(name, 0, NAME), 0);
        say(f, " (%" PRId64 ")   ", number(doc, n, "tunnels"));
    }
    if (!first)
        say(f, "none");
    end_line(f);
}

static void put_ends(struct frame *f, const struct json *doc)
{
    size_t left = f->screen.rows ? ENDS_ON_SCREEN : SIZE_MAX;
    char age[16], clock[16];
    end_line(f);
    say(f, "%-9s %-18s %-*s %-18s %10s %8s", "ENDED", "REASON", NAME, "SANDBOX", "ROUTE", "AGE", "REDIALS");
    end_line(f);
    for (const json_node *n = json_first(json_member(json_root(doc), "ends")); n && left;
         n = json_next(n), left--) {
        double at = real(n, "at");
        time_t seconds = at > 0 && at < 1e11 ? (time_t)at : 0;
        struct tm local;
        if (!localtime_r(&seconds, &local) || !strftime(clock, sizeof clock, "%H:%M:%S", &local))
            clock[0] = '\0';
        say(f, "%-9s ", clock);
        put(f, text_of(n, "reason"), 18);
        say(f, " ");
        put(f, text_of(n, "sandbox"), NAME);
        say(f, " ");
        put(f, text_of(n, "route"), 18);
        say(f, " %10s %8" PRId64, duration(real(n, "age"), age), number(doc, n, "redials"));
        end_line(f);
    }
}

/* Prints a tunnel, with the most important columns first, because a narrow screen cuts the rest. */
static void put_tunnel(struct frame *f, const struct json *doc, const json_node *t)
{
    char age[16], idle[16], up[16], down[16], held[16], gap[16];
    put(f, text_of(t, "id"), 9);
    say(f, " ");
    put(f, text_of(t, "sandbox"), NAME);
    say(f, " %8s %8s %9s %7" PRId64 " %8s ", duration(real(t, "age"), age), duration(real(t, "idle"), idle),
        bytes((double)number(doc, t, "held"), held), number(doc, t, "redials"),
        duration(real(t, "longest_gap"), gap));
    put(f, text_of(t, "state"), 11);
    say(f, " ");
    put(f, text_of(t, "route"), 14);
    say(f, " ");
    put(f, text_of(t, "worker"), 21);
    say(f, " %10s %10s", bytes((double)number(doc, t, "to_worker"), up),
        bytes((double)number(doc, t, "to_client"), down));
    end_line(f);
}

static void put_tunnels(struct frame *f, const struct json *doc)
{
    const json_node *first = json_first(json_member(json_root(doc), "shown"));
    end_line(f);
    say(f, "%-9s %-*s %8s %8s %9s %7s %8s %-11s %-14s %-21s %10s %10s", "TUNNEL", NAME, "SANDBOX", "AGE",
        "IDLE", "HELD", "REDIALS", "GAP", "STATE", "ROUTE", "WORKER", "TO WORKER", "TO CLIENT");
    end_line(f);
    for (const json_node *t = first; t && !is_full(f); t = json_next(t))
        put_tunnel(f, doc, t);
}

static void put_footer(struct frame *f, const struct top_view *view)
{
    if (view->edits)
        say(f, "filter: ");
    else
        say(f, "q quits   s sorts: %s   / filters: ", view->sort);
    put(f, view->filter, 0);
    if (view->edits)
        say(f, "_   (Enter: keep, Esc: none)");
    if (view->relay)
        say(f, "   %" PRId64 " fit", number(view->relay, json_root(view->relay), "matching"));
    end_line(f);
}

bool top_frame(const struct top_view *view, struct top_screen screen, struct buffer *to)
{
    struct frame f = {.screen = screen, .to = to, .good = true};
    f.line = writer_of(f.memory, sizeof f.memory);
    if (screen.rows > 1)
        f.screen.rows--; /* the footer's */
    put_heading(&f, view);
    put_error(&f, "relay", view->relay, view->relay_error);
    put_error(&f, "agent", view->agent, view->agent_error);
    if (view->relay) {
        put_limits(&f, view->relay);
        put_rates(&f, view);
        put_redials(&f, view->relay);
        put_gaps(&f, view->relay);
        put_counts(&f, "ends      ", view->relay, "reasons");
        put_counts(&f, "refused   ", view->relay, "refused");
        put_sandboxes(&f, view->relay);
        put_ends(&f, view->relay);
        put_tunnels(&f, view->relay);
    }
    if (screen.rows > 1) {
        while (!is_full(&f))
            end_line(&f);
        f.screen.rows++;
        put_footer(&f, view);
    }
    return f.good;
}
