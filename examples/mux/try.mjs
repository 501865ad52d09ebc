// SPDX-License-Identifier: MIT
// Two requests at once over one WebSocket, and what became of them: node try.mjs WS-URL FILE-WITH-TOKEN
import { readFileSync } from "node:fs";
import { Mux } from "./mux.js";

const [url, file] = process.argv.slice(2);
const mux = new Mux(url, { protocols: [`cellgate.bearer.${readFileSync(file, "utf8").trim()}`] });
const answers = await Promise.all(["mux.js", "nothing"].map((name) => mux.fetch(`/sandbox/sb-1/${name}`)));
for (const answer of answers) console.log(answer.status, (await answer.text()).length);
mux.close();
