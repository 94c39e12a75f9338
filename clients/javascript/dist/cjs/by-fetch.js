"use strict";
/** Requests by `fetch`: in browsers, Deno, Bun and workers, and where the user gives one. */
Object.defineProperty(exports, "__esModule", { value: true });
exports.byFetch = byFetch;
const transport_js_1 = require("./transport.js");
/** Sends to this URL and paths below it. */
function byFetch(url, fetch) {
    const send = ({ path, body, ...rest }, over) => {
        const abort = new AbortController();
        const init = { ...rest, redirect: "manual", signal: abort.signal };
        if (body !== undefined)
            init.body = body;
        void outcomeOf(() => fetch(url + path, init)).then((outcome) => {
            // What is left of a reply is not read.
            if (typeof outcome === "string")
                abort.abort();
            over(outcome);
        });
        return () => abort.abort();
    };
    // The platform keeps connections as it likes.
    return { send, close: () => { } };
}
async function outcomeOf(ask) {
    let phase = "connection";
    try {
        const response = await ask();
        phase = "reply";
        const field = (name) => response.headers.get(name) ?? undefined;
        return { status: response.status, field, body: await text(response) };
    }
    catch {
        return phase;
    }
}
async function text(response) {
    const length = response.headers.get("content-length");
    if (length !== null && Number(length) <= transport_js_1.MAX_BODY)
        return response.text();
    if (length !== null || !response.body) {
        if (length === null)
            return "";
        throw new Error("too long");
    }
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let whole = "";
    for (;;) {
        const { done, value } = await reader.read();
        if (done)
            return whole + decoder.decode();
        whole += decoder.decode(value, { stream: true });
        if (whole.length > transport_js_1.MAX_BODY)
            throw new Error("too long");
    }
}
