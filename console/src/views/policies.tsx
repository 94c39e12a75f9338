// The policies in force, in the order in which they are checked.

import { useEffect, useMemo, useState } from "preact/hooks";
import { mayConfigure, session } from "../api";
import { count, counted, perSecond } from "../format";
import { earlier, type Reading, rate, readings, useReadings } from "../metrics";
import { useValue } from "../observable";
import { useAsked } from "../parts/asked";
import { Badge, Curl, Empty, Field, Panel, Problem } from "../parts/basics";
import { Cell, Rows } from "../parts/rows";
import { Spark } from "../parts/spark";
import { ALGORITHMS, matching, ORIGINS, type PolicyList, policiesInForce, quota } from "../policy";
import { choose, href } from "../router";
import { verdictsOf } from "../verdicts";

interface NotInForce {
  set_aside: { kind: string; name: string; mistakes: string[] }[];
  altered: { kind: string; name: string }[];
  hidden: { name: string; stored_revision: number }[];
}

/** Denials of a policy, also those that only would be; `undefined` where it is counted together with others. */
const denials = (reading: Reading, name: string): number | undefined => {
  const verdicts = verdictsOf(reading, name);
  return verdicts && verdicts.denied + verdicts.shadow_denied;
};

/** How often it is looked whether requests have met policies that none has met yet, in milliseconds: of a list that is
 * read in many pages seldom. */
function unmetPeriod(list: PolicyList | undefined): number | undefined {
  if (!list || list.policies.every((listed) => listed.asked_since_change)) return undefined;
  return list.policies.length > 1_000 ? 30_000 : 4_000;
}

export function Policies(props: { query: URLSearchParams }) {
  useReadings();
  const [every, setEvery] = useState<number>();
  const { body, error, again } = useAsked("/v1/policies", every, policiesInForce);
  useEffect(() => setEvery(unmetPeriod(body)), [body]);
  const aside = useAsked<NotInForce>("/v1/set-aside").body;
  const who = useValue(session);
  const all = useValue(readings);
  const text = props.query.get("find") ?? "";
  const found = useMemo(() => {
    const wanted = text.toLowerCase();
    const policies = body?.policies ?? [];
    return wanted === ""
      ? policies
      : policies.filter(({ policy }) => JSON.stringify(policy).toLowerCase().includes(wanted));
  }, [body, text]);
  const [before, now] = [earlier(all, 10), all.at(-1)];
  const recent = (name: string) =>
    before && now && rate(before, now, (reading) => denials(reading, name) ?? Number.NaN);
  const hidden = new Set(aside?.hidden.map(({ name }) => name));
  if (error !== undefined && !body)
    return <Problem what="The policies cannot be read." error={error} retry={again} />;
  if (!body) return <Empty>Asking …</Empty>;
  return (
    <>
      {(aside?.set_aside ?? []).map((document) => (
        <div class="problem" role="status" key={document.kind + document.name}>
          <strong>
            The {document.kind} {document.name} is not in force:
          </strong>{" "}
          {document.mistakes.join("; ")}. Put it again, or delete it.
        </div>
      ))}
      <form class="search" role="search" onSubmit={(event) => event.preventDefault()}>
        <Field label="Find" hint="Any part of a policy: its name, an attribute, a number.">
          {(attributes) => (
            <input
              {...attributes}
              type="search"
              value={text}
              onInput={(event) => choose(["policies"], { find: event.currentTarget.value })}
            />
          )}
        </Field>
        {mayConfigure(who) && (
          <a class="button" href={href(["policies", "+"])}>
            New policy
          </a>
        )}
      </form>
      <Panel
        title={
          text
            ? `${count(found.length)} of ${count(body.policies.length)} policies`
            : counted(found.length, "policy", "policies")
        }
        wide
      >
        {found.length === 0 ? (
          <Empty>No policy has “{text}” in it.</Empty>
        ) : (
          <Rows
            label="Policies"
            columns="minmax(9rem,1.3fr) minmax(11rem,1.4fr) minmax(9rem,1.4fr) minmax(6rem,.7fr) 9rem"
            items={found}
            id={({ policy }) => policy.name}
            head={
              <>
                <Cell head>Policy</Cell>
                <Cell head>Limit</Cell>
                <Cell head>Applies to</Cell>
                <Cell head>From</Cell>
                <Cell head number>
                  Denied /s
                </Cell>
              </>
            }
            row={({ policy, origin, asked_since_change: isAsked }) => {
              const isKnown = !now || denials(now, policy.name) !== undefined;
              return (
                <>
                  <Cell>
                    <a href={href(["policies", policy.name])}>{policy.name}</a>{" "}
                    {policy.mode === "shadow" && <Badge kind="plain">shadow</Badge>}
                  </Cell>
                  <Cell label="Limit">
                    {quota(policy)} <span class="hint">{ALGORITHMS[policy.algorithm]}</span>
                  </Cell>
                  <Cell label="Applies to">{matching(policy)}</Cell>
                  <Cell label="From">
                    {ORIGINS[origin] ?? origin}
                    {hidden.has(policy.name) && <span class="hint"> hides the file's</span>}
                  </Cell>
                  <Cell number label="Denied /s">
                    {!isAsked ? (
                      <span
                        class="hint"
                        title="No request has met it since its last change, or since the process began."
                      >
                        not asked yet
                      </span>
                    ) : isKnown ? (
                      <>
                        <Spark values={grown(all, policy.name)} />{" "}
                        <span>{perSecond(recent(policy.name))}</span>
                      </>
                    ) : (
                      <span
                        class="hint"
                        title="Counted together with others: there are more policies than are told apart."
                      >
                        among others
                      </span>
                    )}
                  </Cell>
                </>
              );
            }}
          />
        )}
      </Panel>
      <Curl method="GET" path="/v1/policies" />
    </>
  );
}

/** Denials between the readings of the last minute. */
function grown(all: readonly Reading[], name: string): number[] {
  const last = all.slice(-31).map((reading) => denials(reading, name) ?? 0);
  return last.slice(1).map((value, place) => Math.max(value - (last[place] ?? 0), 0));
}
