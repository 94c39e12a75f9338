/** Asks Tidegate, a rate-limit service, and is never the reason of an outage. */
export { type AllowOptions, type CallOptions, Permit, type RefundOptions, Tidegate } from "./client.js";
export type { Fallback, Options } from "./options.js";
export { type Ask, type Attributes, type Decision, type Event, type Explanation, type Failure, type FieldError, InvalidRequest, type Lease, type Limits, type Mode, type Part, type PolicyExplanation, type Problem, type Refunded, type Renewed, type RequestLimits, type Source, type Stats, Unavailable, } from "./types.js";
/** This package's version, which is the binary's. */
export declare const VERSION = "0.1.0";
