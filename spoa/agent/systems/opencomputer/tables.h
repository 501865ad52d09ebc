/* SPDX-License-Identifier: MIT */
/* tables: the rows of this system in the tables of spoa/agent/systems/tables.h. */
#ifndef CELLGATE_AGENT_SYSTEMS_OPENCOMPUTER_TABLES_H
#define CELLGATE_AGENT_SYSTEMS_OPENCOMPUTER_TABLES_H

#define OPENCOMPUTER_CREDENTIAL_HEADERS(X) \
    X(oc_preview, oc_previews, "x-oc-preview-token", "X-OC-Preview-Token", OC_PREVIEW)

#define OPENCOMPUTER_SIGNED_URLS(X) X(FILE_URL, "file-url", opencomputer)

#define OPENCOMPUTER_TOKEN_KINDS(X) X(file_url, "file-url")

#endif
