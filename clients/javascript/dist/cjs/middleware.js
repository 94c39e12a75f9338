"use strict";
/**
 * What the middlewares have in common: what is asked for a request, and which response a decision makes.
 *
 * The documents and fields are those that Tidegate itself sends to proxies (`/v1/check`).
 *
 * What a user sent is never the user's 400: what the server refuses is decided as without the server, and a path is
 * sent whole, since a policy could not see what was cut off. One that is longer than servers take is answered 414.
 */
Object.defineProperty(exports, "__esModule", { value: true });
exports.Guard = exports.Settlement = void 0;
exports.bounded = bounded;
exports.fields = fields;
exports.denial = denial;
const address_js_1 = require("./address.js");
const client_js_1 = require("./client.js");
const types_js_1 = require("./types.js");
const LONGEST = 512;
/** Longest `path` that is asked for: as much as Node takes of a request's whole head. */
const LONGEST_PATH = 16_384;
/** What a script of another origin may read of a denial. */
const READABLE = "RateLimit, RateLimit-Policy, Retry-After";
const PERCENT = 0x25;
const PROBLEMS = "https://iana.org/assignments/http-problem-types";
/** What a request has reserved. The application may say what it has used; the rest is refunded. */
class Settlement {
    decision;
    attributes;
    cost;
    client;
    preflight;
    #used;
    /** @internal */
    constructor(decision, attributes, cost, client, preflight = false) {
        this.decision = decision;
        this.attributes = attributes;
        this.cost = cost;
        this.client = client;
        this.preflight = preflight;
    }
    /** A preflight that the application's CORS answered has used nothing. @internal */
    answered(allowMethods) {
        if (this.preflight && allowMethods)
            this.settle(0);
    }
    /** Says how many units were used, at the latest when the response has been sent. */
    settle(used) {
        this.#used = Math.max(0, used);
    }
    /** Refunds what is left, once; nothing if the application has not settled. @internal */
    async end() {
        const left = this.#used === undefined ? 0 : this.cost - this.#used;
        this.#used = undefined;
        // What was decided without the server was not charged there.
        if (left <= 0 || this.decision.source !== "server")
            return;
        try {
            await this.client.refund(this.attributes, { cost: left });
        }
        catch {
            // The units come back by themselves; a broken refund must not be an unhandled rejection.
        }
    }
}
exports.Settlement = Settlement;
/** Asks for requests of one framework. */
class Guard {
    #client;
    #known;
    #options;
    #said = new Set();
    constructor(options, known) {
        this.#client = options.client ?? new client_js_1.Tidegate();
        this.#known = known;
        this.#options = {
            key: options.key ?? ((request) => this.#peer(request)),
            attributes: options.attributes ?? known.attributes,
            cost: options.cost ?? (() => 1),
            skip: options.skip ?? (() => false),
            maxDelayMs: options.maxDelayMs ?? 1_000,
            warn: options.warn ?? ((message) => console.warn(message)),
        };
    }
    /** A settlement for a request that may go ahead, a denial, or nothing if it is skipped. */
    async ask(request) {
        const { key, attributes, cost, skip, maxDelayMs } = this.#options;
        if (skip(request))
            return undefined;
        const asked = await attributesOf(attributes(request), await key(request));
        if ((asked.path ?? "").length > LONGEST_PATH)
            return this.#readable(request, tooLong());
        const units = await cost(request);
        const decision = await this.#decide(asked, units);
        if (!decision.allowed)
            return this.#readable(request, denial(decision));
        const delay = Math.min(decision.delayMs ?? 0, maxDelayMs);
        if (delay > 0)
            await new Promise((resolve) => setTimeout(resolve, delay));
        return new Settlement(decision, asked, units, this.#client, this.#isPreflight(request));
    }
    async #decide(asked, cost) {
        try {
            return await this.#client.allow(asked, { cost });
        }
        catch (error) {
            if (!(error instanceof types_js_1.InvalidRequest))
                throw error;
            this.#once("refused", `Tidegate refuses what it is asked, so onFailure decides: ${error.message}`);
            return this.#client.alone(asked, { cost });
        }
    }
    #isPreflight(request) {
        const { header, method } = this.#known;
        return (method(request) === "OPTIONS" &&
            Boolean(header(request, "origin") && header(request, "access-control-request-method")));
    }
    /** Lets scripts of other origins read why, where the application lets them read replies at all. */
    #readable(request, denied) {
        if (this.#known.header(request, "origin"))
            denied.headers["access-control-expose-headers"] = READABLE;
        return denied;
    }
    #peer(request) {
        const found = this.#known.address?.(request) ?? "";
        const forwarded = this.#known.header(request, "x-forwarded-for");
        if (forwarded && !(0, address_js_1.says)(forwarded, found)) {
            this.#once("forwarded", `requests come with X-Forwarded-For, which is not trusted: they are counted by the address ${found}. ` +
                `If a proxy sends it, ${this.#known.trust}, or pass \`key\``);
        }
        return (0, address_js_1.peerName)(found);
    }
    #once(what, message) {
        if (this.#said.has(what))
            return;
        this.#said.add(what);
        this.#options.warn(message);
    }
}
exports.Guard = Guard;
/** A text that JSON can carry: each half of a character that has lost its other one is replaced. */
function wellFormed(value) {
    return value.replace(/\p{Surrogate}/gu, "\ufffd");
}
/** A value as it can be sent: one that is long, or no Unicode, is cut, and ends in the digest of the whole. */
async function bounded(value) {
    if (value === undefined || value === null)
        return "";
    const shown = wellFormed(value);
    // No text of so many units is longer in UTF-8.
    if (shown === value && value.length * 3 <= LONGEST)
        return value;
    const content = new TextEncoder().encode(shown);
    if (shown === value && content.length <= LONGEST)
        return value;
    const digest = await crypto.subtle.digest("SHA-256", shown === value ? content : units(value));
    const hex = Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
    let end = Math.min(content.length, LONGEST - 1 - hex.length);
    // Not within a character, whose further bytes are 10xxxxxx, nor within the escape of a byte.
    while (((content[end] ?? 0) & 0xc0) === 0x80)
        end -= 1;
    if (content[end - 1] === PERCENT)
        end -= 1;
    else if (content[end - 2] === PERCENT)
        end -= 2;
    return `${new TextDecoder().decode(content.subarray(0, end))}~${hex}`;
}
/** The UTF-16 of a text, by which two that are no Unicode are told apart. */
function units(value) {
    const bytes = new DataView(new ArrayBuffer(2 * value.length));
    for (let at = 0; at < value.length; at += 1)
        bytes.setUint16(2 * at, value.charCodeAt(at));
    return new Uint8Array(bytes.buffer);
}
async function attributesOf(given, key) {
    const made = { client_id: await bounded(key) };
    for (const [name, value] of Object.entries(given)) {
        if (value === undefined || value === null)
            continue;
        made[name] = name === "path" ? wellFormed(value) : await bounded(value);
    }
    return made;
}
/** `RateLimit-Policy` and `RateLimit`: as the server sent them, or made of the parts: of a batch's, and of a cached denial's. */
function fields(decision) {
    let { rateLimitPolicy: policy, rateLimit: limit } = decision;
    const enforced = decision.policies.filter((part) => part.mode === "enforce");
    if (enforced.length > 0 && decision.source !== "fallback") {
        policy ??= enforced.map((part) => `"${part.policy}";q=${part.limit}`).join(",");
        limit ??= enforced
            .map((part) => part.allowed || part.retryAfterMs === undefined
            ? `"${part.policy}";r=${part.remaining}`
            : `"${part.policy}";r=0;t=${Math.ceil(part.retryAfterMs / 1000)}`)
            .join(",");
    }
    const found = {};
    if (policy !== undefined)
        found["ratelimit-policy"] = policy;
    if (limit !== undefined)
        found.ratelimit = limit;
    return found;
}
/** The response to a denied request. */
function denial(decision) {
    const headers = fields(decision);
    if (decision.noMatch) {
        return problem(403, "about:blank", "Forbidden", "no policy applies to the request", headers);
    }
    if (decision.retryAfter !== undefined)
        headers["retry-after"] = String(decision.retryAfter);
    if (decision.degraded === "closed") {
        const type = `${PROBLEMS}#temporary-reduced-capacity`;
        return problem(503, type, "Service Unavailable", "the rate limit cannot be checked", headers);
    }
    const denied = decision.policies.filter((part) => part.mode === "enforce" && !part.allowed);
    const more = denied.length > 0 ? { "violated-policies": denied.map((part) => part.policy) } : {};
    const type = `${PROBLEMS}#quota-exceeded`;
    return problem(429, type, "Quota Exceeded", "the quota of a policy is used up", headers, more);
}
function tooLong() {
    return problem(414, "about:blank", "URI Too Long", `the path is longer than ${LONGEST_PATH} bytes`, {});
}
function problem(status, type, title, detail, headers, more = {}) {
    const about = { "content-type": "application/problem+json", "cache-control": "no-store" };
    const body = JSON.stringify({ type, title, status, detail, ...more });
    return { status, headers: { ...headers, ...about }, body };
}
