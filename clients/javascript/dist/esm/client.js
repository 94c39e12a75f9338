/**
 * The client.
 *
 * ```text
 *   call -> cached? -> breaker? -> Transport -> judge -> decision
 *                         |                       |
 *                         +------> fallBack <-----+
 * ```
 */
import { Breaker, Denials, LocalLimiter } from "./fallback.js";
import { checkedDeadline, settingsOf } from "./options.js";
import { Failed, Transport } from "./transport.js";
import * as types from "./types.js";
const MAX_BATCH = 1_000;
/** What a disposal is called where the platform has no name for it yet. */
const ASYNC_DISPOSE = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");
/** Asks Tidegate. Made once, and used for any number of calls at once. */
export class Tidegate {
    #settings;
    #transport;
    #breaker;
    #denials;
    #local;
    #waiting = [];
    #sending = false;
    /** Throws a RangeError for options that make no sense. */
    constructor(options = {}) {
        this.#settings = settingsOf(options);
        this.#transport = new Transport(this.#settings);
        this.#breaker = new Breaker(this.#settings.breakerFailures, this.#settings.breakerOpenMs);
        this.#denials = new Denials(this.#settings.denialCache, this.#settings.denialCacheMs);
        this.#local = this.#settings.fallback && new LocalLimiter(this.#settings.fallback);
    }
    /** Asks whether a request may go ahead, and charges it if so. Throws only `InvalidRequest`. */
    async allow(attributes, options = {}) {
        const started = performance.now();
        const deadline = this.#deadline(started, options);
        const question = questionOf({ ...options, attributes });
        let decision = this.#denials.find(question, started);
        if (!decision) {
            try {
                decision = await (this.#settings.batch
                    ? this.#askWithOthers(question, deadline)
                    : this.#askOne("/v1/decisions", question, deadline));
                this.#denials.keep(question, decision, started, performance.now());
            }
            catch (error) {
                decision = this.#fallBack(question, this.#failureOf("allow", error, started));
            }
        }
        this.#decided("allow", decision, started);
        return decision;
    }
    /** Decides as if the server had not answered: what a middleware does where it refuses what it is asked. @internal */
    alone(attributes, options = {}) {
        return this.#fallBack(questionOf({ ...options, attributes }), "status");
    }
    /** Asks for several decisions, in their order. Throws only `InvalidRequest`. */
    async batch(requests, options = {}) {
        const started = performance.now();
        const deadline = this.#deadline(started, options);
        const questions = requests.map(questionOf);
        const decisions = questions.map((question) => this.#denials.find(question, started));
        const asked = questions.filter((_, at) => decisions[at] === undefined);
        const answers = [];
        for (let start = 0; start < asked.length; start += MAX_BATCH) {
            answers.push(...(await this.#askPart(asked.slice(start, start + MAX_BATCH), deadline, started)));
        }
        // Invariant: there is an answer to each that was asked, in their order.
        const whole = decisions.map((found) => found ?? answers.shift());
        for (const decision of whole)
            this.#decided("batch", decision, started);
        return whole;
    }
    async #askPart(questions, deadline, started) {
        const asked = performance.now();
        try {
            const answers = await this.#askMany(questions, deadline);
            questions.forEach((question, at) => {
                this.#denials.keep(question, answers[at], asked, performance.now());
            });
            return answers;
        }
        catch (error) {
            const failure = this.#failureOf("batch", error, started);
            return questions.map((question) => this.#fallBack(question, failure));
        }
    }
    /** Gives units back. Throws only `InvalidRequest`. */
    async refund(attributes, options = {}) {
        const started = performance.now();
        const deadline = this.#deadline(started, options);
        const body = bodyOf(questionOf({ ...options, attributes }));
        let refunded;
        try {
            refunded = this.#read(types.REFUNDED, await this.#send({ method: "POST", path: "/v1/refunds", body }, deadline));
        }
        catch (error) {
            refunded = { policies: [], failure: this.#failureOf("refund", error, started) };
        }
        this.#denials.forget(attributes, performance.now());
        this.#ended("refund", refunded.failure, started);
        return refunded;
    }
    /** Asks for a permit: `await using permit = await limits.acquire(...)`. Throws only `InvalidRequest`. */
    async acquire(attributes, options = {}) {
        const started = performance.now();
        const deadline = this.#deadline(started, options);
        const question = questionOf({ attributes });
        let decision;
        try {
            decision = await this.#askOne("/v1/permits", question, deadline);
        }
        catch (error) {
            decision = this.#fallBack(question, this.#failureOf("acquire", error, started));
        }
        this.#decided("acquire", decision, started);
        return new Permit(decision, {
            renew: (permit) => this.#renew(permit),
            release: (permit) => this.#release(permit),
        });
    }
    /** Asks what each policy would do, and what `limits` would, and charges nothing. Throws `InvalidRequest` and `Unavailable`. */
    async explain(attributes, options = {}) {
        const started = performance.now();
        const deadline = this.#deadline(started, options);
        const query = new URLSearchParams({ ...attributes, cost: String(options.cost ?? 1) });
        if (options.limits)
            query.set("limits", JSON.stringify(limitsOf(options.limits)));
        try {
            const reply = await this.#send({ method: "GET", path: `/v1/explain?${query}` }, deadline);
            const found = this.#read(types.EXPLANATION, reply);
            this.#ended("explain", undefined, started);
            return found;
        }
        catch (error) {
            const failure = this.#failureOf("explain", error, started);
            this.#ended("explain", failure, started);
            throw new types.Unavailable(failure);
        }
    }
    /** How often a bound was reached, and whether the server is asked. */
    stats() {
        return {
            connectionsFull: this.#transport.full,
            denialsEvicted: this.#denials.evicted,
            fallbackEvicted: this.#local?.evicted ?? 0,
            breakerOpen: this.#breaker.isOpen,
        };
    }
    /** Gives the connections back. A call that is under way ends without the server. */
    close() {
        this.#transport.close();
    }
    async #renew(permit) {
        const started = performance.now();
        const path = `/v1/permits/${encodeURIComponent(permit)}/renew`;
        try {
            const reply = await this.#send({ method: "POST", path }, this.#deadline(started, {}));
            const renewed = this.#read(types.RENEWED, reply);
            this.#ended("renew", undefined, started);
            return renewed;
        }
        catch (error) {
            this.#ended("renew", error instanceof Failed ? error.failure : "status", started);
            return undefined;
        }
    }
    async #release(permit) {
        const started = performance.now();
        const path = `/v1/permits/${encodeURIComponent(permit)}`;
        try {
            const reply = await this.#send({ method: "DELETE", path }, this.#deadline(started, {}));
            this.#judge(reply, [200, 204]);
            this.#ended("release", undefined, started);
        }
        catch (error) {
            this.#ended("release", error instanceof Failed ? error.failure : "status", started);
        }
    }
    #deadline(started, options) {
        const { deadlineMs } = options;
        return started + (deadlineMs === undefined ? this.#settings.deadlineMs : checkedDeadline(deadlineMs));
    }
    async #askOne(path, question, deadline, shared = false) {
        const reply = await this.#send({ method: "POST", path, body: bodyOf(question), shared }, deadline);
        const decision = this.#read(types.DECISION, reply);
        decision.source = "server";
        const policy = reply.field("ratelimit-policy");
        const limit = reply.field("ratelimit");
        if (policy !== undefined)
            decision.rateLimitPolicy = policy;
        if (limit !== undefined)
            decision.rateLimit = limit;
        return decision;
    }
    async #askMany(questions, deadline, shared = false) {
        const body = `[${questions.map(bodyOf).join(",")}]`;
        const asked = { method: "POST", path: "/v1/decisions", body, shared };
        const document = this.#judge(await this.#send(asked, deadline));
        if (!Array.isArray(document) || document.length !== questions.length)
            throw this.#failed("reply");
        return document.map((item) => ({ ...this.#model(types.DECISION, item), source: "server" }));
    }
    async #askWithOthers(question, deadline) {
        const decision = await new Promise((answer, fail) => {
            const waiting = { question, deadline, answer, fail, gone: false };
            const timer = setTimeout(() => {
                waiting.gone = true;
                fail(new Failed("timeout"));
            }, deadline - performance.now());
            waiting.answer = (found) => {
                clearTimeout(timer);
                answer(found);
            };
            waiting.fail = (error) => {
                clearTimeout(timer);
                fail(error);
            };
            this.#waiting.push(waiting);
            if (!this.#sending)
                void this.#sendWaiting();
        });
        return decision ?? this.#askOne("/v1/decisions", question, deadline);
    }
    /** Sends what waits, one batch at a time, until nothing does. Never rejects. */
    async #sendWaiting() {
        this.#sending = true;
        // What is asked in the same turn of the event loop goes together.
        await undefined;
        while (this.#waiting.length > 0) {
            const batch = this.#waiting.splice(0, MAX_BATCH).filter((call) => !call.gone);
            if (batch.length > 0)
                await this.#sendBatch(batch);
        }
        this.#sending = false;
    }
    async #sendBatch(batch) {
        const deadline = Math.max(...batch.map((call) => call.deadline));
        const [first] = batch;
        try {
            if (batch.length === 1 && first) {
                first.answer(await this.#askOne("/v1/decisions", first.question, deadline, true));
                return;
            }
            const questions = batch.map((call) => call.question);
            const decisions = await this.#askMany(questions, deadline, true);
            batch.forEach((call, at) => {
                call.answer(decisions[at]);
            });
        }
        catch (error) {
            // A refused list charged nothing: each asks for itself.
            const alone = batch.length > 1 && error instanceof types.InvalidRequest;
            for (const call of batch)
                alone ? call.answer(undefined) : call.fail(error);
        }
    }
    async #send(asked, deadline) {
        if (!this.#breaker.admits(performance.now()))
            throw new Failed("breaker");
        try {
            return await this.#transport.call(asked, deadline);
        }
        catch (error) {
            if (error instanceof Failed && !error.ofServer)
                throw error;
            throw this.#failed(failureOf(error));
        }
    }
    /** The JSON value of a good reply; an error for any other. */
    #judge(reply, good = [200]) {
        const { status, body } = reply;
        if (good.includes(status)) {
            try {
                return body === "" ? undefined : JSON.parse(body);
            }
            catch {
                throw this.#failed("reply");
            }
        }
        if (status >= 500)
            throw this.#failed("status");
        this.#breaker.answered();
        if (status === 400 || status === 413 || status === 422)
            throw new types.InvalidRequest(problemOf(reply));
        throw new Failed("status");
    }
    #read(model, reply) {
        return this.#model(model, this.#judge(reply));
    }
    #model(model, document) {
        try {
            const made = types.read(model, document);
            this.#breaker.answered();
            return made;
        }
        catch {
            throw this.#failed("reply");
        }
    }
    #failed(failure) {
        this.#breaker.failed(performance.now());
        return new Failed(failure);
    }
    #fallBack(question, failure) {
        const { onFailure } = this.#settings;
        if (onFailure === "local" && this.#local) {
            return { ...this.#local.decide(question, performance.now()), source: "fallback", failure };
        }
        if (onFailure === "open") {
            return { allowed: true, policies: [], degraded: "open", source: "fallback", failure };
        }
        const wait = { retryAfter: 1, retryAfterMs: 1_000 };
        return { allowed: false, policies: [], degraded: "closed", ...wait, source: "fallback", failure };
    }
    #decided(operation, decision, started) {
        if (!this.#settings.onEvent)
            return;
        const { allowed, source, failure, policy } = decision;
        const event = {
            operation,
            outcome: allowed ? "allowed" : "denied",
            durationMs: 0,
            source,
            count: 1,
        };
        if (failure !== undefined)
            event.failure = failure;
        if (policy !== undefined)
            event.policy = policy;
        this.#tell(event, started);
    }
    #ended(operation, failure, started) {
        this.#tell(failure === undefined
            ? { operation, outcome: "done", durationMs: 0, source: "server", count: 1 }
            : { operation, outcome: "failed", durationMs: 0, failure, count: 1 }, started);
    }
    /** Why the server did not decide. Tells the hook of a request that is wrong in itself, and throws it on. */
    #failureOf(operation, error, started) {
        if (error instanceof types.InvalidRequest) {
            this.#tell({ operation, outcome: "failed", durationMs: 0, count: 1 }, started);
        }
        return failureOf(error);
    }
    #tell(event, started) {
        if (!this.#settings.onEvent)
            return;
        try {
            this.#settings.onEvent({ ...event, durationMs: performance.now() - started });
        }
        catch {
            // A hook that throws must not be the reason of an outage either.
        }
    }
}
/** A permit, or why there is none. */
export class Permit {
    decision;
    #permit;
    #calls;
    /** @internal */
    constructor(decision, calls) {
        this.decision = decision;
        this.#permit = decision.permit;
        this.#calls = calls;
    }
    /** Whether the request may go ahead. */
    get allowed() {
        return this.decision.allowed;
    }
    /** Whether the server holds a place for it. */
    get held() {
        return this.#permit !== undefined;
    }
    /** Prolongs it by another lease; nothing if it is not held any more, or the server gave no answer. */
    async renew() {
        return this.#permit === undefined ? undefined : this.#calls.renew(this.#permit);
    }
    /** Gives it back, once. What cannot be given back ends with its lease. */
    async release() {
        const permit = this.#permit;
        this.#permit = undefined;
        if (permit !== undefined)
            await this.#calls.release(permit);
    }
    [ASYNC_DISPOSE]() {
        return this.release();
    }
}
/** Why the server did not decide; what is no failure of the server is thrown on. */
function failureOf(error) {
    if (error instanceof Failed)
        return error.failure;
    throw error;
}
/** A question with nothing left out. */
function questionOf({ attributes, cost = 1, peek = false, limits }) {
    return { attributes, cost, peek, limits };
}
function bodyOf({ attributes, cost, peek, limits }) {
    // What is undefined is left out.
    return JSON.stringify({
        attributes,
        cost: cost === 1 ? undefined : cost,
        peek: peek || undefined,
        limits: limits && limitsOf(limits),
    });
}
/** The limits as the API writes them. */
function limitsOf({ limit, windowSeconds, algorithm, burst }) {
    return { limit, window_seconds: windowSeconds, algorithm, burst };
}
function problemOf(reply) {
    try {
        return types.read(types.PROBLEM, JSON.parse(reply.body));
    }
    catch {
        const detail = `the server answered ${reply.status}`;
        return { type: "about:blank", title: "", status: reply.status, detail };
    }
}
