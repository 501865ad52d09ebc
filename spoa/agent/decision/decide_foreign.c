/* SPDX-License-Identifier: MIT */
/* decide_foreign: changes a refusal to the form that clients of the route's system know (profile.h). */
#include "spoa/agent/decision/decide_steps.h"

static const struct profile_refusal *row_of(const struct decision *d)
{
    const struct profile *profile = d->route ? profile_of(d->route->system) : NULL;
    for (const struct profile_refusal *row = profile ? profile->refusals : NULL; row && row->refusal; row++)
        if (row->refusal == d->verdict->refusal && (!row->unconfirmed || d->unconfirmed) &&
            (!row->asleep || d->asleep))
            return row;
    return NULL;
}

void decide_foreign(struct decision *d)
{
    const struct profile_refusal *row = row_of(d);
    struct verdict *v = d->verdict;
    if (!row)
        return;
    v->status = row->status;
    v->detailed = true;
    if (row->unconfirmed)
        v->message = SLICE_LITERAL("The sandbox does not run, or the credential is not its.");
}
