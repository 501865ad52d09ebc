/* SPDX-License-Identifier: MIT */
#include "spoa/relay/io/views.h"

/* In three pieces, so that its policy allows nothing that stands in the page itself. */
static const char live_page[] =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>cellgate-relay</title>\n"
    "<link rel=\"icon\" href=\"data:,\"><link rel=\"stylesheet\" href=\"live.css\">"
    "<script defer src=\"live.js\"></script>\n"
    "<h1>cellgate-relay</h1><p id=\"state\" role=\"status\">loading</p>\n"
    "<figure><figcaption>tunnels: <b id=\"v0\"></b></figcaption><svg id=\"g0\" viewBox=\"0 0 150 50\" "
    "preserveAspectRatio=\"none\"><polyline/></svg></figure>\n"
    "<figure><figcaption>redials in each interval, in all <b id=\"v1\"></b></figcaption><svg id=\"g1\" "
    "viewBox=\"0 0 150 50\" preserveAspectRatio=\"none\"><polyline/></svg></figure>\n"
    "<figure><figcaption>longest gap, seconds: <b id=\"v2\"></b></figcaption><svg id=\"g2\" "
    "viewBox=\"0 0 150 50\" preserveAspectRatio=\"none\"><polyline/></svg></figure>\n"
    "<table><thead><tr><th>tunnel<th>state<th>route<th>sandbox<th>worker<th>age<th>to "
    "worker<th>to client<th>redials<th>longest gap</tr></thead><tbody id=\"rows\"></tbody></table>\n"
    "</html>\n";

static const char live_style[] =
    "body{font:14px system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\n"
    "figure{margin:1.5em 0}\n"
    "svg{width:100%;height:90px;background:#8881}polyline{fill:none;stroke:#27c;stroke-width:1.5}\n"
    "table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;padding:.2em .6em;border-bottom:1px solid #8884}\n"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}polyline{stroke:#6bf}}\n";

static const char live_script[] =
    "const draw=(n,v,text)=>{const top=Math.max(...v,1e-9);document.querySelector('#g'+n+' polyline')"
    ".setAttribute('points',v.map((y,i)=>`${150-v.length+i},${48-46*y/top}`).join(' '));"
    "document.getElementById('v'+n).textContent=text};\n"
    "const row=t=>{const r=document.createElement('tr');for(const k "
    "of['id','state','route','sandbox','worker','age',"
    "'to_worker','to_client','redials','longest_gap']){const "
    "d=document.createElement('td');d.textContent=k in t?t[k]:'';"
    "r.append(d)}return r};\n"
    "async function poll(){try{const s=await(await fetch('stats')).json(),a=s.samples;"
    "draw(0,a.map(x=>x[0]),s.tunnels);draw(1,a.map((x,i)=>i?x[1]-a[i-1][1]:0),s.redials);"
    "draw(2,a.map(x=>x[2]),a.length?Math.max(...a.map(x=>x[2])).toFixed(3):'');"
    "const l=(await(await fetch('tunnels')).json()).tunnels;"
    "document.getElementById('rows').replaceChildren(...l.slice(0,200).map(row));"
    "document.getElementById('state').textContent=(s.draining?'draining':'serving')+', '+s.held+"
    "' bytes held, each step is '+s.sample_seconds+' s'}"
    "catch(e){document.getElementById('state').textContent='the relay does not answer'}"
    "setTimeout(poll,2000)}poll();\n";

/* ---- pages ---- */
static struct relay *relay_of(void *context)
{
    return *(struct relay **)context;
}

static bool not_there(struct admin_answer *answer)
{
    answer->status = 503;
    return buffer_put(&answer->body, SLICE_LITERAL("starting\n"));
}

static bool page_metrics(void *context, struct slice query, struct admin_answer *answer)
{
    struct relay *relay = relay_of(context);
    (void)query;
    answer->type = ADMIN_PROMETHEUS;
    return relay ? relay_write_metrics(relay, &answer->body) : not_there(answer);
}

static bool page_health(void *context, struct slice query, struct admin_answer *answer)
{
    (void)context, (void)query;
    return buffer_put(&answer->body, SLICE_LITERAL("ok\n"));
}

static bool page_ready(void *context, struct slice query, struct admin_answer *answer)
{
    const char *why = "starting";
    struct relay *relay = relay_of(context);
    (void)query;
    answer->status = relay && relay_ready(relay, &why) ? 200 : 503;
    return buffer_put(&answer->body, slice_text(why)) && buffer_put(&answer->body, SLICE_LITERAL("\n"));
}

static bool page_tunnels(void *context, struct slice query, struct admin_answer *answer)
{
    struct relay *relay = relay_of(context);
    struct slice none = {NULL, 0};
    struct slice sandbox = slice_starts(query, "sandbox=") ? slice_from(query, 8) : none;
    if (!relay)
        return not_there(answer);
    answer->type = ADMIN_JSON;
    return buffer_put(&answer->body, SLICE_LITERAL("{")) &&
           relay_write_tunnels(relay, sandbox, &answer->body) &&
           buffer_put(&answer->body, SLICE_LITERAL("}\n"));
}

static bool page_stats(void *context, struct slice query, struct admin_answer *answer)
{
    struct relay *relay = relay_of(context);
    (void)query;
    answer->type = ADMIN_JSON;
    return relay ? relay_write_stats(relay, &answer->body) : not_there(answer);
}

static bool page_live(void *context, struct slice query, struct admin_answer *answer)
{
    (void)context, (void)query;
    answer->type = "text/html; charset=utf-8";
    answer->policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                     "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    return buffer_put(&answer->body, slice_text(live_page));
}

static bool page_live_style(void *context, struct slice query, struct admin_answer *answer)
{
    (void)context, (void)query;
    answer->type = "text/css; charset=utf-8";
    return buffer_put(&answer->body, slice_text(live_style));
}

static bool page_live_script(void *context, struct slice query, struct admin_answer *answer)
{
    (void)context, (void)query;
    answer->type = "text/javascript; charset=utf-8";
    return buffer_put(&answer->body, slice_text(live_script));
}

void views_pages(struct admin_page pages[static VIEWS_PAGES], struct relay **relay)
{
    const struct admin_page all[VIEWS_PAGES] = {
        {"/metrics", page_metrics, relay},     {"/healthz", page_health, relay},
        {"/readyz", page_ready, relay},        {"/tunnels", page_tunnels, relay},
        {"/stats", page_stats, relay},         {"/", page_live, relay},
        {"/live.css", page_live_style, relay}, {"/live.js", page_live_script, relay},
    };
    memcpy(pages, all, sizeof all);
}

/* ---- commands ---- */
static bool command_drain(void *context, const struct json *doc, const json_node *request,
                          struct buffer *members, struct fail *why)
{
    struct relay *relay = relay_of(context);
    (void)doc, (void)request, (void)members;
    if (!relay)
        return fail(why, "the relay is starting");
    relay_drain(relay);
    return true;
}

static bool command_kick(void *context, const struct json *doc, const json_node *request,
                         struct buffer *members, struct fail *why)
{
    struct relay *relay = relay_of(context);
    struct slice id;
    (void)doc, (void)members;
    if (!relay)
        return fail(why, "the relay is starting");
    if (!json_text(json_member(request, "id"), &id))
        return fail(why, "kick needs an id");
    return relay_kick(relay, id) || fail(why, "there is no such tunnel");
}

static bool command_list(void *context, const struct json *doc, const json_node *request,
                         struct buffer *members, struct fail *why)
{
    struct relay *relay = relay_of(context);
    struct slice sandbox = {NULL, 0};
    (void)doc;
    if (!relay)
        return fail(why, "the relay is starting");
    (void)json_text(json_member(request, "sandbox"), &sandbox);
    if (!buffer_put(members, SLICE_LITERAL(",")) || !relay_write_tunnels(relay, sandbox, members))
        return fail(why, "the answer is too large");
    return true;
}

static bool command_status(void *context, const struct json *doc, const json_node *request,
                           struct buffer *members, struct fail *why)
{
    struct relay *relay = relay_of(context);
    (void)doc, (void)request;
    if (!relay)
        return fail(why, "the relay is starting");
    return (buffer_put(members, SLICE_LITERAL(",\"status\":")) && relay_write_stats(relay, members)) ||
           fail(why, "the answer is too large");
}

void views_commands(struct control_command commands[static VIEWS_COMMANDS], struct relay **relay)
{
    const struct control_command all[VIEWS_COMMANDS] = {{"drain", command_drain, relay},
                                                        {"kick", command_kick, relay},
                                                        {"list", command_list, relay},
                                                        {"status", command_status, relay}};
    memcpy(commands, all, sizeof all);
}
