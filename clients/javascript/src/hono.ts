/** For Hono: `app.use(tidegate({ client, key }))`. `key` and the others are given the request of the Fetch API. */

import { guardOf, serve, type WebOptions } from "./web.js";

export { settlementOf } from "./web.js";

/** Asks before each request. */
export function tidegate(
  options: WebOptions,
  // biome-ignore lint/suspicious/noExplicitAny: Hono's context has type parameters of the application.
): (context: any, next: () => Promise<void>) => Promise<undefined> {
  const guard = guardOf(options);
  return async (context: { req: { raw: Request }; res: Response | undefined }, next) => {
    const made = await serve(guard, context.req.raw, async () => {
      await next();
      // Invariant: after `next` there is a response, 404 if nothing else.
      return context.res as Response;
    });
    // Without this Hono merges the headers of the earlier response into its successor's.
    context.res = undefined;
    context.res = made;
    return undefined;
  };
}
