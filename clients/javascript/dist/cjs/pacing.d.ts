/**
 * The other side: a `fetch` that keeps within the limit of the API that it calls.
 *
 * It reads `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11, RFC 9651) and
 * `Retry-After` (RFC 9110), slows down before the denial, and repeats only safe requests.
 */
type Items = Map<string, Map<string, string | undefined>>;
/** A List of Strings with parameters, or nothing if it is malformed. */
export declare function items(text: string): Items | undefined;
/** How long to wait after a response; `spread`: each of the next requests, not only the first. */
export interface Wait {
    seconds: number;
    spread: boolean;
}
/** What a response asks for. `wallMs` is civil time. */
export declare function waitAfter(status: number, headers: Headers, wallMs: number, maxWaitSeconds: number): Wait;
/** How a paced `fetch` behaves. */
export interface PacingOptions {
    /** Longest wait, 60,000 if absent. A denial that asks for more is returned. */
    maxWaitMs?: number;
    /** How often a safe request is repeated, 2 if absent. */
    retries?: number;
    /** The `fetch` beneath. */
    fetch?: typeof fetch;
    /** Numbers from 0 to 1. */
    random?: () => number;
}
/** When the next request to each origin may leave; times are in milliseconds of `performance.now()`. */
export declare class Pacer {
    #private;
    readonly maxWaitMs: number;
    readonly random: () => number;
    constructor(maxWaitMs: number, random?: () => number);
    /** Milliseconds to wait before a request, which is then taken to leave. */
    before(origin: string, now: number): number;
    /** Takes note of a response. */
    after(origin: string, status: number, headers: Headers, now: number): void;
}
/** Makes a `fetch` that waits as the last responses asked, and repeats safe requests that were denied. */
export declare function pacedFetch(options?: PacingOptions): typeof fetch;
export {};
