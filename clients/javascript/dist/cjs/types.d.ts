/**
 * What calls take and return, and what they throw.
 *
 * The interfaces are those of the API's OpenAPI document in the spelling of JavaScript, with the client's own
 * fields beside them. A check of the types compares the two, so a field that is new there has to come here.
 * `read` is strict: a reply whose fields have other types than the document says is no decision.
 */
/** What is known of a request: names and values. */
export type Attributes = Readonly<Record<string, string>>;
/** What decides without the server. */
export type Mode = "open" | "closed" | "local";
/** Who decided: the server; a denial that is still good; the client, without the server. */
export type Source = "server" | "cache" | "fallback";
/** Why the server did not decide. */
export type Failure = "timeout" | "connection" | "status" | "reply" | "breaker";
/** A limit that comes with a request, and decides where no policy applies. */
export interface Limits {
    /** Units per window. */
    limit: number;
    windowSeconds: number;
    /** `sliding_log` if absent. */
    algorithm?: string;
    /** Units at once, of a bucket. */
    burst?: number;
}
/** One question. */
export interface Ask {
    attributes: Attributes;
    /** Units that the request takes, 1 if absent; 0 reads what remains. */
    cost?: number;
    /** Answer as if it were spent, and spend nothing. */
    peek?: boolean;
    /** Decide where no policy applies. */
    limits?: Limits;
}
/** One policy's part in a decision. */
export interface Part {
    policy: string;
    mode: string;
    allowed: boolean;
    limit: number;
    remaining: number;
    resetMs: number;
    retryAfterMs?: number;
    /** It limits requests at one time: any release may end a denial before its wait is over. */
    concurrent?: boolean;
}
/** What the server says of a request. */
export interface ServerDecision {
    allowed: boolean;
    policies: Part[];
    policy?: string;
    limit?: number;
    remaining?: number;
    retryAfter?: number;
    retryAfterMs?: number;
    resetMs?: number;
    delayMs?: number;
    permit?: string;
    degraded?: string;
    noMatch?: boolean;
}
/** Whether a request may go ahead, and why. */
export interface Decision extends ServerDecision {
    source: Source;
    failure?: Failure;
    /** The response field `RateLimit-Policy`. */
    rateLimitPolicy?: string;
    /** The response field `RateLimit`. */
    rateLimit?: string;
}
/** The policies that were given units back; `failure` if the server gave no answer. */
export interface Refunded {
    policies: string[];
    failure?: Failure;
}
/** How long a permit now lasts. */
export interface Renewed {
    leaseMs: number;
}
/** What taking units of a policy ahead can cost, over all nodes. */
export interface Lease {
    nodes: number;
    units: number;
    lifetimeMs: number;
    overAdmission: number;
    stranded: number;
}
/** One policy's part in an explanation. */
export interface PolicyExplanation {
    policy: Record<string, unknown>;
    origin: string;
    applies: boolean;
    becauseOf?: string;
    ownLimits?: Record<string, unknown>;
    lease?: Lease;
    verdict?: Part;
}
/** The numbers that came with a request, in its explanation. */
export interface RequestLimits {
    limits: Record<string, unknown>;
    /** Whether they decide. */
    decide: boolean;
    verdict?: Part;
}
/** What would happen to a request, and why. */
export interface Explanation {
    allowed: boolean;
    revision: number;
    policies: PolicyExplanation[];
    noMatch?: boolean;
    /** How many policies that do not apply are left out. */
    notListed?: number;
    degraded?: string;
    requestLimits?: RequestLimits;
}
/** One mistake in what was sent. */
export interface FieldError {
    pointer: string;
    detail: string;
    accepted?: string;
}
/** A problem document (RFC 9457). */
export interface Problem {
    type: string;
    title: string;
    status: number;
    detail: string;
    errors?: FieldError[];
    violatedPolicies?: string[];
}
/** What a call came to. It holds no attribute's value, so no client becomes a label. */
export interface Event {
    operation: "allow" | "batch" | "refund" | "acquire" | "renew" | "release" | "explain";
    outcome: "allowed" | "denied" | "done" | "failed";
    durationMs: number;
    source?: Source;
    failure?: Failure;
    policy?: string;
    count: number;
}
/** How often a bound of the client was reached, and whether it asks. */
export interface Stats {
    connectionsFull: number;
    denialsEvicted: number;
    fallbackEvicted: number;
    breakerOpen: boolean;
}
/** The server calls the request wrong: its author's mistake. `problem` says where. */
export declare class InvalidRequest extends Error {
    readonly problem: Problem;
    readonly name = "InvalidRequest";
    constructor(problem: Problem);
}
/** The server gave no answer to a call that has nothing to fall back to. */
export declare class Unavailable extends Error {
    readonly failure: Failure;
    readonly name = "Unavailable";
    constructor(failure: Failure);
}
/** A reply has not the form that the API documents. Calls turn it into the failure `reply`. */
export declare class NotAsDocumented extends Error {
}
type Kind = "boolean" | "number" | "string" | "object" | Model;
/** Name in the API, name here, what it is, whether it is a list of that, whether it must be there. */
type Field = readonly [string, string, Kind, boolean, boolean];
/** How an object of the API is read. */
export type Model = readonly Field[];
export declare const DECISION: Model;
export declare const REFUNDED: Model;
export declare const RENEWED: Model;
export declare const EXPLANATION: Model;
export declare const PROBLEM: Model;
/** Reads an object of the API; fields that the model does not have are passed over. */
export declare function read<T>(model: Model, document: unknown): T;
export {};
