/* SPDX-License-Identifier: MIT */
#include "spoa/agent/watches.h"

#include <stdlib.h>

struct watch {
    struct watch *next, *before; /* in the order of their ends, which is that of their beginnings */
    struct server_ticket ticket;
    struct resolve_question question;
    uint64_t due; /* loop_clock */
    uint8_t texts[];
};

struct watches {
    struct watches_options options;
    struct loop_timer timer;
    struct watch *first, *last;
    size_t count;
};

static void arm(struct watches *w)
{
    uint64_t now = loop_clock();
    if (w->first)
        loop_timer_set(&w->timer, w->first->due > now ? (double)(w->first->due - now) / 1e6 : 0);
}

static void unlink_watch(struct watches *w, struct watch *watch)
{
    *(watch->before ? &watch->before->next : &w->first) = watch->next;
    *(watch->next ? &watch->next->before : &w->last) = watch->before;
    w->count--;
}

static void answer(struct watches *w, struct watch *watch)
{
    unlink_watch(w, watch);
    w->options.answer(w->options.context, &watch->ticket, &watch->question);
    free(watch);
}

static void on_due(void *owner)
{
    struct watches *w = owner;
    uint64_t now = loop_clock();
    while (w->first && w->first->due <= now)
        answer(w, w->first);
    arm(w);
}

struct watches *watches_new(const struct watches_options *options)
{
    struct watches *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->options = *options;
    loop_timer_open(&w->timer, options->loop, on_due, w);
    return w;
}

void watches_free(struct watches *w)
{
    if (!w)
        return;
    loop_timer_close(&w->timer);
    while (w->first) {
        struct watch *watch = w->first;
        unlink_watch(w, watch);
        free(watch);
    }
    free(w);
}

static void keep(struct slice *text, uint8_t **at)
{
    if (!slice_present(*text))
        return;
    if (text->len)
        memcpy(*at, text->at, text->len);
    text->at = *at;
    *at += text->len;
}

bool watches_add(struct watches *w, const struct server_ticket *ticket, const struct resolve_question *q)
{
    size_t texts = q->route.len + q->sandbox.len + q->space.len + q->org.len + q->kid.len;
    struct watch *watch = malloc(sizeof *watch + texts);
    if (!watch)
        return false;
    *watch = (struct watch){.before = w->last, .ticket = *ticket, .question = *q};
    watch->due = loop_clock() + (uint64_t)WATCH_SECONDS * 1000000;
    uint8_t *at = watch->texts;
    struct slice *const all[] = {&watch->question.route, &watch->question.sandbox, &watch->question.space,
                                 &watch->question.org, &watch->question.kid};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        keep(all[i], &at);
    *(w->last ? &w->last->next : &w->first) = watch;
    w->last = watch;
    if (++w->count == 1)
        arm(w);
    return true;
}

void watches_look(struct watches *w, bool (*news)(void *context, const struct resolve_question *question))
{
    for (struct watch *watch = w->first, *next; watch; watch = next) {
        next = watch->next;
        if (news(w->options.context, &watch->question))
            answer(w, watch);
    }
}

size_t watches_count(const struct watches *w)
{
    return w->count;
}
