"use strict";
/**
 * Requests by Node's own HTTP client, which cost a third of those by its `fetch`: see decision 0292.
 *
 * Nothing of Node is imported, so a bundle for browsers takes this file along and never runs it.
 */
Object.defineProperty(exports, "__esModule", { value: true });
exports.byNode = byNode;
const transport_js_1 = require("./transport.js");
const MAX_HEADER = 64 * 1024;
/** Sends to this URL and paths below it, over kept connections. Nothing where the platform is not Node. */
function byNode(text, maxConnections) {
    const url = new URL(text);
    const http = builtin(`node:${url.protocol.slice(0, -1)}`);
    if (!http)
        return undefined;
    const agent = new http.Agent({
        keepAlive: true,
        maxSockets: maxConnections,
        maxFreeSockets: maxConnections,
    });
    const hostname = url.hostname.replace(/^\[|\]$/g, "");
    const { port } = url;
    const prefix = url.pathname.replace(/\/+$/, "");
    const send = ({ method, path, headers, body }, over) => {
        let outcome = "connection";
        // Spelt out: of an object that was spread into this one, Node reads at a fifth of the whole call's cost.
        const options = {
            agent,
            hostname,
            port,
            method,
            path: prefix + path,
            headers,
            maxHeaderSize: MAX_HEADER,
        };
        const request = http.request(options, (response) => {
            outcome = "reply";
            let whole = "";
            response.setEncoding("utf8");
            response.on("data", (piece) => {
                whole += piece;
                if (whole.length > transport_js_1.MAX_BODY)
                    request.destroy();
            });
            response.on("end", () => {
                const { statusCode: status, headers } = response;
                outcome = { status, field: (name) => headers[name], body: whole };
            });
            response.on("error", ignore);
        });
        request.on("error", ignore);
        request.on("close", () => over(outcome));
        request.end(body);
        return () => request.destroy();
    };
    return { send, close: () => agent.destroy() };
}
/** What came of a request is told when it closes, which each does. */
function ignore() { }
/** A module of Node, of 20.16 and later. Others have copies of it, and say who they are: they are asked for `fetch`. */
function builtin(name) {
    const { navigator, process } = globalThis;
    // Node 20 has no navigator.
    if (!(navigator?.userAgent ?? "Node.js/").startsWith("Node.js/"))
        return undefined;
    return process?.getBuiltinModule?.(name);
}
