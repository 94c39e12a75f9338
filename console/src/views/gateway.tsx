// The gateway: what it answers, as a whole and by route; its upstreams with their servers, the breakers of both with the calls
// that they judge, the candidate, the last requests, and where one would go.

import { useMemo } from "preact/hooks";
import { ask } from "../api";
import { count, counted, latency, percent, perSecond, speed, timeOfDay } from "../format";
import { useRates } from "../history";
import { earlier, quantile, type Reading, rate, readings, type Series, total, useReadings } from "../metrics";
import { useValue } from "../observable";
import { useAsked } from "../parts/asked";
import { Badge, chosen, Empty, Panel, Problem, Scroll, Stat } from "../parts/basics";
import { type Breaker, BreakerBadge, BreakerRule, BreakerWindow, useBreakers } from "../parts/breaker";
import { Candidate } from "../parts/candidate";
import { Chart } from "../parts/chart";
import { ExplainForm } from "../parts/explain_form";
import { type ExplainedRoute, RouteSentences } from "../parts/explained_route";
import { ORIGINS } from "../policy";
import { href } from "../router";
import { LastRequests } from "./traces";

interface Listed {
  documents: { origin: string; document: { name: string } & Record<string, unknown> }[];
}

/** What the metrics page counts of each route, of 200 of them: in this process alone. */
const ROUTE_REQUESTS = "tidegate_route_requests_total";
const ROUTE_DENIED = "tidegate_route_denied_requests_total";
const ROUTE_SECONDS = "tidegate_route_request_duration_seconds";

/** Those that are counted together. */
const OTHERS = "others";

/** What a reading says of a route, as a reading of its own: to look through all for each of them would hold up the page. It is
 * `undefined` where it is not told apart, and has nothing where nothing has come. */
function apart(reading: Reading | undefined): (route: string) => Reading | undefined {
  if (!reading) return () => undefined;
  const found = new Map<string, Map<string, Series[]>>();
  for (const family of [ROUTE_REQUESTS, ROUTE_DENIED, `${ROUTE_SECONDS}_bucket`]) {
    for (const series of reading.families.get(family) ?? []) {
      const { route = "" } = series.labels;
      const families = found.get(route) ?? new Map<string, Series[]>();
      families.set(family, [...(families.get(family) ?? []), series]);
      found.set(route, families);
    }
  }
  const none = found.has(OTHERS) ? undefined : new Map<string, Series[]>();
  return (route) => {
    // A route of this name is among them.
    if (route === OTHERS) return undefined;
    const families = found.get(route) ?? none;
    return families && { at: reading.at, families, digests: reading.digests };
  };
}

/** Fields of a route that say which requests it takes. */
const MATCHING = ["host", "path", "method", "header", "headers", "query"];

/** What was counted of a route. */
interface RouteCount {
  route: string;
  requests: number;
  rate_limited: number;
  failed: number;
  p50_ms?: number | null;
  p99_ms?: number | null;
}

/** By route, of the last five minutes; without rows where the process counts nothing. */
interface Counted {
  from?: string;
  to?: string;
  rows?: RouteCount[];
}

const COUNTED = "/v1/analytics?by=route";
const SPAN = 300_000;

const countedByRoute = (path: string, signal: AbortSignal) => {
  const from = new Date(Date.now() - SPAN).toISOString();
  return ask<Counted>("GET", `${path}&${new URLSearchParams({ from })}`, { signal, answers: [404] });
};

export function Gateway(props: { query: URLSearchParams }) {
  useReadings();
  const routes = useAsked<Listed>("/v1/routes");
  const upstreams = useAsked<Listed>("/v1/upstreams");
  const byRoute = useAsked(COUNTED, 5_000, countedByRoute).body;
  const breakers = useBreakers();
  const all = useValue(readings);
  const now = all.at(-1);
  const before = earlier(all, 10);
  const [ofNow, ofBefore] = useMemo(() => [apart(now), apart(before)] as const, [now, before]);
  if (routes.error !== undefined && !routes.body)
    return <Problem what="The routes cannot be read." error={routes.error} retry={routes.again} />;
  if (upstreams.error !== undefined && !upstreams.body)
    return <Problem what="The upstreams cannot be read." error={upstreams.error} retry={upstreams.again} />;
  if (!routes.body || !upstreams.body) return <Empty>Asking …</Empty>;
  if (routes.body.documents.length === 0 && upstreams.body.documents.length === 0) {
    return (
      <Empty>
        There is no route. Declare <code>[[upstream]]</code> and <code>[[route]]</code> in the file, with a{" "}
        <code>gateway.listener</code>, or try <code>tidegate gateway http://127.0.0.1:3000</code>.
      </Empty>
    );
  }
  return (
    <div class="grid">
      {now && <Now now={now} before={before} />}
      {now && <OverTime all={all} />}
      <Panel
        title={counted(routes.body.documents.length, "route")}
        wide
        actions={byRoute?.rows && <a href={href(["gateway", "analytics"])}>Requests over time</a>}
      >
        {byRoute && !byRoute.rows && (
          <p class="hint">
            Numbers of this process in the last 10 s. Where <code>gateway.analytics</code> is on, they are of
            five minutes at all nodes, and kept over time.
          </p>
        )}
        <Scroll label="Routes">
          <table>
            <thead>
              <tr>
                <th scope="col">Route</th>
                <th scope="col">Takes</th>
                <th scope="col">To</th>
                <th scope="col">Policies</th>
                <CountHeads of={byRoute?.rows ? "in the last 5 minutes, at all nodes" : RECENT} />
                <th scope="col">Breaker</th>
                <th scope="col">From</th>
              </tr>
            </thead>
            <tbody>
              {routes.body.documents.map(({ origin, document }) => (
                <tr key={document.name} {...chosen(document.name === props.query.get("route"))}>
                  <th scope="row">
                    <a href={href(["gateway"], { route: document.name })}>{document.name}</a>
                  </th>
                  <td>{takes(document)}</td>
                  <td>{goesTo(document)}</td>
                  <td>{text(document.policies)}</td>
                  {byRoute?.rows ? (
                    <Counts counted={byRoute} route={document.name} uptime={uptimeOf(now)} />
                  ) : (
                    <Measured before={ofBefore(document.name)} now={ofNow(document.name)} />
                  )}
                  <td>
                    <OfRoute breaker={breakers?.get(`route ${document.name}`)} />
                  </td>
                  <td>{ORIGINS[origin] ?? origin}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      </Panel>
      <div class="grid wide broad">
        {upstreams.body.documents.map(({ document }) => (
          <Upstream
            key={document.name}
            name={document.name}
            breaker={breakers && (breakers.get(`upstream ${document.name}`) ?? null)}
            isChosen={document.name === props.query.get("upstream")}
            now={now}
            before={before}
          />
        ))}
      </div>
      <Candidate
        routes={routes.body.documents.map(({ document }) => document)}
        upstreams={upstreams.body.documents.map(({ document }) => document)}
      />
      <LastRequests />
      <ExplainForm
        title="Where would a request go?"
        view="gateway"
        address="/v1/explain/route"
        query={props.query}
        questions={[
          { name: "host", label: "Host" },
          { name: "path", label: "Path", hint: "with its query" },
          { name: "method", label: "Method", hint: "GET if empty" },
          { name: "client_ip", label: "Client's address" },
        ]}
        empty="State a host or a path, and the gateway says which route takes it, and why not the others. Nothing is sent or charged."
        tell={(answer) => <RouteSentences explained={answer as ExplainedRoute} />}
      />
    </div>
  );
}

const answers = (wanted: Record<string, string>) => (reading: Reading) =>
  total(reading, "tidegate_http_requests_total", { server: "gateway", ...wanted });

/** What the gateway has answered, what of it a policy denied, and what failed. */
const SUMS = [
  answers({}),
  (reading: Reading) =>
    total(reading, "tidegate_requests_decided_total", { protocol: "gateway", result: "denied" }),
  answers({ status: "5xx" }),
];

function OverTime({ all }: { all: readonly Reading[] }) {
  const { at, values } = useRates(all, 300, SUMS);
  const [answered, denied, failed] = values.map((rates) => perSecond(rates.at(-1)));
  return (
    <Panel title="Requests per second" wide>
      <Chart
        summary={`Requests per second over the last five minutes, from ${timeOfDay(at[0] ?? 0)} on; now ${answered} answered, of which ${denied} denied and ${failed} with 500 or above.`}
        at={at}
        values={values}
        lines={[
          { label: "answered", color: "--accent", fill: true },
          { label: "denied", color: "--bad", dash: [5, 3] },
          { label: "errors", color: "--warn", dash: [2, 3] },
        ]}
        format={perSecond}
      />
    </Panel>
  );
}

/** What the gateway answers as a whole, whatever the route. */
function Now({ now, before }: { now: Reading; before: Reading | undefined }) {
  const [all, denied, failed] = SUMS.map((sum) => before && rate(before, now, sum));
  const fast = (share: number) =>
    before &&
    quantile(
      before,
      now,
      ["tidegate_http_request_duration_seconds"],
      ({ labels }) => labels.server === "gateway",
      share,
    );
  const shareOf = (some: number | null | undefined) =>
    all && typeof some === "number" ? percent(some / all) : "–";
  return (
    <section class="panel wide" aria-label="Now">
      <dl class="stats">
        <Stat
          label="Requests per second"
          value={perSecond(all)}
          note={before ? "in the last 10 s" : "measuring"}
        />
        <Stat label="Errors" value={shareOf(failed)} note="answered 500 or above" />
        <Stat label="Denied" value={shareOf(denied)} note="by a policy" />
        <Stat label="p50" value={speed(fast(0.5))} note="servers included" />
        <Stat label="p99" value={speed(fast(0.99))} note="servers included" />
      </dl>
    </section>
  );
}

/** For how many seconds the process has run: what it counted came in no longer time. */
function uptimeOf(now: Reading | undefined): number {
  const began = now && total(now, "process_start_time_seconds");
  return began ? Math.max(now.at / 1000 - began, 1) : Infinity;
}

const HEADS = ["Requests /s", "Errors", "Denied", "p50", "p99"];

/** Of which requests the numbers are that the metrics page has. */
const RECENT = "in the last 10 s, in this process";

function CountHeads({ of }: { of: string }) {
  return (
    <>
      {HEADS.map((head) => (
        <th scope="col" class="number" key={head} title={of}>
          {head}
        </th>
      ))}
    </>
  );
}

/** A route's numbers in its row. */
function Counts({ counted, route, uptime }: { counted: Counted; route: string; uptime: number }) {
  const row = counted.rows?.find((it) => it.route === route);
  const span = (Date.parse(counted.to ?? "") - Date.parse(counted.from ?? "")) / 1000;
  const seconds = Math.min(span, uptime);
  const shareOf = (some: number) => (row && row.requests > 0 ? percent(some / row.requests) : "–");
  const ms = (value: number | null | undefined) => latency(typeof value === "number" ? value / 1000 : null);
  const cells = row
    ? [
        perSecond(row.requests / seconds),
        shareOf(row.failed),
        shareOf(row.rate_limited),
        ms(row.p50_ms),
        ms(row.p99_ms),
      ]
    : ["0", "–", "–", "–", "–"];
  return (
    <>
      {cells.map((cell, place) => (
        <td class="number" key={HEADS[place]}>
          {cell}
        </td>
      ))}
    </>
  );
}

/** A route's numbers in its row, as the metrics page has them; none of a route that it counts together with others. */
function Measured({ before, now }: { before: Reading | undefined; now: Reading | undefined }) {
  const of = (family: string, wanted: Record<string, string> = {}) =>
    before && now && rate(before, now, (reading) => total(reading, family, wanted));
  const all = of(ROUTE_REQUESTS);
  // A request is counted as denied a moment before it is answered.
  const shareOf = (some: number | null | undefined) =>
    all && typeof some === "number" ? percent(Math.min(some / all, 1)) : "–";
  const fast = (share: number) => before && now && quantile(before, now, [ROUTE_SECONDS], () => true, share);
  const cells = [
    perSecond(all),
    shareOf(of(ROUTE_REQUESTS, { status: "5xx" })),
    shareOf(of(ROUTE_DENIED)),
    speed(fast(0.5)),
    speed(fast(0.99)),
  ];
  return (
    <>
      {cells.map((cell, place) => (
        <td class="number" key={HEADS[place]}>
          {cell}
        </td>
      ))}
    </>
  );
}

function text(value: unknown): string {
  if (value === undefined) return "–";
  if (Array.isArray(value)) return value.map(text).join(", ");
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** What a route does with requests: its upstream, those of its split with their percentages, or its own answer. */
function goesTo({ upstream, split, redirect, respond }: Record<string, unknown>): string {
  const shares = Array.isArray(split) ? split.map((it) => `${it.upstream} ${it.percent} %`) : undefined;
  return text(upstream ?? shares ?? redirect ?? respond);
}

function takes(document: Record<string, unknown>): string {
  const parts = MATCHING.filter((name) => document[name] !== undefined).map(
    (name) => `${name} ${text(document[name])}`,
  );
  return parts.length > 0 ? parts.join(", ") : "every request";
}

/** A route's breaker in its row. */
function OfRoute({ breaker }: { breaker: Breaker | undefined }) {
  if (!breaker) return <span class="hint">none of its own</span>;
  return (
    <>
      <BreakerBadge breaker={breaker} /> <BreakerWindow breaker={breaker} />
    </>
  );
}

function Upstream(props: {
  name: string;
  /** `null`: it has none; `undefined`: that is not known yet. */
  breaker: Breaker | null | undefined;
  isChosen: boolean;
  now: Reading | undefined;
  before: Reading | undefined;
}) {
  const { name, breaker, now, before } = props;
  const servers = (now?.families.get("tidegate_upstream_server_up") ?? []).filter(
    ({ labels }) => labels.upstream === name,
  );
  const of =
    (family: string, { labels }: Series, more: Record<string, string> = {}) =>
    (reading: Reading) =>
      total(reading, family, { upstream: name, server: labels.server ?? "", ...more });
  return (
    <Panel
      title={`upstream ${name}`}
      address={href(["gateway"], { upstream: name })}
      isChosen={props.isChosen}
      actions={breaker && <BreakerBadge breaker={breaker} />}
    >
      {breaker === null && <p class="hint">No breaker: it is asked whatever fails.</p>}
      {breaker && (
        <>
          <BreakerRule breaker={breaker} />
          <p>
            <BreakerWindow breaker={breaker} />
          </p>
        </>
      )}
      {servers.length === 0 ? (
        <Empty>Its servers are not known yet.</Empty>
      ) : (
        <Scroll label={`Servers of ${name}`}>
          <table>
            <thead>
              <tr>
                <th scope="col">Server</th>
                <th scope="col">State</th>
                <th scope="col" class="number">
                  Requests /s
                </th>
                <th scope="col" class="number">
                  Failures /s
                </th>
                <th scope="col" class="number">
                  In flight
                </th>
              </tr>
            </thead>
            <tbody>
              {servers.map((server) => {
                const ejected = now && of("tidegate_upstream_server_ejected", server)(now) === 1;
                const speed = (result: string) =>
                  before &&
                  now &&
                  rate(before, now, of("tidegate_upstream_attempts_total", server, { result }));
                return (
                  <tr key={server.labels.server}>
                    <th scope="row">{server.labels.server}</th>
                    <td>
                      <Badge kind={server.value !== 1 ? "bad" : ejected ? "warn" : "good"}>
                        {server.value !== 1
                          ? "down: its checks fail"
                          : ejected
                            ? "left out: its requests failed"
                            : "up"}
                      </Badge>
                    </td>
                    <td class="number">{perSecond(speed("success"))}</td>
                    <td class="number">{perSecond(speed("failure"))}</td>
                    <td class="number">
                      {now ? count(of("tidegate_upstream_requests_in_flight", server)(now)) : "–"}
                    </td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </Scroll>
      )}
    </Panel>
  );
}
