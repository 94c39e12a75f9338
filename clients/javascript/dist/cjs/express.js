"use strict";
/**
 * For Express, Connect and a plain Node server: `app.use(tidegate({ client, key }))`.
 *
 * Express and Connect route `/PAY` to the handler of `/pay`, so `path` is sent in lower case.
 */
Object.defineProperty(exports, "__esModule", { value: true });
exports.path = exports.header = void 0;
exports.tidegate = tidegate;
exports.settlementOf = settlementOf;
const middleware_js_1 = require("./middleware.js");
const node_js_1 = require("./node.js");
var node_js_2 = require("./node.js");
Object.defineProperty(exports, "header", { enumerable: true, get: function () { return node_js_2.header; } });
Object.defineProperty(exports, "path", { enumerable: true, get: function () { return node_js_2.path; } });
const settlements = new WeakMap();
/** Asks before each request. `key` and the others are given the framework's request. */
function tidegate(options = {}) {
    const guard = new middleware_js_1.Guard(options, node_js_1.NODE_DEFAULTS);
    return (request, response, next) => {
        guard.ask(request).then((found) => {
            if (found === undefined) {
                next();
            }
            else if (found instanceof middleware_js_1.Settlement) {
                settlements.set(request, found);
                (0, node_js_1.endWith)(response, found);
                for (const [name, value] of Object.entries((0, middleware_js_1.fields)(found.decision)))
                    response.setHeader(name, value);
                next();
            }
            else {
                (0, node_js_1.answer)(response, found);
            }
        }, next);
    };
}
/** What a request has reserved; nothing if it was not asked for. */
function settlementOf(request) {
    return settlements.get(request);
}
