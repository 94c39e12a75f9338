"use strict";
/**
 * A call's place among the connections, and one deadline for all of it: waiting for a place, connecting, the reply.
 *
 * `by-node.ts` sends it where the platform is Node, else `by-fetch.ts`. Neither follows redirects, which would carry
 * the token away, and neither sends anything twice.
 */
Object.defineProperty(exports, "__esModule", { value: true });
exports.Transport = exports.Failed = exports.MAX_BODY = void 0;
const by_fetch_js_1 = require("./by-fetch.js");
const by_node_js_1 = require("./by-node.js");
/** Longest body that is read. */
exports.MAX_BODY = 4 * 1024 * 1024;
/** Timers count whole milliseconds, and fire up to one late: a call's is set so much sooner. */
const SOONER_MS = 1;
/** Fields that say where a message begins and ends, which is no hook's business. */
const OF_THE_CONNECTION = ["connection", "content-length", "expect", "host", "transfer-encoding", "upgrade"];
/** A field's value as RFC 9110 has it. `Headers` takes control characters too. */
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
/** Runs a task in a later turn of the event loop. Browsers have no setImmediate. */
const later = globalThis.setImmediate ?? ((task) => setTimeout(task));
/** The server gave no answer. Never leaves the client, but for `Unavailable`. */
class Failed extends Error {
    failure;
    ofServer;
    constructor(failure, 
    /** False where every connection was in use, which says nothing about the server. */
    ofServer = true) {
        super(failure);
        this.failure = failure;
        this.ofServer = ofServer;
    }
}
exports.Failed = Failed;
class Transport {
    settings;
    #used = 0;
    /** Calls that found every connection in use until their deadline. */
    full = 0;
    #waiting = new Set();
    #sender;
    /**
     * Whether the last call ended at its deadline. Then others do so in the same turn of the event loop, and to end a
     * request or to begin one takes longer than to answer: both are left for the next turn.
     */
    #late = false;
    constructor(settings) {
        this.settings = settings;
        const { fetch, url, maxConnections } = settings;
        const own = fetch ? undefined : (0, by_node_js_1.byNode)(url, maxConnections);
        // Looked up at each call, so that a test or a tracer that replaces it later is heard.
        this.#sender = own ?? (0, by_fetch_js_1.byFetch)(url, fetch ?? ((input, init) => globalThis.fetch(input, init)));
    }
    /** Sends a request and reads its reply; `deadline` is a time of `performance.now()`. */
    call({ method, path, body, shared }, deadline) {
        const left = deadline - performance.now();
        if (left <= 0)
            return Promise.reject(new Failed("timeout"));
        // Made in the turn of its caller, whose trace it is.
        const headers = shared ? this.settings.fields : this.#headers();
        return new Promise((answer, fail) => {
            const request = { method, path, headers, body };
            const go = () => {
                try {
                    call.end = this.#sender.send(request, (outcome) => this.#over(call, outcome));
                }
                catch {
                    this.#over(call, "connection");
                }
            };
            const call = { request, deadline, answer, fail, late: false, entered: false, go };
            call.timer = setTimeout(() => this.#giveUp(call), Math.max(left - SOONER_MS, left / 2));
            if (this.#late)
                setTimeout(() => this.#enter(call));
            else
                this.#enter(call);
        });
    }
    /** Gives the connections back. */
    close() {
        this.#sender.close();
    }
    /** Sends a call, or lets it wait for a place. */
    #enter(call) {
        if (call.late)
            return;
        if (this.#used >= this.settings.maxConnections) {
            // By a promise, which keeps the caller's context.
            const { go } = call;
            void new Promise((enter) => {
                call.go = enter;
            }).then(go);
            this.#waiting.add(call);
            return;
        }
        this.#take(call);
    }
    /** Takes a place. Those that waited all that time for one end at once, without the cost of a request. */
    #take(call) {
        if (performance.now() >= call.deadline) {
            this.#giveUp(call);
            return;
        }
        this.#used += 1;
        call.entered = true;
        call.go();
    }
    /** Answers a call at its deadline, and then ends it. */
    #giveUp(call) {
        clearTimeout(call.timer);
        call.late = true;
        this.#late = true;
        call.fail(new Failed("timeout", call.entered));
        if (call.entered) {
            setTimeout(() => call.end?.());
        }
        else {
            this.full += 1;
            this.#waiting.delete(call);
        }
    }
    /** The request of a call is over. */
    #over(call, outcome) {
        // Only in a later turn is the connection to be had again: who asked before would be given another one.
        later(() => this.#leave());
        if (call.late)
            return;
        clearTimeout(call.timer);
        if (typeof outcome === "string") {
            call.fail(new Failed(performance.now() >= call.deadline ? "timeout" : outcome));
        }
        else {
            this.#late = false;
            call.answer(outcome);
        }
    }
    #leave() {
        this.#used -= 1;
        for (const call of this.#waiting) {
            if (this.#used >= this.settings.maxConnections)
                return;
            this.#waiting.delete(call);
            this.#take(call);
        }
    }
    /** The client's own fields and those of the hook, whose mistakes are not the caller's. */
    #headers() {
        const { fields, headers } = this.settings;
        if (!headers)
            return fields;
        try {
            const all = new Headers(headers());
            for (const name of OF_THE_CONNECTION)
                all.delete(name);
            for (const [name, value] of Object.entries(fields))
                all.set(name, value);
            const found = Object.fromEntries(all);
            return Object.values(found).every((value) => VALUE.test(value)) ? found : fields;
        }
        catch {
            return fields;
        }
    }
}
exports.Transport = Transport;
