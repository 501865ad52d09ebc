// SPDX-License-Identifier: MIT
// The line to the test (npm.py): what it wants, what it says later, and what it is told.
import { createInterface } from "node:readline";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
export const heard = async () => {
    const { value, done } = await lines.next();
    return done ? process.exit(0) : JSON.parse(value);
};
export const tell = (what) => process.stdout.write(JSON.stringify(what) + "\n");
// What a client reports of what it cannot do.
export const failure = async (work) => {
    try {
        return { value: await work };
    } catch (error) {
        return { error: error.constructor.name, message: error.message, status: error.statusCode ?? error.status ?? null };
    }
};
export const wanted = await heard();
