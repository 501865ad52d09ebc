/* SPDX-License-Identifier: MIT */
/*
 * dns: addresses of host names, by c-ares on a loop: many at once, none of which waits for another one that
 * hangs. Asks as the system is configured (/etc/hosts, /etc/resolv.conf, which is read again when it changes),
 * or servers of one's own. For one loop's thread.
 */
#ifndef CELLGATE_NET_DNS_H
#define CELLGATE_NET_DNS_H

#include "spoa/base/bytes/texts.h"
#include "spoa/base/table/fair.h"
#include "spoa/base/text/address.h"
#include "spoa/net/loop.h"

enum { DNS_ADDRESSES = 64 };

enum dns_result {
    DNS_FOUND,
    DNS_ABSENT, /* there is no such name, or it has no address */
    DNS_FAILED  /* nobody could say in time */
};

struct dns_answer {
    enum dns_result result;
    struct address addresses[DNS_ADDRESSES]; /* the best one first */
    size_t count;
    bool more;    /* there are others for which there is no room */
    uint64_t ttl; /* microseconds */
};

struct dns_options {
    struct texts servers; /* "127.0.0.1:5353"; none: the system's */
    bool exact;           /* names are whole: no search list, no /etc/hosts */
    uint64_t timeout;     /* microseconds, until DNS_FAILED */
    uint64_t resend;      /* microseconds until a question is first sent again; 0: 500 ms */
};

struct dns;

/* Options are borrowed. NULL and *why when out of memory or a server's address is none. */
struct dns *dns_new(struct loop *loop, const struct dns_options *options, struct fail *why);
void dns_free(struct dns *dns); /* answers what is open: DNS_FAILED; NULL is fine */
/* Questions are sent in the turns of their askers (spoa/base/table/fair.h), thousands at a time. `answered` is called once, from a later turn of the loop, at the latest after the timeout. False when out of
 * memory. */
bool dns_ask(struct dns *dns, struct slice name, struct fair_owner asker,
             void (*answered)(void *owner, const struct dns_answer *answer), void *owner)
    __attribute__((warn_unused_result));

/* `before` if it is among the addresses, so that a round robin moves nobody; else the first. Of DNS_FOUND. */
struct address dns_choose(const struct dns_answer *answer, const struct address *before);

#endif
