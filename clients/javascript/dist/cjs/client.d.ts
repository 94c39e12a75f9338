/**
 * The client.
 *
 * ```text
 *   call -> cached? -> breaker? -> Transport -> judge -> decision
 *                         |                       |
 *                         +------> fallBack <-----+
 * ```
 */
import { type Options } from "./options.js";
import type { Ask, Attributes, Decision, Explanation, Limits, Refunded, Renewed, Stats } from "./types.js";
/** What a disposal is called where the platform has no name for it yet. */
declare const ASYNC_DISPOSE: typeof Symbol.asyncDispose;
/** What a call may have of its own. */
export interface CallOptions {
    /** Replaces the client's deadline. */
    deadlineMs?: number;
}
/** A call to `allow`. */
export interface AllowOptions extends CallOptions {
    /** Units that the request takes, 1 if absent; 0 reads what remains. */
    cost?: number;
    /** Answer as if it were spent, and spend nothing. */
    peek?: boolean;
    /** Decide where no policy applies. */
    limits?: Limits;
}
/** A call to `refund`. */
export interface RefundOptions extends CallOptions {
    /** Units that come back, 1 if absent. */
    cost?: number;
    /** Those that the units were asked for with. */
    limits?: Limits;
}
/** Asks Tidegate. Made once, and used for any number of calls at once. */
export declare class Tidegate {
    #private;
    /** Throws a RangeError for options that make no sense. */
    constructor(options?: Options);
    /** Asks whether a request may go ahead, and charges it if so. Throws only `InvalidRequest`. */
    allow(attributes: Attributes, options?: AllowOptions): Promise<Decision>;
    /** Decides as if the server had not answered: what a middleware does where it refuses what it is asked. @internal */
    alone(attributes: Attributes, options?: AllowOptions): Decision;
    /** Asks for several decisions, in their order. Throws only `InvalidRequest`. */
    batch(requests: readonly Ask[], options?: CallOptions): Promise<Decision[]>;
    /** Gives units back. Throws only `InvalidRequest`. */
    refund(attributes: Attributes, options?: RefundOptions): Promise<Refunded>;
    /** Asks for a permit: `await using permit = await limits.acquire(...)`. Throws only `InvalidRequest`. */
    acquire(attributes: Attributes, options?: CallOptions): Promise<Permit>;
    /** Asks what each policy would do, and what `limits` would, and charges nothing. Throws `InvalidRequest` and `Unavailable`. */
    explain(attributes: Attributes, options?: CallOptions & {
        cost?: number;
        limits?: Limits;
    }): Promise<Explanation>;
    /** How often a bound was reached, and whether the server is asked. */
    stats(): Stats;
    /** Gives the connections back. A call that is under way ends without the server. */
    close(): void;
}
interface PermitCalls {
    renew(permit: string): Promise<Renewed | undefined>;
    release(permit: string): Promise<void>;
}
/** A permit, or why there is none. */
export declare class Permit implements AsyncDisposable {
    #private;
    readonly decision: Decision;
    /** @internal */
    constructor(decision: Decision, calls: PermitCalls);
    /** Whether the request may go ahead. */
    get allowed(): boolean;
    /** Whether the server holds a place for it. */
    get held(): boolean;
    /** Prolongs it by another lease; nothing if it is not held any more, or the server gave no answer. */
    renew(): Promise<Renewed | undefined>;
    /** Gives it back, once. What cannot be given back ends with its lease. */
    release(): Promise<void>;
    [ASYNC_DISPOSE](): Promise<void>;
}
export {};
