/**
 * For Express, Connect and a plain Node server: `app.use(tidegate({ client, key }))`.
 *
 * Express and Connect route `/PAY` to the handler of `/pay`, so `path` is sent in lower case.
 */
import { fields, Guard, Settlement } from "./middleware.js";
import { answer, endWith, NODE_DEFAULTS } from "./node.js";
export { header, path } from "./node.js";
const settlements = new WeakMap();
/** Asks before each request. `key` and the others are given the framework's request. */
export function tidegate(options = {}) {
    const guard = new Guard(options, NODE_DEFAULTS);
    return (request, response, next) => {
        guard.ask(request).then((found) => {
            if (found === undefined) {
                next();
            }
            else if (found instanceof Settlement) {
                settlements.set(request, found);
                endWith(response, found);
                for (const [name, value] of Object.entries(fields(found.decision)))
                    response.setHeader(name, value);
                next();
            }
            else {
                answer(response, found);
            }
        }, next);
    };
}
/** What a request has reserved; nothing if it was not asked for. */
export function settlementOf(request) {
    return settlements.get(request);
}
