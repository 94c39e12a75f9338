/**
 * A store for express-rate-limit: `rateLimit({ windowMs: 60_000, limit: 100, store: new TidegateStore() })`.
 *
 * The numbers of the application go with each question, and hold where no policy applies. `policyOf` writes the policy
 * by which the server takes a limit over, to change it without the application.
 */
import { Tidegate } from "./client.js";
import { bounded } from "./middleware.js";
/** What the server takes: a window of 90 days, a billion units. */
const LONGEST_SECONDS = 7_776_000;
const MOST = 1_000_000_000;
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
    #limits;
    constructor(options = {}) {
        this.#client = new Tidegate(options);
        this.#resource = options.resource ?? "express-rate-limit";
        this.#warn = options.warn ?? ((message) => console.warn(message));
    }
    /** Is told the application's limit. */
    init(options) {
        if (typeof options.limit !== "number")
            throw new TypeError("TidegateStore needs `limit` to be a number");
        const windowSeconds = options.windowMs / 1000;
        const isTaken = Number.isInteger(windowSeconds) &&
            windowSeconds >= 1 &&
            windowSeconds <= LONGEST_SECONDS &&
            options.limit <= MOST;
        this.#limit = options.limit;
        this.#window = `${options.limit}/${windowSeconds}`;
        this.#limits = isTaken ? { limit: options.limit, windowSeconds, algorithm: "fixed_window" } : undefined;
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
        await this.#giveBack(key, 1);
    }
    /** Gives back what is used under a key. */
    async resetKey(key) {
        const used = this.#used(await this.#ask(key, 0));
        if (used > 0)
            await this.#giveBack(key, used);
    }
    async #giveBack(key, cost) {
        await this.#client.refund(await this.#attributes(key), { cost, ...this.#own });
    }
    get #own() {
        return this.#limits ? { limits: this.#limits } : {};
    }
    async #attributes(key) {
        return { client_id: await bounded(key), resource: this.#resource, limit: this.#window };
    }
    async #ask(key, cost) {
        const decision = await this.#client.allow(await this.#attributes(key), { cost, ...this.#own });
        if (decision.noMatch && !this.#warned) {
            this.#warned = true;
            this.#warn(`no policy of Tidegate applies to resource=${this.#resource} limit=${this.#window}, and the server takes none like ` +
                "it from an application: on_no_match decides; add what policyOf writes to the server's file");
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
