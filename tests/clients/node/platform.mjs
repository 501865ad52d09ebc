// SPDX-License-Identifier: MIT
// @cloudflare/sandbox is made for Workers: the names that its modules import of their platform, which its clients do not use, and
// imports without an ending, which node wants.
const PLATFORM =
    "export class RpcTarget {} export class DurableObject {} export class WorkerEntrypoint {} " +
    "export const tracing = { enterSpan: (name, run) => run() }, env = {};";

export const resolve = (name, context, next) => {
    if (name.startsWith("cloudflare:")) return { url: "platform:" + name, shortCircuit: true };
    const short = name.startsWith(".") && context.parentURL.includes("/@cloudflare/containers/") && !name.endsWith(".js");
    return next(short ? name + ".js" : name, context);
};
export const load = (url, context, next) =>
    url.startsWith("platform:") ? { format: "module", shortCircuit: true, source: PLATFORM } : next(url, context);
