/**
 * For Next: `export const GET = withTidegate(handler, { client, key })` in a route, or
 * `export const proxy = tidegate({ client, key })` in `proxy.ts` (`middleware.ts` before Next 16).
 */
import { fields, Settlement } from "./middleware.js";
import { guardOf, protect } from "./web.js";
export { settlementOf } from "./web.js";
/** Asks before a route's handler; a streamed reply can settle what it used. */
export const withTidegate = protect;
/** Asks before the application's pages. What the reply used is not known here, so there is nothing to settle. */
export function tidegate(options) {
    const guard = guardOf(options);
    // What NextResponse.next() says.
    const goOn = { "x-middleware-next": "1" };
    return async (request) => {
        const found = await guard.ask(request);
        if (found === undefined)
            return new Response(null, { headers: goOn });
        if (found instanceof Settlement) {
            return new Response(null, { headers: { ...goOn, ...fields(found.decision) } });
        }
        return new Response(found.body, { status: found.status, headers: found.headers });
    };
}
