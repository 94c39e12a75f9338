/**
 * For Express, Connect and a plain Node server: `app.use(tidegate({ client, key }))`.
 *
 * Express and Connect route `/PAY` to the handler of `/pay`, so `path` is sent in lower case.
 */
import { type MiddlewareOptions, Settlement } from "./middleware.js";
import { type NodeRequest, type NodeResponse } from "./node.js";
export { header, path } from "./node.js";
/** Asks before each request. `key` and the others are given the framework's request. */
export declare function tidegate<R extends NodeRequest = NodeRequest>(options?: MiddlewareOptions<R>): (request: R, response: NodeResponse, next: (error?: unknown) => void) => void;
/** What a request has reserved; nothing if it was not asked for. */
export declare function settlementOf(request: object): Settlement | undefined;
