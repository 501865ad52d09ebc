/* SPDX-License-Identifier: MIT */
/*
 * dns: looks up the addresses of host names with c-ares on a loop, many at once, so that a server that does not answer delays no other
 * look-up. It asks as the system is configured (/etc/hosts, and /etc/resolv.conf, which is read again after a change), or asks the
 * servers of its options. For one loop's thread.
 */
#ifndef CELLGATE_NET_DNS_H
#define CELLGATE_NET_DNS_H

#include "spoa/base/bytes/texts.h"
#include "spoa/base/table/fair.h"
#include "spoa/base/text/address.h"
#include "spoa/net/loop.h"

enum { DNS_ADDRESSES = 64 }; /* addresses of one answer */

enum dns_result {
    DNS_FOUND,
    DNS_ABSENT, /* the name does not exist, or has no address */
    DNS_FAILED  /* no server has answered in time */
};

struct dns_answer {
    enum dns_result result;
    struct address addresses[DNS_ADDRESSES]; /* the best one first (RFC 6724) */
    size_t count;
    bool more;    /* the name has further addresses, for which there is no room */
    uint64_t ttl; /* microseconds */
};

struct dns_options {
    struct texts servers; /* addresses such as "127.0.0.1:5353"; empty for the system's servers */
    bool exact;           /* take names as they are: no search list, no /etc/hosts */
    uint64_t timeout;     /* time until DNS_FAILED, in microseconds */
    uint64_t resend;      /* time until a question is first sent again, in microseconds; 0 means 500 ms */
};

struct dns;

/* Starts a resolver; the options are borrowed. Returns NULL and fills *why if memory is short or a server's address is malformed. */
struct dns *dns_new(struct loop *loop, const struct dns_options *options, struct fail *why) MUST_CHECK;
/* Answers the open questions with DNS_FAILED and frees the resolver. NULL is fine. */
void dns_free(struct dns *dns);
/* Asks for the addresses of a name. `answered` is called once, in a later turn of the loop, after the timeout at the latest. Thousands of
 * questions are in flight at once; beyond that, owners take turns (spoa/base/table/fair.h). Returns false if memory is short or the
 * asker has too many questions. */
bool dns_ask(struct dns *dns, struct slice name, struct fair_owner asker,
             void (*answered)(void *owner, const struct dns_answer *answer), void *owner) MUST_CHECK;

/* Returns an address of a DNS_FOUND answer: `before` if the answer has it, so that a round robin moves no client, else the first. */
struct address dns_choose(const struct dns_answer *answer, const struct address *before);

#endif
