// The overview's tables: what each policy decides, and what comes in by each door.

import { useMemo } from "preact/hooks";
import { DOORS, DURATIONS, isServed, requestsOf } from "../answers";
import { count, percent, perSecond, speed } from "../format";
import { quantile, type Reading, rate, total } from "../metrics";
import { href } from "../router";
import { askedOf, OTHERS, type Verdicts, verdicts, verdictsOf } from "../verdicts";
import { Empty, Panel, Scroll } from "./basics";

interface Two {
  now: Reading;
  before: Reading | undefined;
}

export function ByPolicy({ now, before }: Two) {
  const rows = useMemo(() => {
    const seconds = before ? (now.at - before.at) / 1000 : 0;
    const grown = (name: string, now: Verdicts, result: keyof Verdicts) =>
      before && seconds > 0
        ? Math.max(now[result] - (verdictsOf(before, name)?.[result] ?? 0), 0) / seconds
        : 0;
    const rows = [...verdicts(now)].map(([policy, all]) => ({
      policy,
      all,
      allowed: grown(policy, all, "allowed"),
      denied: grown(policy, all, "denied"),
      shadowDenied: grown(policy, all, "shadow_denied"),
    }));
    const weight = (row: (typeof rows)[number]) =>
      row.denied * 1e6 + row.shadowDenied * 1e3 + row.allowed + row.all.denied / 1e6;
    const asked = rows.filter(({ all }) => askedOf(all) > 0);
    return asked.sort((a, b) => weight(b) - weight(a)).slice(0, 8);
  }, [now, before]);
  return (
    <Panel title="By policy" actions={<a href={href(["policies"])}>All policies</a>}>
      {rows.length === 0 ? (
        <Empty>No policy has been asked since the process began.</Empty>
      ) : (
        <Scroll label="By policy">
          <table>
            <thead>
              <tr>
                <th scope="col">Policy</th>
                <th scope="col" class="number">
                  Allowed /s
                </th>
                <th scope="col" class="number" title="in shadow: counted, and nobody is denied">
                  Would deny /s
                </th>
                <th scope="col" class="number">
                  Denied /s
                </th>
                <th scope="col" class="number">
                  Denied, all
                </th>
              </tr>
            </thead>
            <tbody>
              {rows.map(({ policy, all, allowed, denied, shadowDenied }) => (
                <tr key={policy}>
                  <th scope="row">
                    {/^[a-z0-9._-]+$/.test(policy) ? (
                      <a href={href(["policies", policy])}>{policy}</a>
                    ) : (
                      <span class="hint">{policy === OTHERS ? "others, counted together" : policy}</span>
                    )}
                  </th>
                  <td class="number">{perSecond(allowed)}</td>
                  <td class="number" title={`${count(all.shadow_denied)} since the process began`}>
                    {perSecond(shadowDenied)}
                  </td>
                  <td class="number">{perSecond(denied)}</td>
                  <td class="number">{count(all.denied)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </Panel>
  );
}

export function ByDoor({ now, before }: Two) {
  const rows = DOORS.filter((door) => isServed(door, now)).map((door) => {
    const { name, protocol } = door;
    // One request over HTTP may ask for a thousand decisions, so the share is that of decisions.
    const decided = (wanted: Record<string, string>) =>
      before &&
      rate(before, now, (reading) =>
        total(reading, "tidegate_requests_decided_total", { protocol, ...wanted }),
      );
    const fast = (share: number) =>
      before && quantile(before, now, DURATIONS, ({ labels }) => door.isTimed(labels), share);
    const asked = before && rate(before, now, (reading) => requestsOf(door, reading));
    const [all, denied] = [decided({}), decided({ result: "denied" })];
    return {
      name,
      all: requestsOf(door, now),
      rate: asked,
      denied: all && typeof denied === "number" ? denied / all : undefined,
      p50: fast(0.5),
      p99: fast(0.99),
    };
  });
  return (
    <Panel title="By protocol">
      <Scroll label="By protocol">
        <table>
          <thead>
            <tr>
              <th scope="col">Protocol</th>
              <th scope="col" class="number">
                Requests /s
              </th>
              <th scope="col" class="number">
                Denied
              </th>
              <th scope="col" class="number">
                p50
              </th>
              <th scope="col" class="number">
                p99
              </th>
              <th scope="col" class="number">
                All
              </th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row.name}>
                <th scope="row">{row.name}</th>
                <td class="number">{perSecond(row.rate)}</td>
                <td class="number">{percent(row.denied)}</td>
                <td class="number">{speed(row.p50)}</td>
                <td class="number">{speed(row.p99)}</td>
                <td class="number">{count(row.all)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  );
}
