/**
 * What calls take and return, and what they throw.
 *
 * The interfaces are those of the API's OpenAPI document in the spelling of JavaScript, with the client's own
 * fields beside them. A check of the types compares the two, so a field that is new there has to come here.
 * `read` is strict: a reply whose fields have other types than the document says is no decision.
 */

/** What is known of a request: names and values. */
export type Attributes = Readonly<Record<string, string>>;
/** What decides without the server. */
export type Mode = "open" | "closed" | "local";
/** Who decided: the server; a denial that is still good; the client, without the server. */
export type Source = "server" | "cache" | "fallback";
/** Why the server did not decide. */
export type Failure = "timeout" | "connection" | "status" | "reply" | "breaker";

/** A limit that comes with a request, and decides where no policy applies. */
export interface Limits {
  /** Units per window. */
  limit: number;
  windowSeconds: number;
  /** `sliding_log` if absent. */
  algorithm?: string;
  /** Units at once, of a bucket. */
  burst?: number;
}

/** One question. */
export interface Ask {
  attributes: Attributes;
  /** Units that the request takes, 1 if absent; 0 reads what remains. */
  cost?: number;
  /** Answer as if it were spent, and spend nothing. */
  peek?: boolean;
  /** Decide where no policy applies. */
  limits?: Limits;
}

/** One policy's part in a decision. */
export interface Part {
  policy: string;
  mode: string;
  allowed: boolean;
  limit: number;
  remaining: number;
  resetMs: number;
  retryAfterMs?: number;
  /** It limits requests at one time: any release may end a denial before its wait is over. */
  concurrent?: boolean;
}

/** What the server says of a request. */
export interface ServerDecision {
  allowed: boolean;
  policies: Part[];
  policy?: string;
  limit?: number;
  remaining?: number;
  retryAfter?: number;
  retryAfterMs?: number;
  resetMs?: number;
  delayMs?: number;
  permit?: string;
  degraded?: string;
  noMatch?: boolean;
}

/** Whether a request may go ahead, and why. */
export interface Decision extends ServerDecision {
  source: Source;
  failure?: Failure;
  /** The response field `RateLimit-Policy`. */
  rateLimitPolicy?: string;
  /** The response field `RateLimit`. */
  rateLimit?: string;
}

/** The policies that were given units back; `failure` if the server gave no answer. */
export interface Refunded {
  policies: string[];
  failure?: Failure;
}

/** How long a permit now lasts. */
export interface Renewed {
  leaseMs: number;
}

/** What taking units of a policy ahead can cost, over all nodes. */
export interface Lease {
  nodes: number;
  units: number;
  lifetimeMs: number;
  overAdmission: number;
  stranded: number;
}

/** One policy's part in an explanation. */
export interface PolicyExplanation {
  policy: Record<string, unknown>;
  origin: string;
  applies: boolean;
  becauseOf?: string;
  ownLimits?: Record<string, unknown>;
  lease?: Lease;
  verdict?: Part;
}

/** The numbers that came with a request, in its explanation. */
export interface RequestLimits {
  limits: Record<string, unknown>;
  /** Whether they decide. */
  decide: boolean;
  verdict?: Part;
}

/** What would happen to a request, and why. */
export interface Explanation {
  allowed: boolean;
  revision: number;
  policies: PolicyExplanation[];
  noMatch?: boolean;
  /** How many policies that do not apply are left out. */
  notListed?: number;
  degraded?: string;
  requestLimits?: RequestLimits;
}

/** One mistake in what was sent. */
export interface FieldError {
  pointer: string;
  detail: string;
  accepted?: string;
}

/** A problem document (RFC 9457). */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  errors?: FieldError[];
  violatedPolicies?: string[];
}

/** What a call came to. It holds no attribute's value, so no client becomes a label. */
export interface Event {
  operation: "allow" | "batch" | "refund" | "acquire" | "renew" | "release" | "explain";
  outcome: "allowed" | "denied" | "done" | "failed";
  durationMs: number;
  source?: Source;
  failure?: Failure;
  policy?: string;
  count: number;
}

/** How often a bound of the client was reached, and whether it asks. */
export interface Stats {
  connectionsFull: number;
  denialsEvicted: number;
  fallbackEvicted: number;
  breakerOpen: boolean;
}

/** The server calls the request wrong: its author's mistake. `problem` says where. */
export class InvalidRequest extends Error {
  override readonly name = "InvalidRequest";
  constructor(readonly problem: Problem) {
    super(problem.detail || problem.title);
  }
}

/** The server gave no answer to a call that has nothing to fall back to. */
export class Unavailable extends Error {
  override readonly name = "Unavailable";
  constructor(readonly failure: Failure) {
    super(`Tidegate gave no answer: ${failure}`);
  }
}

/** A reply has not the form that the API documents. Calls turn it into the failure `reply`. */
export class NotAsDocumented extends Error {}

type Kind = "boolean" | "number" | "string" | "object" | Model;
/** Name in the API, name here, what it is, whether it is a list of that, whether it must be there. */
type Field = readonly [string, string, Kind, boolean, boolean];
/** How an object of the API is read. */
export type Model = readonly Field[];

const one = (name: string, kind: Kind, required = false): Field => [name, camel(name), kind, false, required];
const many = (name: string, kind: Kind, required = false): Field => [name, camel(name), kind, true, required];

function camel(name: string): string {
  return name.replace(/[_-]([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

const PART: Model = [
  one("policy", "string", true),
  one("mode", "string", true),
  one("allowed", "boolean", true),
  one("limit", "number", true),
  one("remaining", "number", true),
  one("reset_ms", "number", true),
  one("retry_after_ms", "number"),
  one("concurrent", "boolean"),
];
export const DECISION: Model = [
  one("allowed", "boolean", true),
  many("policies", PART, true),
  one("policy", "string"),
  one("limit", "number"),
  one("remaining", "number"),
  one("retry_after", "number"),
  one("retry_after_ms", "number"),
  one("reset_ms", "number"),
  one("delay_ms", "number"),
  one("permit", "string"),
  one("degraded", "string"),
  one("no_match", "boolean"),
];
export const REFUNDED: Model = [many("policies", "string", true)];
export const RENEWED: Model = [one("lease_ms", "number", true)];
const LEASE: Model = ["nodes", "units", "lifetime_ms", "over_admission", "stranded"].map((name) =>
  one(name, "number", true),
);
const POLICY_EXPLANATION: Model = [
  one("policy", "object", true),
  one("origin", "string", true),
  one("applies", "boolean", true),
  one("because_of", "string"),
  one("own_limits", "object"),
  one("lease", LEASE),
  one("verdict", PART),
];
const REQUEST_LIMITS: Model = [
  one("limits", "object", true),
  one("decide", "boolean", true),
  one("verdict", PART),
];
export const EXPLANATION: Model = [
  one("allowed", "boolean", true),
  one("revision", "number", true),
  many("policies", POLICY_EXPLANATION, true),
  one("no_match", "boolean"),
  one("not_listed", "number"),
  one("degraded", "string"),
  one("request_limits", REQUEST_LIMITS),
];
const FIELD_ERROR: Model = [
  one("pointer", "string", true),
  one("detail", "string", true),
  one("accepted", "string"),
];
export const PROBLEM: Model = [
  one("type", "string", true),
  one("title", "string", true),
  one("status", "number", true),
  one("detail", "string", true),
  many("errors", FIELD_ERROR),
  many("violated-policies", "string"),
];

/** Reads an object of the API; fields that the model does not have are passed over. */
export function read<T>(model: Model, document: unknown): T {
  if (typeof document !== "object" || document === null || Array.isArray(document)) {
    throw new NotAsDocumented("this is no object");
  }
  const given = document as Record<string, unknown>;
  const made: Record<string, unknown> = {};
  for (const [name, property, kind, isList, required] of model) {
    const value = Object.hasOwn(given, name) ? given[name] : undefined;
    if (value === undefined || value === null) {
      if (required) throw new NotAsDocumented(`${name} is absent`);
    } else if (isList) {
      if (!Array.isArray(value)) throw new NotAsDocumented(`${name} is no list`);
      made[property] = value.map((item) => readOne(kind, item, name));
    } else {
      made[property] = readOne(kind, value, name);
    }
  }
  return made as T;
}

function readOne(kind: Kind, value: unknown, name: string): unknown {
  if (typeof kind !== "string") return read(kind, value);
  let right = typeof value === kind;
  if (kind === "number") right = Number.isInteger(value) && (value as number) >= 0;
  if (kind === "object") right = right && value !== null && !Array.isArray(value);
  if (!right) throw new NotAsDocumented(`${name} is no ${kind}`);
  return value;
}
