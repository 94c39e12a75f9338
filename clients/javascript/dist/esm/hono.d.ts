/** For Hono: `app.use(tidegate({ client, key }))`. `key` and the others are given the request of the Fetch API. */
import { type WebOptions } from "./web.js";
export { settlementOf } from "./web.js";
/** Asks before each request. */
export declare function tidegate(options: WebOptions): (context: any, next: () => Promise<void>) => Promise<undefined>;
