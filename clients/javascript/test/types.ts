// A check by the compiler alone: the client's types are those of the OpenAPI document. `openapi.d.ts` is made
// of docs/openapi.json beside this file; a field that is new there fails here until the client knows it.
import type * as own from "tidegate";
import type { components } from "./openapi.js";

type Schemas = components["schemas"];

type Camel<S extends string> = S extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<Camel<Tail>>}`
  : S extends `${infer Head}-${infer Tail}`
    ? `${Head}${Capitalize<Camel<Tail>>}`
    : S;
// A document of any shape stays one; the order matters, since such a type passes for an array too.
type CamelKeys<T> = T extends object
  ? string extends keyof T
    ? Record<string, unknown>
    : T extends readonly (infer Item)[]
      ? CamelKeys<Item>[]
      : { [K in keyof T as K extends string ? Camel<K> : never]: CamelKeys<T[K]> }
  : T;

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
/** The names of all fields, those that must be there, and each one's type. */
type Shape<T> = {
  names: keyof T;
  required: { [K in keyof T]-?: undefined extends T[K] ? never : K }[keyof T];
};
type SameShape<A, B> = Same<Shape<A>, Shape<B>>;
type Simple = string | number | boolean | string[];
type SimpleFields<T> = {
  [K in keyof T as Exclude<T[K], undefined> extends Simple ? K : never]-?: Exclude<T[K], undefined>;
};

function holds<_T extends true>(): void {}

type ClientsOwn = "source" | "failure" | "rateLimitPolicy" | "rateLimit";
type Api<K extends keyof Schemas> = CamelKeys<Schemas[K]>;

holds<SameShape<Api<"DecisionReply">, Omit<own.Decision, ClientsOwn>>>();
holds<Same<SimpleFields<Api<"DecisionReply">>, SimpleFields<Omit<own.Decision, ClientsOwn>>>>();
holds<SameShape<Api<"PartReply">, own.Part>>();
holds<Same<SimpleFields<Api<"PartReply">>, SimpleFields<own.Part>>>();
holds<SameShape<Api<"RefundReply">, Omit<own.Refunded, "failure">>>();
holds<Same<SimpleFields<Api<"RefundReply">>, SimpleFields<Omit<own.Refunded, "failure">>>>();
holds<SameShape<Api<"Renewed">, own.Renewed>>();
holds<Same<SimpleFields<Api<"Renewed">>, SimpleFields<own.Renewed>>>();
holds<SameShape<Api<"Explanation">, own.Explanation>>();
holds<Same<SimpleFields<Api<"Explanation">>, SimpleFields<own.Explanation>>>();
holds<SameShape<Api<"RequestLimitsExplanation">, own.RequestLimits>>();
holds<Same<SimpleFields<Api<"RequestLimitsExplanation">>, SimpleFields<own.RequestLimits>>>();
holds<SameShape<Api<"PolicyExplanation">, own.PolicyExplanation>>();
holds<Same<SimpleFields<Api<"PolicyExplanation">>, SimpleFields<own.PolicyExplanation>>>();
holds<SameShape<Api<"LeaseExplanation">, own.Lease>>();
holds<Same<SimpleFields<Api<"LeaseExplanation">>, SimpleFields<own.Lease>>>();
holds<SameShape<Api<"Problem">, own.Problem>>();
holds<Same<SimpleFields<Api<"Problem">>, SimpleFields<own.Problem>>>();
holds<SameShape<Api<"FieldError">, own.FieldError>>();
holds<Same<SimpleFields<Api<"FieldError">>, SimpleFields<own.FieldError>>>();
// What a request may have; the document gives `cost` and `peek` defaults, which makes them optional to send.
holds<Same<keyof Api<"DecisionBody">, keyof own.Ask>>();
holds<Same<SimpleFields<Api<"DecisionBody">>, SimpleFields<own.Ask>>>();
holds<Same<keyof Api<"LimitsBody">, keyof own.Limits>>();
holds<Same<SimpleFields<Api<"LimitsBody">>, SimpleFields<own.Limits>>>();
// The check itself: another field, or one that may be absent, is not the same shape.
holds<Same<SameShape<{ a: string }, { a: string; b?: number }>, false>>();
holds<Same<SameShape<{ a: string }, { a?: string }>, false>>();
