/**
 * A store for express-rate-limit: `rateLimit({ windowMs: 60_000, limit: 100, store: new TidegateStore() })`.
 *
 * express-rate-limit hands a store a key, while Tidegate counts by its policies. So each limit of the application
 * needs the policy that `policyOf` writes; a limit without one is said once.
 */
import { Tidegate } from "./client.js";
import { bounded } from "./middleware.js";
/** The policy for a limit of the application, for the file of the server. */
export function policyOf(limit, windowMs, resource = "express-rate-limit") {
    const seconds = windowMs / 1000;
    return [
        "[[policy]]",
        `name = "${resource}-${limit}-per-${seconds}s"`,
        'algorithm = "fixed_window"',
        `limit = ${limit}`,
        `window_seconds = ${seconds}`,
        'key = ["client_id"]',
        `match = { resource = "${resource}", limit = "${limit}/${seconds}" }`,
        "",
    ].join("\n");
}
/** Counts in Tidegate. */
export class TidegateStore {
    /** Other processes count under the same keys. */
    localKeys = false;
    #client;
    #resource;
    #warn;
    #warned = false;
    #limit = 0;
    #window = "";
    constructor(options = {}) {
        this.#client = new Tidegate(options);
        this.#resource = options.resource ?? "express-rate-limit";
        this.#warn = options.warn ?? ((message) => console.warn(message));
    }
    /** Is told the application's limit. */
    init(options) {
        if (typeof options.limit !== "number")
            throw new TypeError("TidegateStore needs `limit` to be a number");
        this.#limit = options.limit;
        this.#window = `${options.limit}/${options.windowMs / 1000}`;
    }
    /** Takes a unit; more than the limit if it was denied. */
    async increment(key) {
        const decision = await this.#ask(key, 1);
        if (!decision.allowed) {
            return { totalHits: this.#limit + 1, resetTime: after(decision.retryAfterMs ?? decision.resetMs) };
        }
        return { totalHits: Math.max(1, this.#used(decision)), resetTime: after(decision.resetMs) };
    }
    /** What is used. */
    async get(key) {
        const decision = await this.#ask(key, 0);
        return { totalHits: this.#used(decision), resetTime: after(decision.resetMs) };
    }
    /** Gives a unit back. */
    async decrement(key) {
        await this.#client.refund(await this.#attributes(key));
    }
    /** Gives back what is used under a key. */
    async resetKey(key) {
        const used = this.#used(await this.#ask(key, 0));
        if (used > 0)
            await this.#client.refund(await this.#attributes(key), { cost: used });
    }
    async #attributes(key) {
        return { client_id: await bounded(key), resource: this.#resource, limit: this.#window };
    }
    async #ask(key, cost) {
        const decision = await this.#client.allow(await this.#attributes(key), { cost });
        if (decision.noMatch && !this.#warned) {
            this.#warned = true;
            this.#warn(`no policy of Tidegate applies to resource=${this.#resource} limit=${this.#window}, so it limits ` +
                "nothing: add what policyOf writes to the server's file");
        }
        return decision;
    }
    #used({ limit, remaining }) {
        if (limit === undefined || remaining === undefined)
            return 0;
        return Math.min(this.#limit, Math.max(0, limit - remaining));
    }
}
function after(milliseconds) {
    return milliseconds === undefined ? undefined : new Date(Date.now() + milliseconds);
}
