/** Requests by `fetch`: in browsers, Deno, Bun and workers, and where the user gives one. */
import { type Sender } from "./transport.js";
/** Sends to this URL and paths below it. */
export declare function byFetch(url: string, fetch: typeof globalThis.fetch): Sender;
