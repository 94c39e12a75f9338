// What matters in two seconds: how much is asked, what share is denied, how fast, what is wrong, what changed.

import { useMemo } from "preact/hooks";
import { breakers, revision } from "../events";
import { bytes, count, latency, percent, perSecond } from "../format";
import {
  earlier,
  once,
  quantile,
  type Reading,
  rate,
  readings,
  type Series,
  total,
  trouble,
  useReadings,
} from "../metrics";
import { useValue } from "../observable";
import { useAsked } from "../parts/asked";
import { Badge, Empty, Meter, Panel, Problem, Stat } from "../parts/basics";
import { Changes, type Entry } from "../parts/changes";
import { Chart } from "../parts/chart";
import { href } from "../router";

/** Families of durations, by the label that says what was asked. */
const DURATIONS = ["tidegate_http_request_duration_seconds", "tidegate_resp_command_duration_seconds"];

/** What asks for decisions, by protocol. */
const PROTOCOLS: { name: string; accepts: (labels: Series["labels"]) => boolean }[] = [
  {
    name: "HTTP",
    accepts: (it) => ["/api/v1/ratelimit", "/v1/decisions", "/v1/check"].includes(it.route ?? ""),
  },
  { name: "gRPC", accepts: (it) => it.server === "grpc" && /RateLimit/i.test(it.route ?? "") },
  { name: "RESP", accepts: (it) => it.server === "resp" && /THROTTLE/i.test(it.command ?? "") },
];

const isDecision = (series: Series) => PROTOCOLS.some(({ accepts }) => accepts(series.labels));

/** Rates and quantiles are of the last ten seconds. */
const RECENT = 10;

const sums = once((reading) => ({
  allowed: total(reading, "tidegate_decisions_total", { result: "allowed" }),
  denied: total(reading, "tidegate_decisions_total", { result: "denied" }),
}));

const decided = (reading: Reading, result: "allowed" | "denied") => sums(reading)[result];

export function Overview() {
  useReadings();
  const all = useValue(readings);
  const failed = useValue(trouble);
  const now = all.at(-1);
  const before = earlier(all, RECENT);
  if (!now) {
    return failed ? (
      <Problem what="The numbers cannot be read." error={`${failed}; they are asked for again every 2 s.`} />
    ) : (
      <Empty>Reading …</Empty>
    );
  }
  return (
    <div class="grid">
      <Now all={all} now={now} before={before} />
      <OverTime all={all} />
      <Health now={now} />
      <ByPolicy now={now} before={before} />
      <ByProtocol now={now} before={before} />
      <MostDenied />
      <Nearest />
      <Changed />
    </div>
  );
}

interface Two {
  now: Reading;
  before: Reading | undefined;
}

function Now({ all, now, before }: Two & { all: readonly Reading[] }) {
  const of = (result: "allowed" | "denied") =>
    before && rate(before, now, (reading) => decided(reading, result));
  const [allowed, denied] = [of("allowed"), of("denied")];
  const rates = allowed !== null && allowed !== undefined && denied !== null && denied !== undefined;
  const speed = (share: number) => before && quantile(before, now, DURATIONS, isDecision, share);
  const isIdle = rates && allowed + denied === 0;
  return (
    <section class="panel wide now" aria-label="Now">
      <dl class="stats">
        <Stat
          label="Verdicts per second"
          value={rates ? perSecond(allowed + denied) : "–"}
          note={before ? "in the last 10 s" : "measuring"}
        />
        <Stat
          label="Denied"
          value={rates && !isIdle ? percent(denied / (allowed + denied)) : "–"}
          note={rates ? `${perSecond(denied)} per second` : ""}
        />
        <Stat label="p50" value={latency(speed(0.5))} note="of decisions, in the server" />
        <Stat label="p99" value={latency(speed(0.99))} note="of decisions, in the server" />
      </dl>
      {isIdle && all.length > 5 && decided(now, "allowed") + decided(now, "denied") === 0 && (
        <Empty>
          Nobody has asked for a decision yet. Try it:{" "}
          <code>{`curl -X POST ${location.origin}/api/v1/ratelimit -H 'content-type: application/json' -d '{"client_id":"user123","resource":"api"}'`}</code>
        </Empty>
      )}
    </section>
  );
}

function OverTime({ all }: { all: readonly Reading[] }) {
  const drawn = useMemo(() => {
    // The first has nothing before it: a rate of nothing.
    const pairs = all.map((reading, place) => [all[Math.max(place - 1, 0)] as Reading, reading] as const);
    const rates = (result: "allowed" | "denied") =>
      pairs.map(([a, b]) => rate(a, b, (reading) => decided(reading, result)));
    const speeds = (share: number) =>
      pairs.map(([, b], place) =>
        quantile(all[Math.max(place - 5, 0)] as Reading, b, DURATIONS, isDecision, share),
      );
    return {
      at: pairs.map(([, { at }]) => at / 1000),
      decisions: [rates("allowed"), rates("denied")],
      speeds: [speeds(0.5), speeds(0.99)],
    };
  }, [all]);
  return (
    <>
      <Panel title="Verdicts per second">
        <Chart
          summary={`Verdicts per second over the last five minutes; now ${perSecond(drawn.decisions[0]?.at(-1))} allowed and ${perSecond(drawn.decisions[1]?.at(-1))} denied.`}
          at={drawn.at}
          values={drawn.decisions}
          lines={[
            { label: "allowed", color: "--accent", fill: true },
            { label: "denied", color: "--bad", dash: [5, 3] },
          ]}
          format={perSecond}
        />
      </Panel>
      <Panel title="Time to decide">
        <Chart
          summary={`Time to decide over the last five minutes; now p50 ${latency(drawn.speeds[0]?.at(-1))}, p99 ${latency(drawn.speeds[1]?.at(-1))}.`}
          at={drawn.at}
          values={drawn.speeds}
          lines={[
            { label: "p50", color: "--accent" },
            { label: "p99", color: "--warn", dash: [5, 3] },
          ]}
          format={latency}
        />
      </Panel>
    </>
  );
}

interface Readiness {
  ready: boolean;
  stage: string;
  reasons: string[];
  degraded?: string[];
  details?: { reason: string; detail: string }[];
}

function Health({ now }: { now: Reading }) {
  const { body, error } = useAsked<Readiness>("/readyz?verbose", 4_000);
  const seen = [...useValue(breakers).values()];
  const detail = (reason: string) => body?.details?.find((it) => it.reason === reason)?.detail;
  const reasons = [...(body?.reasons ?? []), ...(body?.degraded ?? [])];
  const used = total(now, "tidegate_store_bytes");
  const most = total(now, "tidegate_store_max_bytes");
  return (
    <Panel title="Health">
      {error !== undefined && !body && <Problem what="The server's health is not known." error={error} />}
      {body && (
        <ul class="health">
          <li>
            <Badge kind={!body.ready ? "bad" : reasons.length > 0 ? "warn" : "good"}>
              {!body.ready ? "not ready" : reasons.length > 0 ? "ready, degraded" : "ready"}
            </Badge>
          </li>
          {reasons.map((reason) => (
            <li key={reason}>
              <Badge kind="warn">{reason}</Badge> {detail(reason)}
            </li>
          ))}
          <li>
            <Badge kind={total(now, "tidegate_control_reachable") === 1 ? "good" : "bad"}>
              configuration
            </Badge>{" "}
            revision {count(total(now, "tidegate_config_revision"))} in force
          </li>
          {now.families.has("tidegate_store_bytes") && (
            <li>
              <Badge kind={used > 0.9 * most ? "warn" : "good"}>counters</Badge>{" "}
              {count(total(now, "tidegate_store_entries"))} keys in {bytes(used)} of {bytes(most)}{" "}
              <Meter used={used} limit={most} label="Memory of the counters" />
            </li>
          )}
          {seen.map((breaker) => (
            <li key={breaker.of + breaker.name}>
              <Badge kind={breaker.state === "closed" ? "good" : breaker.state === "open" ? "bad" : "warn"}>
                {breaker.of} {breaker.name}
              </Badge>{" "}
              breaker {breaker.state.replace("_", " ")}
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function ByPolicy({ now, before }: Two) {
  const rows = useMemo(() => {
    const old = new Map(before?.families.get("tidegate_decisions_total")?.map((it) => [key(it), it.value]));
    const rows = new Map<string, Record<string, number>>();
    const seconds = before ? (now.at - before.at) / 1000 : 0;
    for (const series of now.families.get("tidegate_decisions_total") ?? []) {
      const { policy = "", result = "" } = series.labels;
      const row = rows.get(policy) ?? {};
      rows.set(policy, row);
      row[`${result} all`] = series.value;
      row[result] = seconds > 0 ? Math.max(series.value - (old.get(key(series)) ?? 0), 0) / seconds : 0;
    }
    const used = [...rows].filter(
      ([, row]) => (row["allowed all"] ?? 0) + (row["denied all"] ?? 0) + (row["shadow_denied all"] ?? 0) > 0,
    );
    const weight = (row: Record<string, number>) =>
      (row.denied ?? 0) * 1e6 + (row.allowed ?? 0) + (row["denied all"] ?? 0) / 1e6;
    return used.sort(([, a], [, b]) => weight(b) - weight(a)).slice(0, 8);
  }, [now, before]);
  return (
    <Panel title="By policy" actions={<a href={href(["policies"])}>All policies</a>}>
      {rows.length === 0 ? (
        <Empty>No policy has been asked since the process began.</Empty>
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">Policy</th>
              <th scope="col" class="number">
                Allowed /s
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
            {rows.map(([policy, row]) => (
              <tr key={policy}>
                <th scope="row">
                  {/^[a-z0-9._-]+$/.test(policy) ? <a href={href(["policies", policy])}>{policy}</a> : policy}
                </th>
                <td class="number">{perSecond(row.allowed)}</td>
                <td class="number">{perSecond((row.denied ?? 0) + (row.shadow_denied ?? 0))}</td>
                <td class="number">
                  {count((row["denied all"] ?? 0) + (row["shadow_denied all"] ?? 0))}
                  {(row["shadow_denied all"] ?? 0) > 0 && " (shadow)"}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Panel>
  );
}

const key = (series: Series) => `${series.labels.policy} ${series.labels.result}`;

function ByProtocol({ now, before }: Two) {
  const rows = PROTOCOLS.map(({ name, accepts }) => {
    const wanted = (series: Series) => accepts(series.labels);
    const asked = (reading: Reading) =>
      DURATIONS.flatMap((family) => reading.families.get(`${family}_count`) ?? []).reduce(
        (sum, series) => (wanted(series) ? sum + series.value : sum),
        0,
      );
    const speed = (share: number) => before && quantile(before, now, DURATIONS, wanted, share);
    return {
      name,
      all: asked(now),
      rate: before && rate(before, now, asked),
      p50: speed(0.5),
      p99: speed(0.99),
    };
  });
  return (
    <Panel title="By protocol">
      <table>
        <thead>
          <tr>
            <th scope="col">Protocol</th>
            <th scope="col" class="number">
              Requests /s
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
              <td class="number">{latency(row.p50)}</td>
              <td class="number">{latency(row.p99)}</td>
              <td class="number">{count(row.all)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

function MostDenied() {
  const { body, error } = useAsked<{ client_id: string; denied: number; error: number }[]>(
    "/v1/denied-clients",
    2_000,
  );
  return (
    <Panel title="Most denied clients">
      {error !== undefined && !body && <Problem what="They are not known." error={error} />}
      {body?.length === 0 && <Empty>No client was denied since the process began.</Empty>}
      <ol class="clients">
        {body?.slice(0, 8).map((client) => (
          <li key={client.client_id}>
            <a href={href(["clients"], { id: client.client_id })}>{client.client_id}</a>
            <span
              class="number"
              title={client.error > 0 ? `at most; up to ${count(client.error)} fewer` : "denials"}
            >
              {count(client.denied)}
            </span>
          </li>
        ))}
      </ol>
    </Panel>
  );
}

function Nearest() {
  interface Near {
    client_id: string;
    policy: string;
    limit: number;
    remaining: number;
  }
  const { body, error } = useAsked<Near[]>("/v1/nearest-clients", 2_000);
  return (
    <Panel title="Nearest to a limit">
      {error !== undefined && !body && <Problem what="They are not known." error={error} />}
      {body?.length === 0 && <Empty>No client has used half of a limit.</Empty>}
      <ol class="clients">
        {body?.slice(0, 8).map((near) => (
          <li key={`${near.policy} ${near.client_id}`}>
            <a href={href(["clients"], { id: near.client_id })}>{near.client_id}</a>
            <span class="number">
              {count(near.limit - near.remaining)} of {count(near.limit)}
              <Meter
                used={near.limit - near.remaining}
                limit={near.limit}
                label={`${near.client_id} under ${near.policy}`}
              />
            </span>
          </li>
        ))}
      </ol>
    </Panel>
  );
}

/** Changes of the last hour are among the last of these. */
const LOOKED_AT = 200;

function Changed() {
  const inForce = useValue(revision);
  const after = Math.max((inForce ?? 0) - LOOKED_AT, 0);
  const { body, error } = useAsked<Entry[]>(
    inForce === undefined ? undefined : `/v1/audit?after=${after}&limit=${LOOKED_AT}`,
  );
  const recent = body?.filter(({ at_ms }) => at_ms > Date.now() - 3_600_000).reverse();
  return (
    <Panel title="Changed in the last hour" actions={<a href={href(["audit"])}>All changes</a>} two>
      {error !== undefined && !body && <Problem what="The changes cannot be read." error={error} />}
      {recent?.length === 0 && <Empty>Nothing was changed through the API.</Empty>}
      {recent && recent.length > 0 && <Changes entries={recent.slice(0, 8)} />}
    </Panel>
  );
}
