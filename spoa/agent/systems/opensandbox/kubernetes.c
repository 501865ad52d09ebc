/* SPDX-License-Identifier: MIT */
/* The resource `opensandbox` of directory/kubernetes: BatchSandboxes. A sandbox's name has no namespace, because OpenSandbox's clients
 * know none. */
#include "spoa/agent/directory/kubernetes/json.h"
#include "spoa/agent/directory/kubernetes/reader.h"
#include "spoa/agent/model/worker_url.h"
#include "spoa/agent/token/static.h"

#define ENDPOINTS_NOTE "sandbox.opensandbox.io/endpoints"
#define SECRET_NOTE    "opensandbox.io/secure-access-token"

static struct slice annotation(const struct kubernetes_reader *r, const char *name)
{
    return kubernetes_value(r->metadata[KUBERNETES_ANNOTATIONS], name);
}

/* Reads the secret. If it cannot be read, the sandbox must not count as one without a secret: only its state is then known. */
static void read_secret(struct kubernetes_reader *r)
{
    struct slice note = annotation(r, SECRET_NOTE), secret;
    uint8_t memory[65]; /* 64 digits, and room for the NUL of printf */
    struct writer digest = writer_of(memory, sizeof memory);
    size_t start = r->scratch->len;
    if (!note.len)
        return;
    if (!kubernetes_json_text(note, r->scratch, &secret)) {
        r->object->record.bare = true;
        kubernetes_be_odd(r, "annotation " SECRET_NOTE " is no text");
        return;
    }
    secret = slice_trim_space(secret);
    r->object->record.bare = secret.len && (!token_static_digest(secret, &digest) || digest.full);
    explicit_bzero(r->scratch->at + start, r->scratch->len - start);
    r->scratch->len = start;
    writer_put(r->scratch, writer_slice(&digest));
    if (digest.len)
        r->object->record.access_sha256 = slice_of(r->scratch->at + start, r->scratch->len - start);
}

/* The annotation is a JSON list of addresses as a text; the first counts. */
static void run_batch_sandbox(struct kubernetes_reader *r)
{
    struct slice note = annotation(r, ENDPOINTS_NOTE), list, key, first, host;
    struct address address;
    size_t cursor = 0;
    r->object->record.state = RECORD_WAKING;
    if (!note.len || kubernetes_json_is(note, ""))
        return;
    if (!kubernetes_json_text(note, r->scratch, &list) || !kubernetes_json_sound(slice_trim_space(list)) ||
        !kubernetes_json_next(slice_trim_space(list), &cursor, &key, &first) || slice_present(key) ||
        !kubernetes_json_text(first, r->scratch, &host) || !address_parse(host, &address) ||
        !kubernetes_lead_to(r, host, 0))
        kubernetes_be_odd(r, "annotation " ENDPOINTS_NOTE " is no list of addresses");
    else
        r->object->record.state = RECORD_RUNNING;
}

static bool read_batch_sandbox(struct kubernetes_reader *r)
{
    struct record *record = &r->object->record;
    struct slice phase = kubernetes_value(r->root[KUBERNETES_STATUS], "phase");
    uint64_t ready = 0;
    r->object->key = r->object->name;
    read_secret(r);
    if (kubernetes_json_is(phase, "Failed"))
        record->state = RECORD_STOPPED;
    else if (kubernetes_json_is(phase, "Paused"))
        record->state = RECORD_SUSPENDED;
    else if (kubernetes_json_is(phase, "Pausing") || kubernetes_json_is(phase, "Resuming"))
        record->state = RECORD_WAKING;
    else if (kubernetes_json_u64(kubernetes_value(r->root[KUBERNETES_STATUS], "ready"), &ready) && ready >= 1)
        run_batch_sandbox(r);
    else
        record->state = r->metadata[KUBERNETES_DELETED].len ? RECORD_STOPPED : RECORD_WAKING;
    return true;
}

const struct kubernetes_resource kubernetes_resource_opensandbox = {
    .name = "opensandbox",
    .group = "sandbox.opensandbox.io",
    .plural = "batchsandboxes",
    .versions = {"v1alpha1"},
    .wake = {"{\"spec\":{\"pause\":false}}"},
    .read = read_batch_sandbox,
};
