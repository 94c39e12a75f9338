/** What a client is made with, checked when it is made: nothing else of a client can be wrong. */

import type { Event, Mode } from "./types.js";

const MAX_DEADLINE_MS = 600_000;

/** The local limiter of `onFailure: "local"`: a token bucket of `limit * share` for each value of `key`. */
export interface Fallback {
  limit: number;
  windowSeconds: number;
  /** This process's part of the limit, 1 if absent. */
  share?: number;
  /** Attributes that name a bucket, `["client_id"]` if absent. */
  key?: readonly string[];
  /** Most buckets, 10,000 if absent; then the one unseen for longest is forgotten. */
  keys?: number;
}

/** See the table of options in the README of all clients. */
export interface Options {
  /** `TIDEGATE_URL` if absent, else `http://127.0.0.1:4000`. */
  url?: string;
  /** `TIDEGATE_TOKEN` if absent, else none. */
  token?: string;
  /** For each call as a whole, 50 if absent. */
  deadlineMs?: number;
  /** What decides without the server, `open` if absent. */
  onFailure?: Mode;
  /** Needed by `local`. */
  fallback?: Fallback;
  /** Most denials that are kept, 1,000 if absent. */
  denialCache?: number;
  /** Longest that a denial is kept, 60,000 if absent. */
  denialCacheMs?: number;
  /** Whether calls that wait are sent together. */
  batch?: boolean;
  /** Most requests at once, 64 if absent. */
  maxConnections?: number;
  /** Failures in a row that open the breaker, 5 if absent. */
  breakerFailures?: number;
  /** How long nothing is asked then, 1,000 if absent. */
  breakerOpenMs?: number;
  /** Called after each call; what it throws is ignored. */
  onEvent?: (event: Event) => void;
  /**
   * Fields to add to each call that shares its request with no other, such as `traceparent`: none if absent. What it
   * throws is ignored.
   */
  headers?: () => Record<string, string>;
  /** A `fetch` of your own, with a certificate or a proxy. If absent Node's own HTTP client asks, and elsewhere `fetch`. */
  fetch?: typeof fetch;
}

/** All options with their defaults. */
export interface Settings
  extends Required<Omit<Options, "token" | "fallback" | "onEvent" | "headers" | "fetch">> {
  /** The client's own, of each request. */
  fields: Record<string, string>;
  headers: (() => Record<string, string>) | undefined;
  fallback: Required<Fallback> | undefined;
  onEvent: ((event: Event) => void) | undefined;
  fetch: typeof fetch | undefined;
}

export function settingsOf(options: Options): Settings {
  const environment = environmentOf();
  const token = options.token ?? environment.TIDEGATE_TOKEN;
  const fields: Record<string, string> = { "content-type": "application/json" };
  if (token) {
    check(/^[\x20-\x7e]+$/.test(token), "the token has characters that no header may have");
    fields.authorization = `Bearer ${token}`;
  }
  const settings: Settings = {
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
export function checkedDeadline(deadlineMs: number): number {
  const good = deadlineMs > 0 && deadlineMs <= MAX_DEADLINE_MS;
  check(good, `deadlineMs is more than 0 and at most ${MAX_DEADLINE_MS}`);
  return deadlineMs;
}

function fallbackOf(given: Fallback): Required<Fallback> {
  const fallback = { share: 1, key: ["client_id"], keys: 10_000, ...given };
  check(fallback.limit >= 1, "fallback.limit is at least 1");
  check(fallback.windowSeconds > 0, "fallback.windowSeconds is more than 0");
  check(fallback.share > 0 && fallback.share <= 1, "fallback.share is more than 0 and at most 1");
  check(fallback.keys >= 1, "fallback.keys is at least 1");
  return fallback;
}

function urlOf(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const good = url && (url.protocol === "http:" || url.protocol === "https:") && url.host !== "";
  check(!!good, `${JSON.stringify(text)} is no http or https URL`);
  return text.replace(/\/+$/, "");
}

/** The environment's variables: none in a browser, nor in Deno without the permission. */
function environmentOf(): Record<string, string | undefined> {
  const { process } = globalThis as { process?: { env?: Record<string, string | undefined> } };
  try {
    return { TIDEGATE_URL: process?.env?.TIDEGATE_URL, TIDEGATE_TOKEN: process?.env?.TIDEGATE_TOKEN };
  } catch {
    return {};
  }
}

function check(holds: boolean, otherwise: string): asserts holds {
  if (!holds) throw new RangeError(otherwise);
}
