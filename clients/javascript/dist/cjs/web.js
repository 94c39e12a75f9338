"use strict";
/**
 * For servers that speak the Fetch API: Deno, Bun, workers, Next's route handlers, Hono.
 *
 * `Deno.serve(protect(handler, { client, key }))`. There is no peer's address in a `Request`, so `key` is needed.
 */
Object.defineProperty(exports, "__esModule", { value: true });
exports.guardOf = guardOf;
exports.escapedText = escapedText;
exports.protect = protect;
exports.serve = serve;
exports.settlementOf = settlementOf;
const middleware_js_1 = require("./middleware.js");
const settlements = new WeakMap();
/** Makes the guard for requests of the Fetch API. */
function guardOf(options, path = (request) => new URL(request.url).pathname) {
    return new middleware_js_1.Guard(options, {
        attributes: (request) => ({ path: path(request), method: request.method }),
        header: (request, name) => request.headers.get(name),
        method: (request) => request.method,
        trust: "trust it in `key`",
    });
}
/** With all that is not ASCII escaped. */
function escapedText(path) {
    return path.replace(/[\u0080-\uffff]+/g, (text) => encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\ufffd")));
}
/** Asks before each request, and hands it to the handler with its further arguments. */
function protect(handler, options) {
    const guard = guardOf(options);
    return (request, ...rest) => serve(guard, request, async () => handler(request, ...rest));
}
/** Asks for one request, and calls `next` if it may go ahead. */
async function serve(guard, request, next) {
    const found = await guard.ask(request);
    if (found === undefined)
        return next();
    if (!(found instanceof middleware_js_1.Settlement)) {
        return new Response(found.body, { status: found.status, headers: found.headers });
    }
    settlements.set(request, found);
    let response;
    try {
        response = await next();
    }
    catch (error) {
        void found.end();
        throw error;
    }
    // A new one, since the headers of a response that came from `fetch` cannot be changed.
    const headers = new Headers(response.headers);
    for (const [name, value] of Object.entries((0, middleware_js_1.fields)(found.decision)))
        headers.set(name, value);
    found.answered(response.headers.get("access-control-allow-methods"));
    const { status, statusText } = response;
    return new Response(ending(response.body, found), { status, statusText, headers });
}
/** What a request has reserved; nothing if it was not asked for. */
function settlementOf(request) {
    return settlements.get(request);
}
/** The same bytes; the settlement ends when they have been read, or given up. */
function ending(body, settlement) {
    if (body === null) {
        void settlement.end();
        return null;
    }
    const reader = body.getReader();
    return new ReadableStream({
        async pull(controller) {
            try {
                const { done, value } = await reader.read();
                if (!done) {
                    controller.enqueue(value);
                    return;
                }
                controller.close();
            }
            catch (error) {
                controller.error(error);
            }
            void settlement.end();
        },
        async cancel(reason) {
            void settlement.end();
            await reader.cancel(reason);
        },
    });
}
