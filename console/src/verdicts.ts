// What each policy has answered, as the metrics page counts it. It tells about a thousand policies apart; of another one
// nothing is known here but that it is counted together with others, which is not the same as that nobody asked it.
//
// It has three series of each of a thousand policies, the others' are one, and 151 readings are kept: of this family they
// have one entry a policy, and one that has not changed is kept once.

import { digest, type Reading } from "./metrics";

/** A policy's verdicts since the process began. */
export interface Verdicts {
  readonly allowed: number;
  readonly denied: number;
  /** It would have denied: it is in shadow. */
  readonly shadow_denied: number;
}

const NONE: Verdicts = { allowed: 0, denied: 0, shadow_denied: 0 };

/** What the policies without series of their own are counted as. No policy can have the name. */
export const OTHERS = "_other";

function isSame(one: Verdicts | undefined, other: Verdicts): one is Verdicts {
  return (
    one !== undefined &&
    one.allowed === other.allowed &&
    one.denied === other.denied &&
    one.shadow_denied === other.shadow_denied
  );
}

let last: ReadonlyMap<string, Verdicts> = new Map();

/** The verdicts of a reading, by policy. */
export const verdicts = digest<ReadonlyMap<string, Verdicts>>("tidegate_decisions_total", (series) => {
  const policies = new Map<string, Verdicts>();
  for (const { labels, value } of series) {
    const { policy = "", result = "" } = labels;
    if (!(result in NONE)) continue;
    const kind = result as keyof Verdicts;
    policies.set(policy, { ...NONE, ...policies.get(policy), [kind]: value });
  }
  for (const [policy, verdicts] of policies) {
    const before = last.get(policy);
    if (isSame(before, verdicts)) policies.set(policy, before);
  }
  last = policies;
  return policies;
});

/** What a policy answered; all 0 where nobody asked it, `undefined` where it is counted together with others. */
export function verdictsOf(reading: Reading, policy: string): Verdicts | undefined {
  const all = verdicts(reading);
  return all.get(policy) ?? (all.has(OTHERS) ? undefined : NONE);
}

/** Requests that a policy answered. */
export function askedOf({ allowed, denied, shadow_denied }: Verdicts): number {
  return allowed + denied + shadow_denied;
}
