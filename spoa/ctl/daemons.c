/* SPDX-License-Identifier: MIT */
#include "spoa/ctl/daemons.h"

#include <errno.h>

#include "spoa/base/json/json_string.h"
#include "spoa/service/control.h"
#include "spoa/service/settings.h"

enum { ANSWER_MAX = 64 << 20 };

const char *daemon_name(enum daemon daemon)
{
    return daemon == DAEMON_AGENT ? "agent" : "relay";
}

/* ---- asking ---- */

bool daemon_address(enum daemon daemon, const char *given, const char *config, struct net_address *address,
                    struct fail *why)
{
    if (given)
        return net_parse(slice_text(given), address, why);
    struct settings *settings = settings_load(config, NULL, 0, why);
    if (!settings)
        return false;
    *address = daemon == DAEMON_AGENT ? settings->agent.control : settings->relay.control;
    settings_free(settings);
    return true;
}

/* Adds advice for the operator about a daemon that has not answered. */
static void advise(enum daemon daemon, int error, struct fail *why)
{
    const char *name = daemon_name(daemon);
    struct fail said = *why;
    if (error == ENOENT || error == ECONNREFUSED)
        fail(
            why,
            "%s; it does not run, or its socket is elsewhere (--config, --%s): systemctl status cellgate-%s, "
            "journalctl -u cellgate-%s",
            said.text, name, name, name);
    else if (error == ETIMEDOUT)
        fail(why, "%s; it hangs or is stopped: systemctl restart cellgate-%s%s", said.text, name,
             daemon == DAEMON_RELAY ? " (its tunnels end)" : "");
    else if (error == EACCES)
        fail(why, "%s; only root and its own account may ask it", said.text);
}

struct json *daemon_ask(enum daemon daemon, const struct net_address *address, struct slice request,
                        uint64_t patience, struct buffer *answer, struct fail *why)
{
    struct json *doc;
    struct slice error;
    bool ok = false;
    *answer = buffer_with_limit(ANSWER_MAX);
    if (!control_ask(address, request, patience, answer, why)) {
        advise(daemon, errno, why);
        return NULL;
    }
    doc = json_parse(buffer_slice(answer), "answer", 0, (struct json_limits){ANSWER_MAX, 8}, why);
    if (!doc)
        return NULL;
    if (json_bool(json_member(json_root(doc), "ok"), &ok) && ok)
        return doc;
    bool said = json_text(json_member(json_root(doc), "error"), &error);
    fail(why, "%.*s", SLICE_PRINTF(said ? error : SLICE_LITERAL("refused")));
    json_free(doc);
    return NULL;
}

/* ---- the daemons' answers ---- */

/* Returns true for C0, DEL and C1 (two bytes in UTF-8), which a terminal would obey. */
static bool is_control(struct slice character)
{
    uint8_t first = character.at[0];
    return first < ' ' || first == 0x7f || (character.len == 2 && first == 0xc2 && character.at[1] < 0xa0);
}

void daemon_put_text(FILE *to, struct slice text)
{
    while (text.len) {
        size_t len = text.at[0] < 0x80 ? 1 : json_string_utf8(text);
        struct slice character = slice_sub(text, 0, len ? len : 1);
        if (len && !is_control(character))
            fwrite(character.at, 1, len, to);
        else
            fputc('?', to);
        text = slice_from(text, character.len);
    }
}

/* Escapes DEL and C1, which a parsed document can hold raw within texts. C0 cannot occur there. */
void daemon_put_json(FILE *to, struct slice document)
{
    for (size_t i = 0; i < document.len; i++) {
        struct slice pair = slice_sub(document, i, 2);
        if (pair.at[0] == 0x7f || (pair.at[0] == 0xc2 && is_control(pair)))
            fprintf(to, "\\u%04x", pair.at[0] == 0x7f ? 0x7f : document.at[++i]);
        else
            fputc(pair.at[0], to);
    }
    fputc('\n', to);
}
