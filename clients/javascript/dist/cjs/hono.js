"use strict";
/** For Hono: `app.use(tidegate({ client, key }))`. `key` and the others are given the request of the Fetch API. */
Object.defineProperty(exports, "__esModule", { value: true });
exports.settlementOf = void 0;
exports.tidegate = tidegate;
const web_js_1 = require("./web.js");
var web_js_2 = require("./web.js");
Object.defineProperty(exports, "settlementOf", { enumerable: true, get: function () { return web_js_2.settlementOf; } });
/** Asks before each request. */
function tidegate(options) {
    // What Hono routes by, which `getPath` may have changed.
    const paths = new WeakMap();
    const guard = (0, web_js_1.guardOf)(options, (request) => (0, web_js_1.escapedText)(paths.get(request) ?? "/"));
    return async (context, next) => {
        const { raw, path } = context.req;
        paths.set(raw, path);
        let went = false;
        const made = await (0, web_js_1.serve)(guard, raw, async () => {
            went = true;
            await next();
            // Invariant: after `next` there is a response, 404 if nothing else.
            return context.res;
        });
        // Without this Hono merges the headers of the earlier response into its successor's. A denial keeps them: they are
        // what the application's CORS has said.
        if (went)
            context.res = undefined;
        context.res = made;
        return undefined;
    };
}
