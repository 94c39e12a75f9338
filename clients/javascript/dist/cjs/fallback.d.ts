/**
 * What is known without the server: denials that are still good, whether to ask at all, and a local limit.
 *
 * Functions of their state and of `now`, in milliseconds of a clock that never goes back.
 */
import type { Fallback } from "./options.js";
import type { Attributes, Decision, Limits, ServerDecision } from "./types.js";
/** A question with nothing left out. */
export interface Question {
    attributes: Attributes;
    cost: number;
    peek: boolean;
    limits: Limits | undefined;
}
/** Denials that are still good. Bounded: then the oldest makes room. */
export declare class Denials {
    #private;
    readonly most: number;
    readonly longestMs: number;
    /** Denials that made room for others. */
    evicted: number;
    constructor(most: number, longestMs: number);
    /** The denial of a request that is no cheaper than one that was denied. */
    find(question: Question, now: number): Decision | undefined;
    /** Keeps a denial if it is one that holds for a known time. */
    keep(question: Question, decision: Decision, asked: number, now: number): void;
    /** Forgets a denial, because units came back. */
    forget(attributes: Attributes, now: number): void;
}
/** Whether to ask at all. Opens after some failures in a row, then lets one call through at a time. */
export declare class Breaker {
    #private;
    readonly most: number;
    readonly openMs: number;
    constructor(most: number, openMs: number);
    /** Whether a call may ask. */
    admits(now: number): boolean;
    /** Whether the server is not asked. */
    get isOpen(): boolean;
    /** The server gave no answer. */
    failed(now: number): void;
    /** The server is there. */
    answered(): void;
}
/** A token bucket for each client. Bounded: then the one unseen for longest is forgotten. */
export declare class LocalLimiter {
    #private;
    readonly fallback: Required<Fallback>;
    /** Clients that made room for others. */
    evicted: number;
    constructor(fallback: Required<Fallback>);
    /** Decides, and charges if that is asked for and fits. */
    decide(question: Question, now: number): ServerDecision;
}
