// SPDX-License-Identifier: MIT
// npm's EventSource. It tells what it sees.
import { EventSource } from "eventsource";

import { heard, tell, wanted } from "./steps.mjs";

const withToken = (url, init) => fetch(url, { ...init, headers: { ...init.headers, Authorization: `Bearer ${wanted.token}` } });
const events = new EventSource(wanted.url, { fetch: withToken });
events.onmessage = ({ data }) => tell({ event: Number(data) });
events.onerror = ({ code }) => tell({ error: code ?? null, closed: events.readyState === EventSource.CLOSED });
await heard();
