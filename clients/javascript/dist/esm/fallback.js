/**
 * What is known without the server: denials that are still good, whether to ask at all, and a local limit.
 *
 * Functions of their state and of `now`, in milliseconds of a clock that never goes back.
 */
const LONGEST = 512;
function keyOf(attributes) {
    return JSON.stringify(Object.entries(attributes).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)));
}
function sameLimits(one, other) {
    return (one?.limit === other?.limit &&
        one?.windowSeconds === other?.windowSeconds &&
        one?.algorithm === other?.algorithm &&
        one?.burst === other?.burst);
}
/** Denials that are still good. Bounded: then the oldest makes room. */
export class Denials {
    most;
    longestMs;
    #kept = new Map();
    /** Denials that made room for others. */
    evicted = 0;
    /** When units last came back. */
    #forgot = Number.NEGATIVE_INFINITY;
    constructor(most, longestMs) {
        this.most = most;
        this.longestMs = longestMs;
    }
    /** The denial of a request that is no cheaper than one that was denied. */
    find(question, now) {
        if (this.#kept.size === 0 || question.peek || question.cost === 0)
            return undefined;
        const key = keyOf(question.attributes);
        const kept = this.#kept.get(key);
        if (!kept)
            return undefined;
        if (now >= kept.until) {
            this.#kept.delete(key);
            return undefined;
        }
        if (question.cost < kept.cost || !sameLimits(question.limits, kept.limits))
            return undefined;
        return remembered(kept.decision, now - kept.since);
    }
    /** Keeps a denial if it is one that holds for a known time. */
    keep(question, decision, asked, now) {
        const wait = decision.retryAfterMs;
        if (decision.allowed || !wait || this.most < 1 || question.peek || question.cost === 0)
            return;
        if (decision.degraded)
            return;
        // What a concurrency limit denied, any release may end.
        if (decision.policies.some((part) => part.concurrent && !part.allowed && part.mode === "enforce"))
            return;
        // It may have been decided before the units came back.
        if (asked <= this.#forgot)
            return;
        const until = now + Math.min(wait, this.longestMs);
        const key = keyOf(question.attributes);
        this.#kept.delete(key);
        const { cost, limits } = question;
        this.#kept.set(key, { until, since: now, cost, limits, decision });
        if (this.#kept.size > this.most) {
            this.#kept.delete(oldest(this.#kept));
            this.evicted += 1;
        }
    }
    /** Forgets a denial, because units came back. */
    forget(attributes, now) {
        this.#forgot = now;
        this.#kept.delete(keyOf(attributes));
    }
}
/** A denial some time later: every time in it is so much shorter, and the field that states one is left out. */
function remembered({ rateLimit: _, ...denial }, passedMs) {
    const left = (milliseconds) => Math.max(1, Math.ceil(milliseconds - passedMs));
    const policies = denial.policies.map((part) => ({
        ...part,
        resetMs: Math.max(0, Math.ceil(part.resetMs - passedMs)),
        ...(part.retryAfterMs === undefined ? {} : { retryAfterMs: left(part.retryAfterMs) }),
    }));
    const retryAfterMs = left(denial.retryAfterMs ?? 0);
    const found = {
        ...denial,
        policies,
        retryAfterMs,
        retryAfter: Math.ceil(retryAfterMs / 1000),
        source: "cache",
    };
    if (denial.resetMs !== undefined)
        found.resetMs = Math.max(0, Math.ceil(denial.resetMs - passedMs));
    return found;
}
/** Whether to ask at all. Opens after some failures in a row, then lets one call through at a time. */
export class Breaker {
    most;
    openMs;
    #failures = 0;
    #until = 0;
    #open = false;
    #probing = false;
    constructor(most, openMs) {
        this.most = most;
        this.openMs = openMs;
    }
    /** Whether a call may ask. */
    admits(now) {
        if (!this.#open)
            return true;
        if (now < this.#until)
            return false;
        // This one is the probe; the next is due if it does not report.
        this.#probing = true;
        this.#until = now + this.openMs;
        return true;
    }
    /** Whether the server is not asked. */
    get isOpen() {
        return this.#open;
    }
    /** The server gave no answer. */
    failed(now) {
        // A call that was under way when the breaker opened says nothing new.
        if (this.#open && !this.#probing)
            return;
        this.#failures += 1;
        if (!this.#open && this.#failures < this.most)
            return;
        this.#open = true;
        this.#probing = false;
        this.#until = now + this.openMs;
    }
    /** The server is there. */
    answered() {
        this.#failures = 0;
        this.#open = false;
        this.#probing = false;
    }
}
/** A token bucket for each client. Bounded: then the one unseen for longest is forgotten. */
export class LocalLimiter {
    fallback;
    #units;
    #perMs;
    /** Clients that made room for others. */
    evicted = 0;
    #buckets = new Map();
    constructor(fallback) {
        this.fallback = fallback;
        this.#units = Math.max(1, Math.floor(fallback.limit * fallback.share + 1e-9));
        this.#perMs = this.#units / (fallback.windowSeconds * 1000);
    }
    /** Decides, and charges if that is asked for and fits. */
    decide(question, now) {
        const { attributes, peek } = question;
        const cost = Math.max(0, question.cost);
        const key = JSON.stringify(this.fallback.key.map((name) => short(attributes[name])));
        const bucket = this.#buckets.get(key) ?? { units: this.#units, seen: now };
        const units = Math.min(this.#units, bucket.units + Math.max(0, now - bucket.seen) * this.#perMs);
        // A millionth of a unit is what rounding may cost.
        const allowed = units + 1e-6 >= cost;
        const shown = allowed ? Math.max(0, units - cost) : units;
        this.#buckets.delete(key);
        this.#buckets.set(key, { units: allowed && !peek ? shown : units, seen: Math.max(now, bucket.seen) });
        if (this.#buckets.size > this.fallback.keys) {
            this.#buckets.delete(oldest(this.#buckets));
            this.evicted += 1;
        }
        const decision = {
            allowed,
            policies: [],
            limit: this.#units,
            remaining: Math.floor(shown + 1e-6),
            resetMs: Math.ceil((this.#units - shown) / this.#perMs),
            degraded: "local",
        };
        if (!allowed) {
            const waitMs = Math.max(1, Math.ceil((Math.min(cost, this.#units) - units) / this.#perMs));
            decision.retryAfter = Math.ceil(waitMs / 1000);
            if (cost <= this.#units)
                decision.retryAfterMs = waitMs;
        }
        return decision;
    }
}
/** A key of bounded length: the server refuses longer values, so telling them apart matters to nobody. */
function short(value) {
    if (value === undefined)
        return null;
    return value.length <= LONGEST ? value : `${value.slice(0, LONGEST)}~${value.length}`;
}
function oldest(map) {
    // Invariant: a map that is over its bound has an entry.
    return map.keys().next().value;
}
