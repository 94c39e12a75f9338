/** For Fastify: `app.register(tidegate, { client, key })`. */
import { fields, Guard, Settlement } from "./middleware.js";
import { endWith, escaped, header, lower, pathOf } from "./node.js";
export { header };
const settlements = new WeakMap();
/** Asks before each request of the whole application. `key` and the others are given Fastify's request. */
export async function tidegate(app, options) {
    const router = { ...app.initialConfig, ...app.initialConfig.routerOptions };
    const guard = new Guard(options, {
        address: (request) => request.ip,
        attributes: (request) => ({
            path: escaped(routed(request.raw.url ?? "/", router)),
            method: request.raw.method ?? "GET",
        }),
        header,
        method: (request) => request.raw.method,
        trust: "set Fastify's `trustProxy`",
    });
    app.addHook("onRequest", async (request, reply) => {
        const found = await guard.ask(request);
        if (found === undefined)
            return undefined;
        if (found instanceof Settlement) {
            settlements.set(request, found);
            endWith(reply.raw, found, (name) => reply.getHeader(name));
            for (const [name, value] of Object.entries(fields(found.decision)))
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
    let path = pathOf(target.replace(/^https?:\/\/.*?\//i, "/"));
    if (useSemicolonDelimiter)
        path = path.split(";", 1)[0] || "/";
    return caseSensitive === false ? lower(path) : path;
}
// The hook is for the application, not for a scope that registering would make.
Object.assign(tidegate, { [Symbol.for("skip-override")]: true });
/** What a request has reserved; nothing if it was not asked for. */
export function settlementOf(request) {
    return settlements.get(request);
}
