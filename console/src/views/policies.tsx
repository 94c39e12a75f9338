// The policies in force, in the order in which they are checked.

import { useMemo } from "preact/hooks";
import { mayConfigure, session } from "../api";
import { count, perSecond } from "../format";
import { earlier, once, type Reading, readings, useReadings } from "../metrics";
import { useValue } from "../observable";
import { useAsked } from "../parts/asked";
import { Badge, Curl, Empty, Field, Panel, Problem } from "../parts/basics";
import { Cell, Rows } from "../parts/rows";
import { Spark } from "../parts/spark";
import { ALGORITHMS, type ListedPolicy, matching, ORIGINS, quota } from "../policy";
import { choose, href } from "../router";

interface List {
  policies: ListedPolicy[];
}

interface NotInForce {
  set_aside: { kind: string; name: string; mistakes: string[] }[];
  altered: { kind: string; name: string }[];
  hidden: { name: string; stored_revision: number }[];
}

/** Denials of each policy, also of those that only would deny. */
const denials = once((reading: Reading): Map<string, number> => {
  const sums = new Map<string, number>();
  for (const { labels, value } of reading.families.get("tidegate_decisions_total") ?? []) {
    const { policy = "", result } = labels;
    if (result !== "allowed") sums.set(policy, (sums.get(policy) ?? 0) + value);
  }
  return sums;
});

export function Policies(props: { query: URLSearchParams }) {
  useReadings();
  const { body, error, again } = useAsked<List>("/v1/policies");
  const aside = useAsked<NotInForce>("/v1/set-aside").body;
  const who = useValue(session);
  const all = useValue(readings);
  const text = props.query.get("find") ?? "";
  const counted = useMemo(
    () => all.slice(-31).map((reading) => ({ at: reading.at, sums: denials(reading) })),
    [all],
  );
  const verdicts = useMemo(() => {
    const sums = new Map<string, number>();
    for (const { labels, value } of all.at(-1)?.families.get("tidegate_decisions_total") ?? []) {
      const { policy = "" } = labels;
      sums.set(policy, (sums.get(policy) ?? 0) + value);
    }
    return sums;
  }, [all]);
  const found = useMemo(() => {
    const wanted = text.toLowerCase();
    const policies = body?.policies ?? [];
    return wanted === ""
      ? policies
      : policies.filter(({ policy }) => JSON.stringify(policy).toLowerCase().includes(wanted));
  }, [body, text]);
  const recent = useMemo(() => {
    const [before, now] = [earlier(all, 10), all.at(-1)];
    if (!before || !now || now.at === before.at) return new Map<string, number>();
    const old = denials(before);
    const seconds = (now.at - before.at) / 1000;
    return new Map(
      [...denials(now)].map(([name, sum]) => [name, Math.max(sum - (old.get(name) ?? 0), 0) / seconds]),
    );
  }, [all]);
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
            : found.length === 1
              ? "1 policy"
              : `${count(found.length)} policies`
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
            row={({ policy, origin }) => {
              const speed = recent.get(policy.name);
              return (
                <>
                  <Cell>
                    <a href={href(["policies", policy.name])}>{policy.name}</a>
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
                    {verdicts.get(policy.name) === 0 ? (
                      <span class="hint" title="No request has met it since the process began.">
                        not asked yet
                      </span>
                    ) : (
                      <>
                        <Spark values={grown(counted, policy.name)} /> {perSecond(speed)}
                      </>
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
function grown(counted: { at: number; sums: Map<string, number> }[], name: string): number[] {
  const last = counted.slice(-31).map(({ sums }) => sums.get(name) ?? 0);
  return last.slice(1).map((value, place) => Math.max(value - (last[place] ?? 0), 0));
}
