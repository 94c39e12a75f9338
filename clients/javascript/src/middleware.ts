/**
 * What the middlewares have in common: what is asked for a request, and which response a decision makes.
 *
 * The documents and fields are those that Tidegate itself sends to proxies (`/v1/check`).
 */

import { Tidegate } from "./client.js";
import { type Attributes, type Decision, InvalidRequest } from "./types.js";

const LONGEST = 512;
const PERCENT = 0x25;
const PROBLEMS = "https://iana.org/assignments/http-problem-types";

/** A value, or a promise of it. */
export type Awaitable<T> = T | Promise<T>;

/** What a middleware is made with. `R` is what the framework calls a request. */
export interface MiddlewareOptions<R> {
  /** The client, one with its defaults if absent. */
  client?: Tidegate;
  /** Who asks: it becomes `client_id`. Those of whom nothing is known are one client, whose name is empty. */
  key?: (request: R) => Awaitable<string | null | undefined>;
  /** What is sent beside it, `path` and `method` if absent; a `client_id` among them counts instead of the key. */
  attributes?: (request: R) => Readonly<Record<string, string | null | undefined>>;
  /** Units that the request takes, 1 if absent. With `settle`, the most that it can take. */
  cost?: (request: R) => Awaitable<number>;
  /** Requests that are not asked for. */
  skip?: (request: R) => boolean;
  /** Longest that a leaky bucket may hold a request back, 1,000 if absent. */
  maxDelayMs?: number;
}

/** The response to a request that may not go ahead. */
export interface Denial {
  status: number;
  headers: Record<string, string>;
  body: string;
}

/** What a request has reserved. The application may say what it has used; the rest is refunded. */
export class Settlement {
  #used: number | undefined;

  /** @internal */
  constructor(
    readonly decision: Decision,
    private readonly attributes: Attributes,
    private readonly cost: number,
    private readonly client: Tidegate,
  ) {}

  /** Says how many units were used, at the latest when the response has been sent. */
  settle(used: number): void {
    this.#used = Math.max(0, used);
  }

  /** Refunds what is left, once; nothing if the application has not settled. @internal */
  async end(): Promise<void> {
    const left = this.#used === undefined ? 0 : this.cost - this.#used;
    this.#used = undefined;
    // What was decided without the server was not charged there.
    if (left <= 0 || this.decision.source !== "server") return;
    try {
      await this.client.refund(this.attributes, { cost: left });
    } catch {
      // The units come back by themselves; a broken refund must not be an unhandled rejection.
    }
  }
}

/** Asks for requests of one framework. */
export class Guard<R> {
  readonly #client: Tidegate;
  readonly #options: Required<Omit<MiddlewareOptions<R>, "client">>;

  constructor(
    options: MiddlewareOptions<R>,
    defaults: Required<Pick<MiddlewareOptions<R>, "key" | "attributes">>,
  ) {
    this.#client = options.client ?? new Tidegate();
    this.#options = {
      key: options.key ?? defaults.key,
      attributes: options.attributes ?? defaults.attributes,
      cost: options.cost ?? (() => 1),
      skip: options.skip ?? (() => false),
      maxDelayMs: options.maxDelayMs ?? 1_000,
    };
  }

  /** A settlement for a request that may go ahead, a denial, or nothing if it is skipped. */
  async ask(request: R): Promise<Settlement | Denial | undefined> {
    const { key, attributes, cost, skip, maxDelayMs } = this.#options;
    if (skip(request)) return undefined;
    const asked = await attributesOf(attributes(request), await key(request));
    const units = await cost(request);
    let decision: Decision;
    try {
      decision = await this.#client.allow(asked, { cost: units });
    } catch (error) {
      if (error instanceof InvalidRequest) return refusal(error);
      throw error;
    }
    if (!decision.allowed) return denial(decision);
    const delay = Math.min(decision.delayMs ?? 0, maxDelayMs);
    if (delay > 0) await new Promise((resolve) => setTimeout(resolve, delay));
    return new Settlement(decision, asked, units, this.#client);
  }
}

/** A value as it can be sent: a long one is cut, and ends in the digest of the whole. */
export async function bounded(value: string | null | undefined): Promise<string> {
  if (value === undefined || value === null) return "";
  // No text of so many units is longer in UTF-8.
  if (value.length * 3 <= LONGEST) return value;
  const content = new TextEncoder().encode(value);
  if (content.length <= LONGEST) return value;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  let end = LONGEST - 1 - hex.length;
  // Not within a character, whose further bytes are 10xxxxxx, nor within the escape of a byte.
  while (((content[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  if (content[end - 1] === PERCENT) end -= 1;
  else if (content[end - 2] === PERCENT) end -= 2;
  return `${new TextDecoder().decode(content.subarray(0, end))}~${hex}`;
}

async function attributesOf(
  given: Readonly<Record<string, string | null | undefined>>,
  key: string | null | undefined,
): Promise<Attributes> {
  const made: Record<string, string> = { client_id: await bounded(key) };
  for (const [name, value] of Object.entries(given)) {
    if (value !== undefined && value !== null) made[name] = await bounded(value);
  }
  return made;
}

/** `RateLimit-Policy` and `RateLimit`: as the server sent them, or made of the parts: of a batch's, and of a cached denial's. */
export function fields(decision: Decision): Record<string, string> {
  let { rateLimitPolicy: policy, rateLimit: limit } = decision;
  const enforced = decision.policies.filter((part) => part.mode === "enforce");
  if (enforced.length > 0 && decision.source !== "fallback") {
    policy ??= enforced.map((part) => `"${part.policy}";q=${part.limit}`).join(",");
    limit ??= enforced
      .map((part) =>
        part.allowed || part.retryAfterMs === undefined
          ? `"${part.policy}";r=${part.remaining}`
          : `"${part.policy}";r=0;t=${Math.ceil(part.retryAfterMs / 1000)}`,
      )
      .join(",");
  }
  const found: Record<string, string> = {};
  if (policy !== undefined) found["ratelimit-policy"] = policy;
  if (limit !== undefined) found.ratelimit = limit;
  return found;
}

/** The response to a denied request. */
export function denial(decision: Decision): Denial {
  const headers = fields(decision);
  if (decision.noMatch) {
    return problem(403, "about:blank", "Forbidden", "no policy applies to the request", headers);
  }
  if (decision.retryAfter !== undefined) headers["retry-after"] = String(decision.retryAfter);
  if (decision.degraded === "closed") {
    const type = `${PROBLEMS}#temporary-reduced-capacity`;
    return problem(503, type, "Service Unavailable", "the rate limit cannot be checked", headers);
  }
  const denied = decision.policies.filter((part) => part.mode === "enforce" && !part.allowed);
  const more = denied.length > 0 ? { "violated-policies": denied.map((part) => part.policy) } : {};
  const type = `${PROBLEMS}#quota-exceeded`;
  return problem(429, type, "Quota Exceeded", "the quota of a policy is used up", headers, more);
}

function refusal(error: InvalidRequest): Denial {
  return problem(400, "about:blank", "Bad Request", error.problem.detail, {});
}

function problem(
  status: number,
  type: string,
  title: string,
  detail: string,
  headers: Record<string, string>,
  more: object = {},
): Denial {
  const about = { "content-type": "application/problem+json", "cache-control": "no-store" };
  const body = JSON.stringify({ type, title, status, detail, ...more });
  return { status, headers: { ...headers, ...about }, body };
}
