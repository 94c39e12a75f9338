// What matters in two seconds: how much is asked, what share is denied, how fast, what is wrong, what changed.

import { useMemo } from "preact/hooks";
import { ask } from "../api";
import { breakers, revision } from "../events";
import { bytes, count, latency, percent, perSecond, speed } from "../format";
import {
  earlier,
  type Quantile,
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
import { Badge, Empty, Meter, Panel, Problem, Scroll, Stat } from "../parts/basics";
import { CAPACITY, type CapacityNow } from "../parts/capacity";
import { Changes, type Entry } from "../parts/changes";
import { Chart } from "../parts/chart";
import { MostDenied, Nearest } from "../parts/heaviest";
import { href } from "../router";
import { askedOf, OTHERS, type Verdicts, verdicts, verdictsOf } from "../verdicts";

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

/** From this share of what can be kept up on, the load is said to be high. */
const NEAR = 0.8;

/** Rates and quantiles are of the last ten seconds. */
const RECENT = 10;

const decided = (reading: Reading, result: "allowed" | "denied") =>
  total(reading, "tidegate_requests_decided_total", { result });

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
      <Now now={now} before={before} />
      <Health now={now} />
      <OverTime all={all} />
      <ByPolicy now={now} before={before} />
      <ByProtocol now={now} before={before} />
      <MostDenied most={8} />
      <Nearest most={8} />
      <Changed />
    </div>
  );
}

interface Two {
  now: Reading;
  before: Reading | undefined;
}

function Now({ now, before }: Two) {
  const of = (result: "allowed" | "denied") =>
    before && rate(before, now, (reading) => decided(reading, result));
  const [allowed, denied] = [of("allowed"), of("denied")];
  const rates = allowed !== null && allowed !== undefined && denied !== null && denied !== undefined;
  const fast = (share: number) => before && quantile(before, now, DURATIONS, isDecision, share);
  const isIdle = rates && allowed + denied === 0;
  return (
    <section class="panel wide now" aria-label="Now">
      <dl class="stats">
        <Stat
          label="Decisions per second"
          value={rates ? perSecond(allowed + denied) : "–"}
          note={before ? "in the last 10 s" : "measuring"}
        />
        <Stat
          label="Denied"
          value={rates && !isIdle ? percent(denied / (allowed + denied)) : "–"}
          note={rates ? `${perSecond(denied)} per second` : ""}
        />
        <Stat label="p50" value={speed(fast(0.5))} note="of decisions, in the server" />
        <Stat label="p99" value={speed(fast(0.99))} note="of decisions, in the server" />
        <Load now={now} />
      </dl>
      {isIdle && decided(now, "allowed") + decided(now, "denied") === 0 && (
        <Empty>
          Nobody has asked for a decision yet. Try it:{" "}
          <code>{`curl -X POST ${location.origin}/api/v1/ratelimit -H 'content-type: application/json' -d '{"client_id":"user123","resource":"api"}'`}</code>
        </Empty>
      )}
    </section>
  );
}

/** The load beside what an accepted report says that can be kept up. */
function Load({ now }: { now: Reading }) {
  const { body } = useAsked<CapacityNow>(CAPACITY);
  const known = now.families.get("tidegate_capacity_used_ratio")?.[0];
  if (!body?.accepted) return null;
  const { is_knee, cause, server } = body.accepted;
  return (
    <Stat
      label={`Load of ${server}`}
      value={known ? percent(known.value) : "–"}
      note={`of the ${is_knee ? "knee" : "capacity"}; cause then: ${cause}`}
      {...(known && known.value >= NEAR ? { tone: "bad" as const } : {})}
    />
  );
}

interface Speeds {
  since: Reading;
  p50: Quantile | null;
  p99: Quantile | null;
}

const known = new WeakMap<Reading, Speeds>();

/** How fast decisions were from one reading to another. Each is worked out once, as long as both are kept. */
function speedsUntil(reading: Reading, since: Reading): Speeds {
  const found = known.get(reading);
  if (found?.since === since) return found;
  const fast = (share: number) => quantile(since, reading, DURATIONS, isDecision, share);
  const speeds = { since, p50: fast(0.5), p99: fast(0.99) };
  known.set(reading, speeds);
  return speeds;
}

function OverTime({ all }: { all: readonly Reading[] }) {
  const drawn = useMemo(() => {
    // The first has nothing before it: a rate of nothing.
    const pairs = all.map((reading, place) => [all[Math.max(place - 1, 0)] as Reading, reading] as const);
    const rates = (result: "allowed" | "denied") =>
      pairs.map(([a, b]) => rate(a, b, (reading) => decided(reading, result)));
    const speeds = pairs.map(([, b], place) => speedsUntil(b, all[Math.max(place - 5, 0)] as Reading));
    return {
      at: pairs.map(([, { at }]) => at / 1000),
      decisions: [rates("allowed"), rates("denied")],
      speeds: [speeds.map(({ p50 }) => p50?.seconds ?? null), speeds.map(({ p99 }) => p99?.seconds ?? null)],
      last: speeds.at(-1),
      below: speeds.flatMap(({ p50, p99 }) => [p50, p99]).find((quantile) => quantile?.isBelow),
    };
  }, [all]);
  return (
    <>
      <Panel title="Decisions per second">
        <Chart
          summary={`Decisions per second over the last five minutes; now ${perSecond(drawn.decisions[0]?.at(-1))} allowed and ${perSecond(drawn.decisions[1]?.at(-1))} denied.`}
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
          summary={`Time to decide over the last five minutes; now p50 ${speed(drawn.last?.p50)}, p99 ${speed(drawn.last?.p99)}.`}
          at={drawn.at}
          values={drawn.speeds}
          lines={[
            { label: "p50", color: "--accent" },
            { label: "p99", color: "--warn", dash: [5, 3] },
          ]}
          format={latency}
        />
        {drawn.below && (
          <p class="hint">
            What took less than {latency(drawn.below.seconds)} is drawn there: no more is known of it.
          </p>
        )}
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

/** A process that is not ready says so with 503. */
const readiness = (path: string, signal: AbortSignal) =>
  ask<Readiness>("GET", path, { signal, answers: [503] });

function Health({ now }: { now: Reading }) {
  const { body, error } = useAsked("/readyz?verbose", 4_000, readiness);
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
    const weight = (row: (typeof rows)[number]) => row.denied * 1e6 + row.allowed + row.all.denied / 1e6;
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
                  <td class="number">{perSecond(denied + shadowDenied)}</td>
                  <td class="number">
                    {count(all.denied + all.shadow_denied)}
                    {all.shadow_denied > 0 && " (shadow)"}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </Panel>
  );
}

function ByProtocol({ now, before }: Two) {
  const rows = PROTOCOLS.map(({ name, accepts }) => {
    const wanted = (series: Series) => accepts(series.labels);
    const asked = (reading: Reading) =>
      DURATIONS.flatMap((family) => reading.families.get(`${family}_count`) ?? []).reduce(
        (sum, series) => (wanted(series) ? sum + series.value : sum),
        0,
      );
    const fast = (share: number) => before && quantile(before, now, DURATIONS, wanted, share);
    return {
      name,
      all: asked(now),
      rate: before && rate(before, now, asked),
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

/** Changes of the last hour are looked for among so many. */
const LOOKED_AT = 200;
/** Most that are listed. */
const LISTED = 8;

function Changed() {
  const inForce = useValue(revision);
  const after = Math.max((inForce ?? 0) - LOOKED_AT, 0);
  const { body, error } = useAsked<Entry[]>(
    inForce === undefined ? undefined : `/v1/audit?after=${after}&limit=${LOOKED_AT}`,
  );
  const recent = body?.filter(({ at_ms }) => at_ms > Date.now() - 3_600_000).reverse();
  const more = Math.max((recent?.length ?? 0) - LISTED, 0);
  const isCut = body !== undefined && recent?.length === body.length && body.length >= LOOKED_AT;
  return (
    <Panel title="Changed in the last hour" actions={<a href={href(["audit"])}>All changes</a>} two>
      {error !== undefined && !body && <Problem what="The changes cannot be read." error={error} />}
      {recent?.length === 0 && <Empty>Nothing was changed, through the API or in the file.</Empty>}
      {recent && recent.length > 0 && <Changes entries={recent.slice(0, LISTED)} />}
      {more > 0 && (
        <p class="hint">
          <a href={href(["audit"])}>
            {count(more)} more{isCut && ", or still more"}
          </a>{" "}
          in the last hour.
        </p>
      )}
    </Panel>
  );
}
