"use strict";
/** For Fastify: `app.register(tidegate, { client, key })`. */
Object.defineProperty(exports, "__esModule", { value: true });
exports.header = void 0;
exports.tidegate = tidegate;
exports.settlementOf = settlementOf;
const middleware_js_1 = require("./middleware.js");
const node_js_1 = require("./node.js");
Object.defineProperty(exports, "header", { enumerable: true, get: function () { return node_js_1.header; } });
const settlements = new WeakMap();
/** Asks before each request of the whole application. `key` and the others are given Fastify's request. */
async function tidegate(app, options) {
    const router = { ...app.initialConfig, ...app.initialConfig.routerOptions };
    const guard = new middleware_js_1.Guard(options, {
        address: (request) => request.ip,
        attributes: (request) => ({
            path: (0, node_js_1.escaped)(routed(request.raw.url ?? "/", router)),
            method: request.raw.method ?? "GET",
        }),
        header: node_js_1.header,
        method: (request) => request.raw.method,
        trust: "set Fastify's `trustProxy`",
    });
    app.addHook("onRequest", async (request, reply) => {
        const found = await guard.ask(request);
        if (found === undefined)
            return undefined;
        if (found instanceof middleware_js_1.Settlement) {
            settlements.set(request, found);
            (0, node_js_1.endWith)(reply.raw, found, (name) => reply.getHeader(name));
            for (const [name, value] of Object.entries((0, middleware_js_1.fields)(found.decision)))
                reply.header(name, value);
            return undefined;
        }
        reply.code(found.status);
        for (const [name, value] of Object.entries(found.headers)) {
            // What the application's CORS has said before stays.
            if (!(name.startsWith("access-control-") && reply.getHeader(name)))
                reply.header(name, value);
        }
        // As bytes: Fastify would add a charset to the type of a text.
        return reply.send(new TextEncoder().encode(found.body));
    });
}
/** The path of a target as Fastify's router reads it. */
function routed(target, { caseSensitive, useSemicolonDelimiter }) {
    // Of the absolute form all before the third slash, also where that stands in a query.
    let path = (0, node_js_1.pathOf)(target.replace(/^https?:\/\/.*?\//i, "/"));
    if (useSemicolonDelimiter)
        path = path.split(";", 1)[0] || "/";
    return caseSensitive === false ? (0, node_js_1.lower)(path) : path;
}
// The hook is for the application, not for a scope that registering would make.
Object.assign(tidegate, { [Symbol.for("skip-override")]: true });
/** What a request has reserved; nothing if it was not asked for. */
function settlementOf(request) {
    return settlements.get(request);
}
