// The metrics intake: what comes, what came of one metric, what is refused and why, and how the log on the disk fares.

import { bytes, count, counted, percent, perSecond, speed, wait } from "../format";
import { useRates } from "../history";
import { earlier, quantile, type Reading, rate, readings, total, useReadings } from "../metrics";
import { useValue } from "../observable";
import { useAsked } from "../parts/asked";
import { Badge, Empty, Meter, Panel, Scroll, Stat, When } from "../parts/basics";
import { Chart } from "../parts/chart";
import { IntakeQuery } from "./intake_query";

const PROTOCOLS: Record<string, string> = {
  json: "JSON",
  remote_write: "Prometheus remote write",
  otlp_http: "OpenTelemetry, HTTP",
  otlp_grpc: "OpenTelemetry, gRPC",
  line_protocol: "Influx line protocol",
  statsd: "StatsD",
};

const taken = (reading: Reading) => total(reading, "tidegate_intake_metrics_total");
const DRAWN = [taken];

interface Oldest {
  oldest: { partition: number; offset: number; line: { timestamp?: string; name?: string } | null }[];
}

/** How often the oldest line is asked for, in milliseconds. */
const OLDEST_PERIOD = 30_000;

export function Intake(props: { query: URLSearchParams }) {
  useReadings();
  const all = useValue(readings);
  const now = all.at(-1);
  const drawn = useRates(all, 300, DRAWN);
  if (!now) return <Empty>Reading …</Empty>;
  if (!now.families.has("tidegate_intake_batches_total")) {
    return (
      <Empty>
        The intake is off in this process. <code>intake.listen</code> in the file says where it listens.
      </Empty>
    );
  }
  const before = earlier(all, 10);
  const flush = (share: number) =>
    before && quantile(before, now, ["tidegate_log_flush_seconds"], () => true, share);
  const queue = total(now, "tidegate_log_queue_bytes");
  const most = total(now, "tidegate_log_queue_max_bytes");
  const troubled = total(now, "tidegate_log_troubled") > 0;
  const refused = (now.families.get("tidegate_intake_refused_total") ?? []).filter(({ value }) => value > 0);
  const left = (now.families.get("tidegate_intake_left_out_total") ?? []).filter(({ value }) => value > 0);
  const kept = total(now, "tidegate_log_next_offset") - total(now, "tidegate_log_oldest_offset");
  return (
    <div class="grid">
      <section class="panel wide" aria-label="Now">
        <dl class="stats">
          <Stat
            label="Metrics per second"
            value={perSecond(before && rate(before, now, taken))}
            note="in the last 10 s"
          />
          <Stat
            label="Queue"
            value={percent(most > 0 ? queue / most : 0)}
            note={`${bytes(queue)} of ${bytes(most)}`}
          />
          <Stat label="Flush, p99" value={speed(flush(0.99))} note="until it is on the disk" />
          <Stat
            label="On the disk"
            value={bytes(total(now, "tidegate_log_disk_bytes"))}
            note={counted(kept, "line")}
          />
        </dl>
        {taken(now) === 0 && (
          <Empty>
            No metric has come since the process began. Prometheus sends by <code>remote_write</code>; the
            page of documentation is <code>docs/intake.md</code>.
          </Empty>
        )}
      </section>
      <Panel title="Metrics per second" wide>
        <Chart
          summary={`Metrics per second over the last five minutes; now ${perSecond(drawn.values[0]?.at(-1))}.`}
          at={drawn.at}
          values={drawn.values}
          lines={[{ label: "taken", color: "--accent", fill: true }]}
          format={perSecond}
        />
      </Panel>
      <IntakeQuery query={props.query} />
      <Panel title="By protocol">
        <Scroll label="By protocol">
          <table>
            <thead>
              <tr>
                <th scope="col">Protocol</th>
                <th scope="col" class="number">
                  Metrics /s
                </th>
                <th scope="col" class="number">
                  Metrics
                </th>
                <th scope="col" class="number">
                  Batches
                </th>
              </tr>
            </thead>
            <tbody>
              {Object.entries(PROTOCOLS).map(([protocol, label]) => {
                const of = (reading: Reading) =>
                  total(reading, "tidegate_intake_metrics_total", { protocol });
                return (
                  <tr key={protocol}>
                    <th scope="row">{label}</th>
                    <td class="number">{perSecond(before && rate(before, now, of))}</td>
                    <td class="number">{count(of(now))}</td>
                    <td class="number">{count(total(now, "tidegate_intake_batches_total", { protocol }))}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </Scroll>
      </Panel>
      <Panel
        title="The log"
        actions={
          <Badge kind={troubled ? "bad" : "good"}>{troubled ? "in trouble: writes fail" : "writes"}</Badge>
        }
      >
        <dl class="facts">
          <dt>Queue</dt>
          <dd>
            {bytes(queue)} of {bytes(most)} <Meter used={queue} limit={most} label="Queue of the intake" />
          </dd>
          <dt>Oldest line</dt>
          <dd>
            <OldestLine />
          </dd>
          <dt>Segments</dt>
          <dd>{count(total(now, "tidegate_log_segments"))}</dd>
          <dt>Failed writes</dt>
          <dd>{count(total(now, "tidegate_log_failed_writes_total"))}</dd>
          <dt>In quarantine</dt>
          <dd>
            {count(total(now, "tidegate_log_quarantined_files_total"))} files,{" "}
            {bytes(total(now, "tidegate_log_quarantined_bytes_total"))}
          </dd>
          <dt>Lost lines</dt>
          <dd>{count(total(now, "tidegate_log_lost_lines_total"))}</dd>
        </dl>
      </Panel>
      <Alerts now={now} />
      <Forwards now={now} before={before} />
      <Panel title="Refused, and left out">
        {refused.length + left.length === 0 ? (
          <Empty>Nothing was refused or left out since the process began.</Empty>
        ) : (
          <table>
            <thead>
              <tr>
                <th scope="col">Why</th>
                <th scope="col" class="number">
                  Count
                </th>
              </tr>
            </thead>
            <tbody>
              {[...refused, ...left].map(({ labels, value }) => (
                <tr key={labels.reason ?? labels.what}>
                  <th scope="row">
                    {labels.reason
                      ? `refused: ${labels.reason.replaceAll("_", " ")}`
                      : `left out: ${labels.what?.replaceAll("_", " ")}`}
                  </th>
                  <td class="number">{count(value)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Panel>
    </div>
  );
}

/** The alert rules, and how many series are beyond their thresholds. */
function Alerts({ now }: { now: Reading }) {
  const of = (alert: string | undefined, state: string) =>
    total(now, "tidegate_intake_alerts", { alert: alert ?? "", state });
  const series = now.families.get("tidegate_intake_alerts") ?? [];
  const names = [...new Set(series.map(({ labels }) => labels.alert))];
  if (names.length === 0) return null;
  const notices = (what: string) => total(now, "tidegate_intake_alert_notices_total", { what });
  const lost = notices("refused") + notices("dropped");
  return (
    <Panel title={counted(names.length, "alert")}>
      <Scroll label="Alerts">
        <table>
          <thead>
            <tr>
              <th scope="col">Rule</th>
              <th scope="col">State</th>
              <th scope="col" class="number">
                Fires for
              </th>
              <th scope="col" class="number">
                Pending
              </th>
            </tr>
          </thead>
          <tbody>
            {names.map((name) => {
              const [firing, pending] = [of(name, "firing"), of(name, "pending")];
              return (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  <td>
                    <Badge kind={firing > 0 ? "bad" : pending > 0 ? "warn" : "good"}>
                      {firing > 0 ? "fires" : pending > 0 ? "pending" : "quiet"}
                    </Badge>
                  </td>
                  <td class="number">{counted(firing, "series", "series")}</td>
                  <td class="number">{count(pending)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
      <p class="hint">
        Told since the process began: {counted(notices("delivered"), "notice")}
        {lost > 0 && `; ${count(lost)} were refused or had no room`}. Which series these are,{" "}
        <code>GET /v1/intake/alerts</code> of the intake says.
      </p>
    </Panel>
  );
}

/** Where lines go on to, and how far behind that is. */
function Forwards({ now, before }: { now: Reading; before: Reading | undefined }) {
  const series = now.families.get("tidegate_intake_forward_waiting_lines") ?? [];
  if (series.length === 0) return null;
  return (
    <Panel title={counted(series.length, "forward")}>
      <Scroll label="Forwards">
        <table>
          <thead>
            <tr>
              <th scope="col">Forward</th>
              <th scope="col" class="number">
                Lines /s
              </th>
              <th scope="col" class="number">
                Waiting
              </th>
              <th scope="col" class="number">
                Behind
              </th>
              <th scope="col" class="number">
                Skipped, missing
              </th>
              <th scope="col" class="number">
                Failed tries
              </th>
            </tr>
          </thead>
          <tbody>
            {series.map(({ labels: { forward = "" }, value }) => {
              const of = (what: string) => (reading: Reading) =>
                total(reading, "tidegate_intake_forward_total", { forward, what });
              const age = total(now, "tidegate_intake_forward_oldest_age_seconds", { forward });
              return (
                <tr key={forward}>
                  <th scope="row">{forward}</th>
                  <td class="number">{perSecond(before && rate(before, now, of("delivered")))}</td>
                  <td class="number">{count(value)}</td>
                  <td class="number">{age > 0 ? wait(1000 * age) : "no"}</td>
                  <td class="number">{count(of("skipped")(now) + of("missing")(now))}</td>
                  <td class="number">{count(of("failed_tries")(now))}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  );
}

function OldestLine() {
  const { body, error } = useAsked<Oldest>("/v1/intake/oldest", OLDEST_PERIOD);
  if (error !== undefined && !body) return <>not known</>;
  const times = (body?.oldest ?? [])
    .map(({ line }) => Date.parse(line?.timestamp ?? ""))
    .filter((at) => !Number.isNaN(at));
  if (times.length === 0) return <>{body ? "none" : "…"}</>;
  const oldest = Math.min(...times);
  return (
    <>
      <When ms={oldest} /> (<When ms={oldest} short />)
    </>
  );
}
