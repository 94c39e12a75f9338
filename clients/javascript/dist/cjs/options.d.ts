/** What a client is made with, checked when it is made: nothing else of a client can be wrong. */
import type { Event, Mode } from "./types.js";
/** The local limiter of `onFailure: "local"`: a token bucket of `limit * share` for each value of `key`. */
export interface Fallback {
    limit: number;
    windowSeconds: number;
    /** This process's part of the limit, 1 if absent. */
    share?: number;
    /** Attributes that name a bucket, `["client_id"]` if absent. */
    key?: readonly string[];
    /** Most buckets, 10,000 if absent; then the one unseen for longest is forgotten. */
    keys?: number;
}
/** See the table of options in the README of all clients. */
export interface Options {
    /** `TIDEGATE_URL` if absent, else `http://127.0.0.1:4000`. */
    url?: string;
    /** `TIDEGATE_TOKEN` if absent, else none. */
    token?: string;
    /** For each call as a whole, 50 if absent. */
    deadlineMs?: number;
    /** What decides without the server, `open` if absent. */
    onFailure?: Mode;
    /** Needed by `local`. */
    fallback?: Fallback;
    /** Most denials that are kept, 1,000 if absent. */
    denialCache?: number;
    /** Longest that a denial is kept, 60,000 if absent. */
    denialCacheMs?: number;
    /** Whether calls that wait are sent together. */
    batch?: boolean;
    /** Most requests at once, 64 if absent. */
    maxConnections?: number;
    /** Failures in a row that open the breaker, 5 if absent. */
    breakerFailures?: number;
    /** How long nothing is asked then, 1,000 if absent. */
    breakerOpenMs?: number;
    /** Called after each call; what it throws is ignored. */
    onEvent?: (event: Event) => void;
    /**
     * Fields to add to each call that shares its request with no other, such as `traceparent`: none if absent. What it
     * throws is ignored.
     */
    headers?: () => Record<string, string>;
    /** A `fetch` of your own, with a certificate or a proxy. If absent Node's own HTTP client asks, and elsewhere `fetch`. */
    fetch?: typeof fetch;
}
/** All options with their defaults. */
export interface Settings extends Required<Omit<Options, "token" | "fallback" | "onEvent" | "headers" | "fetch">> {
    /** The client's own, of each request. */
    fields: Record<string, string>;
    headers: (() => Record<string, string>) | undefined;
    fallback: Required<Fallback> | undefined;
    onEvent: ((event: Event) => void) | undefined;
    fetch: typeof fetch | undefined;
}
export declare function settingsOf(options: Options): Settings;
/** A deadline is never endless. */
export declare function checkedDeadline(deadlineMs: number): number;
