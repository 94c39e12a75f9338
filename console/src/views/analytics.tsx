// Requests that the gateways of all nodes have answered: over time, and told apart by route, key, upstream, server or status.

import { useMemo } from "preact/hooks";
import { addressOf, ask, type Reply } from "../api";
import { bytes, count, counted, latency, percent } from "../format";
import { useAsked } from "../parts/asked";
import { Badge, Curl, Empty, Field, Panel, Problem, Scroll, Stat } from "../parts/basics";
import { Chart } from "../parts/chart";
import { choose, href } from "../router";

const ADDRESS = "/v1/analytics";
/** How often it is asked for, in milliseconds; nodes store what they have counted every five seconds. */
const PERIOD = 5_000;
/** Most rows that are drawn. */
const MOST_ROWS = 200;

/** By what requests are told apart, as the API names it. */
const BY: Record<string, string> = {
  route: "route",
  key: "API key",
  upstream: "upstream",
  server: "server",
  status: "status",
  "route,status": "route and status",
  "route,key": "route and API key",
};

/** How much of the past, in which steps, and how long each is, in seconds. */
const SPANS: Record<string, { label: string; seconds: number; step: string; each: number }> = {
  hour: { label: "hour", seconds: 3_600, step: "minute", each: 60 },
  day: { label: "day", seconds: 86_400, step: "hour", each: 3_600 },
  week: { label: "7 days", seconds: 7 * 86_400, step: "hour", each: 3_600 },
  month: { label: "30 days", seconds: 30 * 86_400, step: "day", each: 86_400 },
  year: { label: "365 days", seconds: 365 * 86_400, step: "day", each: 86_400 },
};

/** What was counted of some requests. */
interface Counts {
  requests: number;
  rate_limited: number;
  client_errors: number;
  failed: number;
  bytes: number;
  p50_ms: number;
  p95_ms: number;
  p99_ms: number;
}

type Row = Counts & { begin?: string } & Record<string, string | number | undefined>;

interface Counted {
  from: string;
  to: string;
  complete: boolean;
  series_left_out: number;
  rows: Row[];
  total: Counts;
}

/** Where nothing is counted the answer is 404. */
type Answer = Counted | { rows?: undefined };

/** Gets a path whose `last` is so many seconds until now. */
function untilNow(path: string, signal: AbortSignal): Promise<Reply<Answer>> {
  const [address, query] = path.split("?");
  const asked = new URLSearchParams(query);
  asked.set("from", since(Number(asked.get("last"))));
  asked.delete("last");
  return ask<Answer>("GET", `${address}?${asked}`, { signal, answers: [404] });
}

const since = (seconds: number) => `${new Date(Date.now() - 1000 * seconds).toISOString().slice(0, 19)}Z`;

export function Analytics(props: { query: URLSearchParams }) {
  const stated = (name: string) => props.query.get(name) ?? "";
  const by = BY[stated("by")] ? stated("by") : "route";
  const last = SPANS[stated("last")] ? stated("last") : "hour";
  const span = SPANS[last] as (typeof SPANS)[string];
  const only = Object.fromEntries(
    ["route", "key"].map((name) => [name, stated(name)]).filter(([, it]) => it),
  );
  const change = (part: Record<string, string>) =>
    choose(["gateway", "analytics"], { by, last, ...only, ...part });
  const of = (asked: Record<string, string>) => `${ADDRESS}?${new URLSearchParams({ ...asked, ...only })}`;
  const over = useAsked(of({ step: span.step, last: String(span.seconds) }), PERIOD, untilNow);
  const apart = useAsked(of({ by, last: String(span.seconds) }), PERIOD, untilNow);
  const error = over.error ?? apart.error;
  const body = apart.body;
  const mistake = error !== undefined && <Problem what="It is not answered." error={error} />;
  if (body && !body.rows) {
    return (
      <Empty>
        Requests are not counted in this process: <code>gateway.analytics</code> is off.
      </Empty>
    );
  }
  const form = (
    <form class="search" role="search" onSubmit={(event) => event.preventDefault()}>
      <Field label="Told apart by">
        {(attributes) => (
          <select {...attributes} value={by} onInput={(event) => change({ by: event.currentTarget.value })}>
            {Object.entries(BY).map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label="The last">
        {(attributes) => (
          <select
            {...attributes}
            value={last}
            onInput={(event) => change({ last: event.currentTarget.value })}
          >
            {Object.entries(SPANS).map(([value, { label }]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        )}
      </Field>
      {["route", "key"].map((name) => (
        <Field key={name} label={name === "key" ? "Only of the key" : "Only of the route"}>
          {(attributes) => (
            <input
              {...attributes}
              type="search"
              autocomplete="off"
              spellcheck={false}
              value={only[name] ?? ""}
              onChange={(event) => change({ [name]: event.currentTarget.value.trim() })}
            />
          )}
        </Field>
      ))}
    </form>
  );
  return (
    <>
      <p class="actions">
        <a href={href(["gateway"])}>The gateway</a>
      </p>
      {form}
      {mistake}
      <div class="grid">
        {body && <Total body={body} />}
        {over.body?.rows && <OverTime counted={over.body} step={span.step} each={span.each} />}
        {body && (
          <Apart
            counted={body}
            names={by.split(",")}
            csv={of({ by, from: since(span.seconds), format: "csv" })}
          />
        )}
      </div>
      <Curl method="GET" path={of({ by, from: since(span.seconds) })} />
    </>
  );
}

const shareOf = (some: number, { requests }: Counts) => (requests > 0 ? percent(some / requests) : "–");
const took = (ms: number, { requests }: Counts) => (requests > 0 ? latency(ms / 1000) : "–");

function Total({ body }: { body: Counted }) {
  const { total } = body;
  return (
    <section class="panel wide" aria-label="All together">
      <dl class="stats">
        <Stat label="Requests" value={count(total.requests)} note={bytes(total.bytes)} />
        <Stat label="Errors" value={shareOf(total.failed, total)} note="answered 500 or above" />
        <Stat label="Denied" value={shareOf(total.rate_limited, total)} note="answered 429" />
        <Stat label="p50" value={took(total.p50_ms, total)} note="servers included" />
        <Stat label="p99" value={took(total.p99_ms, total)} note="servers included" />
      </dl>
      {!body.complete && (
        <p class="note" role="note">
          <Badge kind="warn">not complete</Badge> The database does not answer: this is what the node that was
          asked has counted and not stored.
        </p>
      )}
    </section>
  );
}

/** Requests of each step, those without any among them. */
function OverTime({
  counted: { from, to, rows },
  step,
  each,
}: {
  counted: Counted;
  step: string;
  each: number;
}) {
  const drawn = useMemo(() => {
    const known = new Map(rows.map((row) => [Date.parse(row.begin ?? "") / 1000, row]));
    const first = Math.floor(Date.parse(from) / 1000 / each) * each;
    const at: number[] = [];
    for (let time = first; time <= Date.parse(to) / 1000; time += each) at.push(time);
    // A step's line goes on to the begin of the next one, the last one's to its end.
    const steps = [...at, at.at(-1) ?? first];
    at.push((at.at(-1) ?? first) + each);
    const of = (value: (row: Row) => number) => steps.map((time) => value(known.get(time) ?? NONE));
    const values = [
      of(({ requests }) => requests),
      of(({ rate_limited }) => rate_limited),
      of(({ failed }) => failed),
    ];
    return { at, values };
  }, [from, to, rows, each]);
  const [first = 0, end = first + each] = [drawn.at[0], drawn.at.at(-1)];
  return (
    <Panel title={`Requests per ${step}`} wide>
      <Chart
        summary={`Requests per ${step}: ${drawn.values[0]?.map(count).slice(-6, -1).join(", ")} in the last five.`}
        at={drawn.at}
        values={drawn.values}
        lines={[
          { label: "all", color: "--accent", fill: true, stepped: true },
          { label: "denied", color: "--warn", dash: [6, 3], stepped: true },
          { label: "errors", color: "--bad", dash: [2, 2], stepped: true },
        ]}
        format={count}
        counts
        span={[first, end]}
      />
    </Panel>
  );
}

const NONE: Row = {
  requests: 0,
  rate_limited: 0,
  client_errors: 0,
  failed: 0,
  bytes: 0,
  p50_ms: 0,
  p95_ms: 0,
  p99_ms: 0,
};

/** What a label's value is, with the way to it. */
function Of({ name, value }: { name: string; value: string }) {
  if (value === "") return <span class="hint">none</span>;
  // What is counted together has no page.
  if (value === "others") return <span class="hint">others, counted together</span>;
  if (name === "route") return <a href={href(["gateway"], { route: value })}>{value}</a>;
  if (name === "upstream") return <a href={href(["gateway"], { upstream: value })}>{value}</a>;
  if (name === "key") return <a href={href(["keys"], { id: value })}>{value}</a>;
  return <>{value}</>;
}

function Apart(props: { counted: Counted; names: string[]; csv: string }) {
  const {
    counted: { rows, series_left_out },
    names,
  } = props;
  const sorted = [...rows].sort((a, b) => b.requests - a.requests);
  const left = sorted.length - MOST_ROWS;
  return (
    <Panel
      title={`By ${BY[names.join()]}`}
      wide
      actions={
        <a href={addressOf(props.csv)} download="analytics.csv">
          As CSV
        </a>
      }
    >
      {sorted.length === 0 ? (
        <Empty>The gateway has answered no such request in that time.</Empty>
      ) : (
        <Scroll label={`By ${BY[names.join()]}`}>
          <table>
            <thead>
              <tr>
                {names.map((name) => (
                  <th scope="col" key={name}>
                    {name === "key" ? "API key" : `${name.slice(0, 1).toUpperCase()}${name.slice(1)}`}
                  </th>
                ))}
                {["Requests", "Errors", "Denied", "Client errors", "Bytes", "p50", "p95", "p99"].map(
                  (head) => (
                    <th scope="col" class="number" key={head}>
                      {head}
                    </th>
                  ),
                )}
              </tr>
            </thead>
            <tbody>
              {sorted.slice(0, MOST_ROWS).map((row) => {
                const [first = "", ...others] = names;
                return (
                  <tr key={names.map((name) => row[name]).join(" ")}>
                    <th scope="row">
                      <Of name={first} value={String(row[first] ?? "")} />
                    </th>
                    {others.map((name) => (
                      <td key={name}>
                        <Of name={name} value={String(row[name] ?? "")} />
                      </td>
                    ))}
                    <td class="number">{count(row.requests)}</td>
                    <td class="number">{shareOf(row.failed, row)}</td>
                    <td class="number">{shareOf(row.rate_limited, row)}</td>
                    <td class="number">{shareOf(row.client_errors, row)}</td>
                    <td class="number">{bytes(row.bytes)}</td>
                    <td class="number">{took(row.p50_ms, row)}</td>
                    <td class="number">{took(row.p95_ms, row)}</td>
                    <td class="number">{took(row.p99_ms, row)}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </Scroll>
      )}
      {left > 0 && <p class="hint">{counted(left, "row")} with fewer requests are in the CSV.</p>}
      {series_left_out > 0 && (
        <p class="hint">{counted(series_left_out, "row")} more are left out, also of the CSV.</p>
      )}
    </Panel>
  );
}
