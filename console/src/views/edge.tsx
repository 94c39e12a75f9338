// The TCP edge: what came of connections over time, its backends, where the last connections went, and where one would go.

import { bytes, count, counted, perSecond, timeOfDay } from "../format";
import { useRates } from "../history";
import { earlier, type Reading, rate, readings, type Series, total, useReadings } from "../metrics";
import { useValue } from "../observable";
import { useAsked } from "../parts/asked";
import { Badge, Curl, chosen, Empty, Panel, Problem, Scroll, When } from "../parts/basics";
import { Chart } from "../parts/chart";
import { ExplainForm } from "../parts/explain_form";
import { href } from "../router";

interface Placement {
  at_unix_ms: number;
  client: string;
  country?: string;
  region?: string;
  known_by?: string;
  backend?: string;
  tier?: string;
  score?: number;
  affine?: boolean;
  refused?: string;
}

/** Most connections that are listed. */
const LISTED = 50;

export function Edge(props: { query: URLSearchParams }) {
  useReadings();
  const all = useValue(readings);
  const now = all.at(-1);
  const before = earlier(all, 10);
  const { body, error } = useAsked<{ decisions: Placement[] }>("/v1/edge/decisions", 4_000);
  if (!now) return <Empty>Reading …</Empty>;
  const backends = now.families.get("tidegate_edge_backend_up") ?? [];
  const listeners = now.families.get("tidegate_edge_open") ?? [];
  if (backends.length === 0 && listeners.length === 0) {
    return (
      <Empty>
        There is no edge in this process. Declare <code>edge.listener</code> and <code>[[edge.backend]]</code>{" "}
        in the file, or try <code>tidegate edge</code>, whose backends register themselves.
      </Empty>
    );
  }
  return (
    <div class="grid">
      <OverTime all={all} />
      <Panel title={counted(backends.length, "backend")} wide>
        {backends.length === 0 && (
          <Empty>No backend is declared or registered, so every connection is refused.</Empty>
        )}
        {backends.length > 0 && (
          <Scroll label="Backends">
            <table>
              <thead>
                <tr>
                  <th scope="col">Backend</th>
                  <th scope="col">Region</th>
                  <th scope="col">State</th>
                  <th scope="col" class="number">
                    Connections
                  </th>
                  <th scope="col" class="number">
                    Connects /s
                  </th>
                  <th scope="col" class="number">
                    Failures /s
                  </th>
                  <th scope="col" class="number">
                    Bytes
                  </th>
                </tr>
              </thead>
              <tbody>
                {backends.map(({ labels, value }) => {
                  const of =
                    (family: string, more: Record<string, string> = {}) =>
                    (reading: Reading) =>
                      total(reading, family, { ...labels, ...more });
                  const speed = (result: string) =>
                    before && rate(before, now, of("tidegate_edge_backend_connects_total", { result }));
                  const ejected = of("tidegate_edge_backend_ejected")(now) === 1;
                  return (
                    <tr
                      key={`${labels.app} ${labels.backend}`}
                      {...chosen(
                        labels.backend === props.query.get("backend") &&
                          (labels.app ?? "") === (props.query.get("app") ?? ""),
                      )}
                    >
                      <th scope="row">
                        <a href={href(["edge"], { backend: labels.backend ?? "", app: labels.app ?? "" })}>
                          {labels.backend}
                        </a>
                      </th>
                      <td>{labels.region}</td>
                      <td>
                        <Badge kind={value !== 1 ? "bad" : ejected ? "warn" : "good"}>
                          {value !== 1
                            ? "down: its checks fail"
                            : ejected
                              ? "left out: connections failed"
                              : "up"}
                        </Badge>
                      </td>
                      <td class="number">{count(of("tidegate_edge_backend_open")(now))}</td>
                      <td class="number">{perSecond(speed("success"))}</td>
                      <td class="number">{perSecond(speed("failure"))}</td>
                      <td class="number">{bytes(of("tidegate_edge_backend_bytes_total")(now))}</td>
                    </tr>
                  );
                })}
              </tbody>
            </table>
          </Scroll>
        )}
      </Panel>
      {backends.length > 0 && <Regions backends={backends} now={now} before={before} />}
      <ExplainForm
        title="Where would a connection go?"
        view="edge"
        address="/v1/explain/edge"
        query={props.query}
        questions={[
          { name: "client_ip", label: "Client's address" },
          { name: "server_name", label: "Server name", hint: "that TLS would ask for" },
        ]}
        empty="State a client's address, and the edge says which backend it would get, with every backend's score. Nothing is connected."
      />
      <Panel title="The last connections" wide>
        {error !== undefined && !body && <Problem what="They cannot be read." error={error} />}
        {body?.decisions.length === 0 && <Empty>No connection has come since the process began.</Empty>}
        {body && body.decisions.length > 0 && (
          <Scroll label="The last connections">
            <table>
              <thead>
                <tr>
                  <th scope="col">When</th>
                  <th scope="col">Client</th>
                  <th scope="col">From</th>
                  <th scope="col">To</th>
                  <th scope="col">Why</th>
                </tr>
              </thead>
              <tbody>
                {body.decisions.slice(0, LISTED).map((it, place) => (
                  <tr key={place}>
                    <td>
                      <When ms={it.at_unix_ms} short />
                    </td>
                    <td>{it.client}</td>
                    <td>
                      {[it.country, it.region].filter(Boolean).join(", ") || "unknown"}
                      {it.known_by && <span class="hint"> by {it.known_by}</span>}
                    </td>
                    <td>{it.backend ?? <Badge kind="bad">nowhere</Badge>}</td>
                    <td>
                      {it.refused ??
                        (it.affine
                          ? "it was there before"
                          : `tier ${it.tier ?? "–"}, score ${it.score ?? "–"}`)}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Scroll>
        )}
      </Panel>
      <Curl method="GET" path="/v1/edge/decisions" />
    </div>
  );
}

const sum =
  (family: string, wanted: Record<string, string> = {}) =>
  (reading: Reading) =>
    total(reading, family, wanted);

/** What is drawn of connections, and then of bytes. */
const SUMS = [
  sum("tidegate_edge_placed_total"),
  sum("tidegate_edge_refused_total"),
  sum("tidegate_edge_failed_attempts_total"),
  sum("tidegate_edge_bytes_total", { direction: "to_backend" }),
  sum("tidegate_edge_bytes_total", { direction: "to_client" }),
];
/** How many of them are of connections. */
const CONNECTIONS = 3;

function OverTime({ all }: { all: readonly Reading[] }) {
  const { at, values } = useRates(all, 300, SUMS);
  const [connections, passed] = [values.slice(0, CONNECTIONS), values.slice(CONNECTIONS)];
  const from = timeOfDay(at[0] ?? 0);
  const [placed, refused, failed] = connections.map((rates) => perSecond(rates.at(-1)));
  const [toBackends, toClients] = passed.map((rates) => bytes(rates.at(-1)));
  return (
    <>
      <Panel title="Connections per second">
        <Chart
          summary={`Connections per second over the last five minutes, from ${from} on; now ${placed} got a backend, ${refused} got none, and ${failed} attempts at backends failed.`}
          at={at}
          values={connections}
          lines={[
            { label: "got a backend", color: "--accent", fill: true },
            { label: "got none", color: "--bad", dash: [5, 3] },
            { label: "failed attempts", color: "--warn", dash: [2, 3] },
          ]}
          format={perSecond}
        />
      </Panel>
      <Panel title="Bytes per second">
        <Chart
          summary={`Bytes per second over the last five minutes, from ${from} on; now ${toBackends} to backends and ${toClients} to clients.`}
          at={at}
          values={passed}
          lines={[
            { label: "to backends", color: "--accent", fill: true },
            { label: "to clients", color: "--warn", dash: [5, 3] },
          ]}
          format={bytes}
          counts
        />
      </Panel>
    </>
  );
}

/** Each region: whether it can take connections, and how many it has. */
function Regions(props: { backends: readonly Series[]; now: Reading; before: Reading | undefined }) {
  const { backends, now, before } = props;
  const names = [...new Set(backends.map(({ labels }) => labels.region ?? ""))].sort();
  return (
    <Panel title={counted(names.length, "region")} wide>
      <Scroll label="Regions">
        <table>
          <thead>
            <tr>
              <th scope="col">Region</th>
              <th scope="col">Backends</th>
              <th scope="col" class="number">
                Connections
              </th>
              <th scope="col" class="number">
                Connects /s
              </th>
              <th scope="col" class="number">
                Bytes
              </th>
            </tr>
          </thead>
          <tbody>
            {names.map((name) => {
              const here = backends.filter(({ labels }) => (labels.region ?? "") === name);
              const of =
                (family: string, more: Record<string, string> = {}) =>
                (reading: Reading) =>
                  here.reduce((sum, { labels }) => sum + total(reading, family, { ...labels, ...more }), 0);
              const isEjected = ({ labels }: Series) =>
                total(now, "tidegate_edge_backend_ejected", labels) === 1;
              const serving = here.filter((it) => it.value === 1 && !isEjected(it)).length;
              const connects = of("tidegate_edge_backend_connects_total", { result: "success" });
              return (
                <tr key={name}>
                  <th scope="row">{name || "none stated"}</th>
                  <td>
                    <Badge kind={serving === 0 ? "bad" : serving < here.length ? "warn" : "good"}>
                      {count(serving)} of {count(here.length)} serve
                    </Badge>
                  </td>
                  <td class="number">{count(of("tidegate_edge_backend_open")(now))}</td>
                  <td class="number">{perSecond(before && rate(before, now, connects))}</td>
                  <td class="number">{bytes(of("tidegate_edge_backend_bytes_total")(now))}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  );
}
