"use strict";
/** What a client is made with, checked when it is made: nothing else of a client can be wrong. */
Object.defineProperty(exports, "__esModule", { value: true });
exports.settingsOf = settingsOf;
exports.checkedDeadline = checkedDeadline;
const MAX_DEADLINE_MS = 600_000;
function settingsOf(options) {
    const environment = environmentOf();
    const token = options.token ?? environment.TIDEGATE_TOKEN;
    const fields = { "content-type": "application/json" };
    if (token) {
        check(/^[\x20-\x7e]+$/.test(token), "the token has characters that no header may have");
        fields.authorization = `Bearer ${token}`;
    }
    const settings = {
        url: urlOf(options.url || environment.TIDEGATE_URL || "http://127.0.0.1:4000"),
        fields,
        headers: options.headers,
        deadlineMs: checkedDeadline(options.deadlineMs ?? 50),
        onFailure: options.onFailure ?? "open",
        fallback: options.fallback && fallbackOf(options.fallback),
        denialCache: options.denialCache ?? 1_000,
        denialCacheMs: options.denialCacheMs ?? 60_000,
        batch: options.batch ?? false,
        maxConnections: options.maxConnections ?? 64,
        breakerFailures: options.breakerFailures ?? 5,
        breakerOpenMs: options.breakerOpenMs ?? 1_000,
        onEvent: options.onEvent,
        fetch: options.fetch,
    };
    check(["open", "closed", "local"].includes(settings.onFailure), "onFailure is open, closed or local");
    check(settings.onFailure !== "local" || !!settings.fallback, "onFailure: local needs a fallback");
    check(settings.denialCache >= 0, "denialCache is at least 0");
    check(settings.denialCacheMs >= 0, "denialCacheMs is at least 0");
    check(settings.maxConnections >= 1, "maxConnections is at least 1");
    check(settings.breakerFailures >= 1, "breakerFailures is at least 1");
    check(settings.breakerOpenMs > 0, "breakerOpenMs is more than 0");
    return settings;
}
/** A deadline is never endless. */
function checkedDeadline(deadlineMs) {
    const good = deadlineMs > 0 && deadlineMs <= MAX_DEADLINE_MS;
    check(good, `deadlineMs is more than 0 and at most ${MAX_DEADLINE_MS}`);
    return deadlineMs;
}
function fallbackOf(given) {
    const fallback = { share: 1, key: ["client_id"], keys: 10_000, ...given };
    check(fallback.limit >= 1, "fallback.limit is at least 1");
    check(fallback.windowSeconds > 0, "fallback.windowSeconds is more than 0");
    check(fallback.share > 0 && fallback.share <= 1, "fallback.share is more than 0 and at most 1");
    check(fallback.keys >= 1, "fallback.keys is at least 1");
    return fallback;
}
function urlOf(text) {
    const url = URL.canParse(text) ? new URL(text) : undefined;
    const good = url && (url.protocol === "http:" || url.protocol === "https:") && url.host !== "";
    check(!!good, `${JSON.stringify(text)} is no http or https URL`);
    return text.replace(/\/+$/, "");
}
/** The environment's variables: none in a browser, nor in Deno without the permission. */
function environmentOf() {
    const { process } = globalThis;
    try {
        return { TIDEGATE_URL: process?.env?.TIDEGATE_URL, TIDEGATE_TOKEN: process?.env?.TIDEGATE_TOKEN };
    }
    catch {
        return {};
    }
}
function check(holds, otherwise) {
    if (!holds)
        throw new RangeError(otherwise);
}
