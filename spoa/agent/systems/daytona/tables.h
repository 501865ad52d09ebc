/* SPDX-License-Identifier: MIT */
/* tables: the rows of this system in the tables of spoa/agent/systems/tables.h. */
#ifndef CELLGATE_AGENT_SYSTEMS_DAYTONA_TABLES_H
#define CELLGATE_AGENT_SYSTEMS_DAYTONA_TABLES_H

#define DAYTONA_CREDENTIAL_HEADERS(X)                                                          \
    X(daytona_preview, daytona_previews, "x-daytona-preview-token", "X-Daytona-Preview-Token", \
      DAYTONA_PREVIEW)

#define DAYTONA_SIGNED_URLS(X) X(DAYTONA_URL, "daytona-url", daytona)

#define DAYTONA_TOKEN_KINDS(X) X(daytona_file_url, "daytona-file-url")

#define DAYTONA_CREDENTIAL_PARAMETERS(X) X(DAYTONA_QUERY, "DAYTONA_SANDBOX_AUTH_KEY")

#endif
