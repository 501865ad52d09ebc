// SPDX-License-Identifier: MIT
// Why a terminal ended, for people. Codes of RFC 6455 and those of cellgate (4000 + an HTTP status).

const WORDS = {
  1000: "The session has ended.",
  1001: "The gate ended the session.",
  1002: "The connection broke the WebSocket protocol.",
  1003: "The other side does not take this kind of data.",
  1005: "The session has ended.",
  1006: "The connection was lost.",
  1007: "The other side could not read the data.",
  1008: "The gate does not allow this any longer.",
  1009: "A message was too large.",
  1010: "The other side wants an extension that this page does not have.",
  1011: "The sandbox's worker was lost.",
  1012: "The gate is restarting.",
  1013: "The gate is overloaded, or this page was too slow.",
  1014: "The sandbox's worker did not answer properly.",
  4001: "Somebody else took this session over.",
  4400: "The gate did not understand the request.",
  4401: "The token is missing, invalid or expired.",
  4403: "The token does not allow this.",
  4404: "There is no such sandbox.",
  4405: "The gate does not allow this here.",
  4410: "The sandbox is stopped.",
  4426: "The gate wants another kind of connection.",
  4431: "The request was too large.",
  4502: "The sandbox's worker cannot be reached.",
  4503: "The sandbox is not available right now.",
  4504: "The sandbox's worker does not answer.",
};

const PASSING = new Set([1006, 1012, 1013, 1014, 4502, 4503, 4504]);

/** Whether trying again may help. */
export function isPassing(code) {
  return PASSING.has(code);
}

/** What to do about it is to get another token. */
export function isAboutToken(code) {
  return code === 4401 || code === 4403;
}

/** { title, detail, done } for a close; exit is the remote's exit code, or null if it said none. */
export function explain({ code, reason, exit, opened }) {
  const closed = `Closed with code ${code}${reason ? `: ${reason}` : ""}.`;
  if (exit !== null) {
    const title = exit === 0 ? "The session has ended." : `The session has ended with exit code ${exit}.`;
    return { title, detail: closed, done: exit === 0 };
  }
  if (!opened && code === 1006) {
    const detail = "The gate is not reachable, or it refused: a browser is not told which. The token may have expired.";
    return { title: "The terminal could not be opened.", detail, done: false };
  }
  const title = WORDS[code] ?? "The other side ended the session.";
  return { title, detail: code === 1006 ? "No reason was given (code 1006)." : closed, done: code === 1000 };
}
