/* SPDX-License-Identifier: MIT */
#include "spoa/service/option_rows.h"

#include "spoa/base/text/cidr.h"

const char *option_check_network(struct slice text)
{
    struct cidr cidr;
    if (!cidr_parse(text, &cidr))
        return "a list of networks such as \"10.0.0.0/8\", without bits after the prefix";
    return cidr_within_metadata(&cidr)
               ? "a list of networks without metadata services, which are never dialled"
               : NULL;
}
