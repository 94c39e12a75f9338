/**
 * For Next: `export const GET = withTidegate(handler, { client, key })` in a route, or
 * `export const proxy = tidegate({ client, key })` in `proxy.ts` (`middleware.ts` before Next 16).
 */
import { protect, type WebOptions } from "./web.js";
export { settlementOf } from "./web.js";
/** Asks before a route's handler; a streamed reply can settle what it used. */
export declare const withTidegate: typeof protect;
/** Asks before the application's pages. What the reply used is not known here, so there is nothing to settle. */
export declare function tidegate(options: WebOptions): (request: Request) => Promise<Response>;
