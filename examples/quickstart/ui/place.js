// SPDX-License-Identifier: MIT
// Where the terminal is and with which token: from the page's URL, /ui/SANDBOX/#token=TOKEN&port=PORT&path=TEMPLATE.

const KEY = `cellgate:${location.pathname}`;

function meta(name) {
  return document.querySelector(`meta[name="${name}"]`).content;
}

/** What the fragment says is kept for reloads of this tab and taken out of the address bar, so that a token is in no
 * history entry and no screenshot. */
export function readPlace() {
  const place = JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
  const fragment = new URLSearchParams(location.hash.slice(1));
  for (const name of ["token", "port", "path"]) {
    if (fragment.has(name)) place[name] = fragment.get(name);
  }
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  keepPlace(place);
  return { ...place, sandbox: decodeURIComponent(location.pathname.split("/").filter(Boolean).at(-1) ?? "") };
}

export function keepPlace({ token, port, path }) {
  sessionStorage.setItem(KEY, JSON.stringify({ token, port, path }));
}

/** The WebSocket's URL. */
export function addressOf({ sandbox, port, path }, cols, rows) {
  const filled = (path ?? meta("cellgate-path"))
    .replace("{sandbox}", encodeURIComponent(sandbox))
    .replace("{port}", encodeURIComponent(port ?? meta("cellgate-port")));
  const url = new URL(filled, location.origin);
  url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  url.host = location.host;
  url.searchParams.set("cols", cols);
  url.searchParams.set("rows", rows);
  return url.href;
}
