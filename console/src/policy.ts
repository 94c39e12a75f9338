// Policies as the API has them.

import { count, span } from "./format";
import { inPages } from "./parts/asked";

export type Document = Record<string, unknown>;

export interface Policy extends Document {
  name: string;
  algorithm: string;
  limit: number;
  mode: string;
  key: string[];
  window_seconds?: number;
  burst?: number;
  lease_seconds?: number;
  period?: string;
  time_zone?: string;
  match?: Document;
}

/** The policies in force. */
export interface PolicyList {
  revision: number;
  policies: ListedPolicy[];
  next?: string;
}

/** Gets them all. */
export const policiesInForce = (path: string, signal: AbortSignal) =>
  inPages<PolicyList>(path, "policies", signal);

export interface ListedPolicy {
  origin: string;
  etag: string;
  policy: Policy;
  /** Whether a request has met it as it is: since its last change, or since the process began. */
  asked_since_change: boolean;
}

export const ALGORITHMS: Record<string, string> = {
  sliding_log: "sliding log",
  sliding_counter: "sliding counter",
  fixed_window: "fixed window",
  token_bucket: "token bucket",
  leaky_bucket: "leaky bucket",
  concurrency: "concurrency",
  calendar: "calendar",
};

/** Which numbers an algorithm has. */
export function numbersOf(algorithm: string): string[] {
  switch (algorithm) {
    case "token_bucket":
    case "leaky_bucket":
      return ["limit", "window_seconds", "burst"];
    case "concurrency":
      return ["limit", "lease_seconds"];
    case "calendar":
      return ["limit", "period", "time_zone"];
    default:
      return ["limit", "window_seconds"];
  }
}

/** `100 per 60 s`. */
export function quota(numbers: Document): string {
  const number = (name: string) => Number(numbers[name]);
  switch (numbers.algorithm) {
    case "concurrency":
      return `${count(number("limit"))} at once`;
    case "calendar":
      return `${count(number("limit"))} per ${numbers.period}`;
    default: {
      const burst = numbers.burst !== undefined && numbers.burst !== numbers.limit;
      const text = `${count(number("limit"))} per ${span(number("window_seconds"))}`;
      return burst ? `${text}, burst ${count(number("burst"))}` : text;
    }
  }
}

/** `resource = api, path = /v1/*`. */
export function matching(policy: Policy): string {
  const entries = Object.entries(policy.match ?? {});
  if (entries.length === 0) return "every request";
  return entries
    .map(([name, pattern]) => `${name} = ${typeof pattern === "string" ? pattern : JSON.stringify(pattern)}`)
    .join(", ");
}

/** Which layer a document comes from, in words. */
export const ORIGINS: Record<string, string> = {
  "built-in": "built in",
  file: "the file",
  stored: "stored by the API",
};
