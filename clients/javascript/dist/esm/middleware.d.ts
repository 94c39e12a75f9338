/**
 * What the middlewares have in common: what is asked for a request, and which response a decision makes.
 *
 * The documents and fields are those that Tidegate itself sends to proxies (`/v1/check`).
 *
 * What a user sent is never the user's 400: what the server refuses is decided as without the server, and a path is
 * sent whole, since a policy could not see what was cut off. One that is longer than servers take is answered 414.
 */
import { Tidegate } from "./client.js";
import { type Attributes, type Decision } from "./types.js";
/** A value, or a promise of it. */
export type Awaitable<T> = T | Promise<T>;
/** What a middleware is made with. `R` is what the framework calls a request. */
export interface MiddlewareOptions<R> {
    /** The client, one with its defaults if absent. */
    client?: Tidegate;
    /** Who asks: it becomes `client_id`. Those of whom nothing is known are one client, whose name is empty. */
    key?: (request: R) => Awaitable<string | null | undefined>;
    /** What is sent beside it, `path` and `method` if absent; a `client_id` among them counts instead of the key. */
    attributes?: (request: R) => Readonly<Record<string, string | null | undefined>>;
    /** Units that the request takes, 1 if absent. With `settle`, the most that it can take. */
    cost?: (request: R) => Awaitable<number>;
    /** Requests that are not asked for. */
    skip?: (request: R) => boolean;
    /** Longest that a leaky bucket may hold a request back, 1,000 if absent. */
    maxDelayMs?: number;
    /** Is told, once each, that requests are refused by the server, or come by a proxy that is not trusted: `console.warn`. */
    warn?: (message: string) => void;
}
/** What a framework knows of a request. */
export interface Known<R> {
    /** The address that the framework takes for the client's; `key` if absent. */
    address?: (request: R) => string | undefined;
    /** Path and method. */
    attributes: (request: R) => Readonly<Record<string, string | null | undefined>>;
    /** The first value of a header field. */
    header: (request: R, name: string) => string | null | undefined;
    method: (request: R) => string | undefined;
    /** How to trust a proxy. */
    trust: string;
}
/** The response to a request that may not go ahead. */
export interface Denial {
    status: number;
    headers: Record<string, string>;
    body: string;
}
/** What a request has reserved. The application may say what it has used; the rest is refunded. */
export declare class Settlement {
    #private;
    readonly decision: Decision;
    private readonly attributes;
    private readonly cost;
    private readonly client;
    private readonly preflight;
    /** @internal */
    constructor(decision: Decision, attributes: Attributes, cost: number, client: Tidegate, preflight?: boolean);
    /** A preflight that the application's CORS answered has used nothing. @internal */
    answered(allowMethods: unknown): void;
    /** Says how many units were used, at the latest when the response has been sent. */
    settle(used: number): void;
    /** Refunds what is left, once; nothing if the application has not settled. @internal */
    end(): Promise<void>;
}
/** Asks for requests of one framework. */
export declare class Guard<R> {
    #private;
    constructor(options: MiddlewareOptions<R>, known: Known<R>);
    /** A settlement for a request that may go ahead, a denial, or nothing if it is skipped. */
    ask(request: R): Promise<Settlement | Denial | undefined>;
}
/** A value as it can be sent: one that is long, or no Unicode, is cut, and ends in the digest of the whole. */
export declare function bounded(value: string | null | undefined): Promise<string>;
/** `RateLimit-Policy` and `RateLimit`: as the server sent them, or made of the parts: of a batch's, and of a cached denial's. */
export declare function fields(decision: Decision): Record<string, string>;
/** The response to a denied request. */
export declare function denial(decision: Decision): Denial;
