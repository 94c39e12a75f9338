"use strict";
/**
 * For Next: `export const GET = withTidegate(handler, { client, key })` in a route, or
 * `export const proxy = tidegate({ client, key })` in `proxy.ts` (`middleware.ts` before Next 16).
 */
Object.defineProperty(exports, "__esModule", { value: true });
exports.withTidegate = exports.settlementOf = void 0;
exports.tidegate = tidegate;
const middleware_js_1 = require("./middleware.js");
const web_js_1 = require("./web.js");
var web_js_2 = require("./web.js");
Object.defineProperty(exports, "settlementOf", { enumerable: true, get: function () { return web_js_2.settlementOf; } });
/** Asks before a route's handler; a streamed reply can settle what it used. */
exports.withTidegate = web_js_1.protect;
/** Asks before the application's pages. What the reply used is not known here, so there is nothing to settle. */
function tidegate(options) {
    const guard = (0, web_js_1.guardOf)(options);
    // What NextResponse.next() says.
    const goOn = { "x-middleware-next": "1" };
    return async (request) => {
        const found = await guard.ask(request);
        if (found === undefined)
            return new Response(null, { headers: goOn });
        if (found instanceof middleware_js_1.Settlement) {
            return new Response(null, { headers: { ...goOn, ...(0, middleware_js_1.fields)(found.decision) } });
        }
        return new Response(found.body, { status: found.status, headers: found.headers });
    };
}
