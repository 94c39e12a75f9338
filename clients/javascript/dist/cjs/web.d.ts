/**
 * For servers that speak the Fetch API: Deno, Bun, workers, Next's route handlers, Hono.
 *
 * `Deno.serve(protect(handler, { client, key }))`. There is no peer's address in a `Request`, so `key` is needed.
 */
import { Guard, type MiddlewareOptions, Settlement } from "./middleware.js";
/** The options, of which `key` is needed. */
export type WebOptions = MiddlewareOptions<Request> & Required<Pick<MiddlewareOptions<Request>, "key">>;
/** Makes the guard for requests of the Fetch API. */
export declare function guardOf(options: WebOptions, path?: (request: Request) => string): Guard<Request>;
/** With all that is not ASCII escaped. */
export declare function escapedText(path: string): string;
/** Asks before each request, and hands it to the handler with its further arguments. */
export declare function protect<R extends Request, A extends unknown[]>(handler: (request: R, ...rest: A) => Response | Promise<Response>, options: WebOptions): (request: R, ...rest: A) => Promise<Response>;
/** Asks for one request, and calls `next` if it may go ahead. */
export declare function serve(guard: Guard<Request>, request: Request, next: () => Promise<Response>): Promise<Response>;
/** What a request has reserved; nothing if it was not asked for. */
export declare function settlementOf(request: Request): Settlement | undefined;
