/* SPDX-License-Identifier: MIT */
/* A record of a directory: whatever is accepted survives being stored and looked up unchanged. */
#include <stdlib.h>

#include "spoa/agent/directory/records.h"
#include "spoa/agent/model/record_json.h"
#include "tests/fuzz/fuzz.h"

static void require(bool what)
{
    if (!what)
        abort();
}

static void read_all(const struct record *record)
{
    struct slice name, value;
    struct worker worker;
    uint16_t port;
    size_t cursor = 0;
    while (record_header(record->headers, &cursor, &name, &value))
        require(name.len > 0);
    require(cursor == record->headers.len);
    cursor = 0;
    while (record_port_next(record, &cursor, &port, &worker))
        require(port > 0 && worker.kind != WORKER_NONE);
    require(cursor == record->ports.len);
}

static int read_input(const uint8_t *data, size_t size)
{
    static uint8_t memory[128 * 1024];
    struct writer scratch = writer_of(memory, sizeof memory);
    struct record record, found;
    struct fail why;
    struct json *doc = json_parse(slice_of(data, size), "", 0, (struct json_limits){256 * 1024, 6}, &why);
    if (!doc)
        return 0;
    if (record_from_json(doc, json_root(doc), &scratch, &record, &why)) {
        struct records *records = records_new(1);
        read_all(&record);
        if (records && records_add(records, SLICE_LITERAL("sb"), &record, &why)) {
            require(records_get(records, SLICE_LITERAL("sb"), &found) == LOOKUP_FOUND);
            read_all(&found);
            require(slice_equal(found.worker.host, record.worker.host) && found.epoch == record.epoch);
            require(record_epoch(&found) == record_epoch(&record) && record_epoch(&found) > 0);
        }
        records_release(records);
    }
    json_free(doc);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grown(read_input, data, size);
}
