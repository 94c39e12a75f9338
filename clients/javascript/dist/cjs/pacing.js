"use strict";
/**
 * The other side: a `fetch` that keeps within the limit of the API that it calls.
 *
 * It reads `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11, RFC 9651) and
 * `Retry-After` (RFC 9110), slows down before the denial, and repeats only safe requests.
 */
Object.defineProperty(exports, "__esModule", { value: true });
exports.Pacer = void 0;
exports.items = items;
exports.waitAfter = waitAfter;
exports.pacedFetch = pacedFetch;
const SAFE = ["GET", "HEAD", "OPTIONS", "TRACE"];
const DENIED = [429, 503];
const MAX_ORIGINS = 1_000;
const STRING = String.raw `"(?:[ !#-\[\]-~]|\\["\\])*"`;
const BARE = [
    String.raw `-?\d{1,12}\.\d{1,3}`,
    String.raw `-?\d{1,15}`,
    STRING,
    String.raw `[A-Za-z*][!#$%&'*+\-.^_\`|~\w:\/]*`.replace("\\`", "`"),
    String.raw `:[A-Za-z0-9+\/=]*:`,
    String.raw `\?[01]`,
    String.raw `@-?\d{1,15}`,
].join("|");
const NAME = new RegExp(STRING, "y");
const PARAMETER = new RegExp(`; *([a-z*][a-z0-9_\\-.*]*)(?:=(${BARE}))?`, "y");
const COMMA = /[ \t]*,[ \t]*/y;
/** A List of Strings with parameters, or nothing if it is malformed. */
function items(text) {
    const field = text.replace(/^ +| +$/g, "");
    const found = new Map();
    let at = 0;
    const take = (pattern) => {
        pattern.lastIndex = at;
        const match = pattern.exec(field);
        if (match)
            at += match[0].length;
        return match;
    };
    while (at < field.length) {
        const name = take(NAME)?.[0].slice(1, -1).replace(/\\(.)/g, "$1");
        if (name === undefined)
            return undefined;
        const parameters = found.get(name) ?? new Map();
        found.set(name, parameters);
        for (let match = take(PARAMETER); match; match = take(PARAMETER))
            parameters.set(match[1] ?? "", match[2]);
        if (at === field.length)
            return found;
        if (!take(COMMA) || at === field.length)
            return undefined;
    }
    return found;
}
function number(parameters, name) {
    const value = parameters?.get(name);
    return value !== undefined && /^\d+$/.test(value) ? Number(value) : undefined;
}
function retryAfter(value, wallMs) {
    if (value === null)
        return undefined;
    const text = value.trim();
    if (/^\d+$/.test(text))
        return Number(text);
    // `Date.parse` takes more than HTTP has dates.
    const at = /^[A-Z][a-z]+,? /.test(text) ? Date.parse(text) : Number.NaN;
    return Number.isNaN(at) ? undefined : Math.max(0, (at - wallMs) / 1000);
}
/** What a response asks for. `wallMs` is civil time. */
function waitAfter(status, headers, wallMs, maxWaitSeconds) {
    const limits = items(headers.get("ratelimit") ?? "");
    const quotas = items(headers.get("ratelimit-policy") ?? "");
    let longest = { seconds: 0, spread: false };
    for (const [name, parameters] of limits ?? []) {
        const remaining = number(parameters, "r");
        const seconds = number(parameters, "t");
        const quota = number(quotas?.get(name), "q");
        if (remaining === undefined || seconds === undefined)
            continue;
        let wait;
        if (remaining === 0)
            wait = { seconds, spread: false };
        else if (quota !== undefined && remaining * 10 < quota)
            wait = { seconds: seconds / (remaining + 1), spread: true };
        if (wait && wait.seconds > longest.seconds)
            longest = wait;
    }
    if (DENIED.includes(status)) {
        const after = retryAfter(headers.get("retry-after"), wallMs);
        if (after !== undefined)
            longest = { seconds: after, spread: false };
        else if (longest.seconds === 0)
            longest = { seconds: 1, spread: false };
    }
    return { seconds: Math.min(longest.seconds, maxWaitSeconds), spread: longest.spread };
}
/** When the next request to each origin may leave; times are in milliseconds of `performance.now()`. */
class Pacer {
    maxWaitMs;
    random;
    #origins = new Map();
    constructor(maxWaitMs, random = Math.random) {
        this.maxWaitMs = maxWaitMs;
        this.random = random;
    }
    /** Milliseconds to wait before a request, which is then taken to leave. */
    before(origin, now) {
        const known = this.#origins.get(origin);
        if (!known)
            return 0;
        this.#keep(origin, known);
        let leaves = Math.max(known.until, known.next);
        if (leaves > now) {
            const spread = (known.gap || known.told) / 10;
            leaves = Math.min(leaves + this.random() * spread, now + this.maxWaitMs);
        }
        known.next = Math.max(leaves, now) + known.gap;
        return Math.max(0, leaves - now);
    }
    /** Takes note of a response. */
    after(origin, status, headers, now) {
        const wait = waitAfter(status, headers, Date.now(), this.maxWaitMs / 1000);
        const until = now + wait.seconds * 1000;
        const known = this.#origins.get(origin) ?? { until: 0, told: 0, gap: 0, next: 0 };
        this.#keep(origin, known);
        if (wait.spread && !DENIED.includes(status)) {
            known.gap = until - now;
            known.next = Math.max(known.next, until);
            return;
        }
        if (known.gap > 0) {
            known.gap = 0;
            known.next = 0;
        }
        // A response to an earlier request does not take a wait back.
        if (until > Math.max(known.until, now)) {
            known.until = until;
            known.told = until - now;
        }
    }
    #keep(origin, known) {
        this.#origins.delete(origin);
        this.#origins.set(origin, known);
        const [oldest] = this.#origins.keys();
        if (this.#origins.size > MAX_ORIGINS && oldest !== undefined)
            this.#origins.delete(oldest);
    }
}
exports.Pacer = Pacer;
/** Makes a `fetch` that waits as the last responses asked, and repeats safe requests that were denied. */
function pacedFetch(options = {}) {
    const maxWaitMs = options.maxWaitMs ?? 60_000;
    const retries = options.retries ?? 2;
    const beneath = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
    const pacer = new Pacer(maxWaitMs, options.random);
    return async (input, init) => {
        const request = new Request(input, init);
        const { origin } = new URL(request.url);
        for (let done = 0;; done += 1) {
            await wait(pacer.before(origin, performance.now()), request.signal);
            const response = await beneath(request.clone());
            pacer.after(origin, response.status, response.headers, performance.now());
            const again = DENIED.includes(response.status) && SAFE.includes(request.method) && done < retries;
            // A wait that was cut to the longest would end in another denial.
            const asked = waitAfter(response.status, response.headers, Date.now(), Number.MAX_VALUE).seconds * 1000;
            if (!again || request.body !== null || asked > maxWaitMs)
                return response;
            await response.body?.cancel();
        }
    };
}
function wait(milliseconds, signal) {
    if (milliseconds <= 0)
        return Promise.resolve();
    return new Promise((resolve, reject) => {
        const stop = () => {
            clearTimeout(timer);
            reject(signal.reason);
        };
        const timer = setTimeout(() => {
            signal.removeEventListener("abort", stop);
            resolve();
        }, milliseconds);
        if (signal.aborted)
            stop();
        signal.addEventListener("abort", stop, { once: true });
    });
}
