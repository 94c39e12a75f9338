/** For Hono: `app.use(tidegate({ client, key }))`. `key` and the others are given the request of the Fetch API. */
import { escapedText, guardOf, serve } from "./web.js";
export { settlementOf } from "./web.js";
/** Asks before each request. */
export function tidegate(options) {
    // What Hono routes by, which `getPath` may have changed.
    const paths = new WeakMap();
    const guard = guardOf(options, (request) => escapedText(paths.get(request) ?? "/"));
    return async (context, next) => {
        const { raw, path } = context.req;
        paths.set(raw, path);
        let went = false;
        const made = await serve(guard, raw, async () => {
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
