"use strict";
/** What Express, Fastify and a plain Node server have in common: Node's request and response. */
Object.defineProperty(exports, "__esModule", { value: true });
exports.NODE_DEFAULTS = void 0;
exports.path = path;
exports.pathOf = pathOf;
exports.lower = lower;
exports.escaped = escaped;
exports.header = header;
exports.answer = answer;
exports.endWith = endWith;
/**
 * The path of a request in lower case, since Express and Connect route without regard to case; its method; the address,
 * as the framework or the connection states it.
 */
exports.NODE_DEFAULTS = {
    address: (request) => request.ip ?? request.socket.remoteAddress,
    attributes: (request) => ({
        path: escaped(lower(routed(request))),
        method: request.method ?? "GET",
    }),
    header,
    method: (request) => request.method,
    trust: "set Express' `trust proxy`",
};
/** The path by which a request is routed, as it was sent: with the prefix that is mounted, without the query. */
function path(request) {
    return escaped(routed(request));
}
function routed({ baseUrl, path, originalUrl, url }) {
    // What Express routes by: `url.parse` reads some targets as no other reader does.
    if (typeof baseUrl === "string" && typeof path === "string")
        return baseUrl + path;
    return pathOf((originalUrl ?? url ?? "/").trimEnd());
}
const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i;
/** The path of a request's target: without the query and the fragment, and of the absolute form without the authority. */
function pathOf(target) {
    const rest = target.replace(ORIGIN, "");
    return rest.split(/[?#]/, 1)[0] || "/";
}
/** In lower case, letters that are escaped, too. */
function lower(path) {
    const letter = (_, digits) => String.fromCharCode(Number.parseInt(digits, 16));
    return path.replace(/%(4[1-9a-f]|5[0-9a])/gi, letter).toLowerCase();
}
/** With each byte outside ASCII escaped: Node has them as Latin-1. */
function escaped(path) {
    const others = path.replace(/[\u0100-\uffff]+/g, (text) => encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\ufffd")));
    return others.replace(/[\u0080-\u00ff]/g, (byte) => `%${byte.charCodeAt(0).toString(16)}`);
}
/** The first value of a header field, or nothing. */
function header(request, name) {
    const value = request.headers[name.toLowerCase()];
    return (Array.isArray(value) ? value[0] : value) ?? "";
}
/** Answers a request that may not go ahead. What the application's CORS has said before stays. */
function answer(response, denied) {
    response.statusCode = denied.status;
    for (const [name, value] of Object.entries(denied.headers)) {
        if (name.startsWith("access-control-") && response.getHeader(name))
            continue;
        response.setHeader(name, value);
    }
    response.end(denied.body);
}
/** Refunds when the response has been sent, or its client has gone. */
function endWith(response, settlement, said = (name) => response.getHeader(name)) {
    response.once("close", () => {
        settlement.answered(said("access-control-allow-methods"));
        void settlement.end();
    });
}
