/**
 * A store for express-rate-limit: `rateLimit({ windowMs: 60_000, limit: 100, store: new TidegateStore() })`.
 *
 * The numbers of the application go with each question, and hold where no policy applies. `policyOf` writes the policy
 * by which the server takes a limit over, to change it without the application.
 */
import type { Options } from "./options.js";
/** What the store is made with, beside the options of the client. */
export interface StoreOptions extends Options {
    /** Tells applications apart, `express-rate-limit` if absent. */
    resource?: string;
    /** Is told once that nothing limits, `console.warn` if absent. */
    warn?: (message: string) => void;
}
interface Hits {
    totalHits: number;
    resetTime: Date | undefined;
}
/** The policy for a limit of the application, for the file of the server. */
export declare function policyOf(limit: number, windowMs: number, resource?: string): string;
/** Counts in Tidegate. */
export declare class TidegateStore {
    #private;
    /** Other processes count under the same keys. */
    readonly localKeys = false;
    constructor(options?: StoreOptions);
    /** Is told the application's limit. */
    init(options: {
        windowMs: number;
        limit?: unknown;
    }): void;
    /** Takes a unit; more than the limit if it was denied. */
    increment(key: string): Promise<Hits>;
    /** What is used. */
    get(key: string): Promise<Hits>;
    /** Gives a unit back. */
    decrement(key: string): Promise<void>;
    /** Gives back what is used under a key. */
    resetKey(key: string): Promise<void>;
}
export {};
