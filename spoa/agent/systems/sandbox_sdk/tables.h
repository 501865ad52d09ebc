/* SPDX-License-Identifier: MIT */
/* tables: the rows of this system in the tables of spoa/agent/systems/tables.h. */
#ifndef CELLGATE_AGENT_SYSTEMS_SANDBOX_SDK_TABLES_H
#define CELLGATE_AGENT_SYSTEMS_SANDBOX_SDK_TABLES_H

#define SANDBOX_SDK_MUX_FORMS(X) X(SANDBOX_SDK, "sandbox-sdk")

#endif
