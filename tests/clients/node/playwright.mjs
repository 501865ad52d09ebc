// SPDX-License-Identifier: MIT
// Playwright, which drives the browser in a sandbox over CDP.
import { chromium } from "playwright-core";

import { failure, heard, tell, wanted } from "./steps.mjs";

let browser, page;
const steps = {
    connect: () =>
        failure(
            (async () => {
                browser = await chromium.connectOverCDP(wanted.url, { headers: { Authorization: `Bearer ${wanted.token}` }, timeout: 60_000 });
                browser.on("disconnected", () => tell("disconnected"));
                page = await browser.contexts()[0].newPage();
                return browser.version();
            })(),
        ),
    async use() {
        await page.setContent("<title>inside</title><button onclick='this.textContent += document.title'>the </button>");
        await page.getByRole("button").click();
        const image = await page.screenshot();
        const much = await page.evaluate(() => "\u20ac".repeat(2_000_000));
        return { button: await page.getByRole("button").textContent(), png: image.subarray(1, 4).toString(), much: much === "\u20ac".repeat(2_000_000) };
    },
    wait: () => failure((tell("waits"), page.waitForFunction(() => window.never, null, { timeout: 0 }))),
};
for (;;) tell(await steps[await heard()]());
