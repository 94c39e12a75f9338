// Where a service stops scaling, and why: runs of the tester, and reports, of the server or dropped onto the page.

import { useEffect, useRef, useState } from "preact/hooks";
import { ask, path } from "../api";
import { count, latency, percent, perSecond } from "../format";
import { Observable, useValue } from "../observable";
import { Badge, Empty, Panel, Problem, Scroll, Stat, WhenWritten } from "../parts/basics";
import { Accept, Accepted } from "../parts/capacity";
import { Chart } from "../parts/chart";
import { Compared } from "../parts/compared";
import { SaturationRun, useSaturation } from "../parts/saturation_run";
import { check, MAX_BYTES, type Report, read } from "../report";
import { go } from "../router";

/** Most reports that are shown side by side. */
const MOST = 2;

/** Of this server, by name, and what was dropped onto the page. They stay while one looks at other views. */
const ofServer = new Observable<ReadonlyMap<string, Report>>(new Map());
const dropped = new Observable<readonly Report[]>([]);

export function Saturation(props: { query: URLSearchParams }) {
  const asked = useSaturation();
  const names = [props.query.get("report") ?? "", props.query.get("with") ?? ""].filter(Boolean);
  const known = useValue(ofServer);
  const files = useValue(dropped);
  const [error, setError] = useState<unknown>();
  const reports = [...names.flatMap((name) => known.get(name) ?? []), ...files].slice(0, MOST);
  const open = async (chosen: FileList | null | undefined) => {
    setError(undefined);
    try {
      for (const file of [...(chosen ?? [])].slice(0, MOST)) {
        if (file.size > MAX_BYTES) throw new Error(`${file.name} is larger than any report.`);
        dropped.set([...dropped.value, read(file.name, await file.text())].slice(-MOST));
      }
    } catch (error) {
      setError(error);
    }
    // The newest are shown, and the address names what is left of the server's.
    const [report = ""] = names.slice(0, Math.max(MOST - dropped.value.length, 0));
    if (dropped.value.length + names.length > MOST) go(["saturation"], { report });
  };
  useEffect(() => {
    const stop = new AbortController();
    dropped.set(dropped.value.slice(Math.max(dropped.value.length + names.length - MOST, 0)));
    const get = async (name: string) => {
      const { body } = await ask("GET", path("/v1/saturation/reports/{}", name), { signal: stop.signal });
      const kept = [...ofServer.value].filter(([other]) => names.includes(other));
      ofServer.set(new Map([...kept, [name, check(name, body)]]));
    };
    const missing = names.filter((name) => !ofServer.value.has(name));
    Promise.all(missing.map(get)).then(
      () => setError(undefined),
      (error) => !stop.signal.aborted && setError(error),
    );
    return () => stop.abort();
  }, [names.join("\n")]);
  return (
    <>
      <Accepted />
      <SaturationRun asked={asked} opened={names} />
      <Drop open={open} />
      {error !== undefined && <Problem what="The report is not shown." error={error} />}
      {reports.length === 0 && error === undefined && <Empty>No report is open.</Empty>}
      {reports.length > 0 && (
        <p class="actions">
          <button
            type="button"
            onClick={() => {
              dropped.set([]);
              go(["saturation"]);
            }}
          >
            Close {reports.length === 1 ? "it" : "both"}
          </button>
        </p>
      )}
      <div class="grid">
        {reports[0] && reports[1] && <Compared one={reports[0]} other={reports[1]} />}
        {reports.map((report, place) => (
          <Shown key={`${place} ${report.file}`} report={report} />
        ))}
      </div>
    </>
  );
}

/** Takes files that are dropped anywhere onto the page, or chosen. */
function Drop(props: { open: (files: FileList | null | undefined) => Promise<void> }) {
  const [isOver, setOver] = useState(false);
  const open = useRef(props.open);
  open.current = props.open;
  useEffect(() => {
    const over = (event: DragEvent) => {
      event.preventDefault();
      setOver(true);
    };
    const leave = () => setOver(false);
    const drop = (event: DragEvent) => {
      event.preventDefault();
      setOver(false);
      void open.current(event.dataTransfer?.files);
    };
    addEventListener("dragover", over);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", over);
      removeEventListener("dragleave", leave);
      removeEventListener("drop", drop);
    };
  }, []);
  return (
    <div class={`drop ${isOver ? "over" : ""}`}>
      <label for="reports">Drop a report onto the page, or choose one or two:</label>
      <input
        id="reports"
        type="file"
        multiple
        accept=".json,application/json"
        onChange={(event) => {
          void props.open(event.currentTarget.files);
          // The same file can be chosen again.
          event.currentTarget.value = "";
        }}
      />
      <p class="hint">
        <code>tidegate saturate URL --json report.json</code> writes one. It is read in this page and sent
        nowhere.
      </p>
    </div>
  );
}

const micros = (value: number | null) => latency(value === null ? null : value / 1e6);

function Shown({ report }: { report: Report }) {
  const { capacity, levels } = report;
  const at = levels.map(({ load }) => load);
  return (
    <Panel title={report.target || report.file}>
      <p>{report.sentence}</p>
      {report.advice && <p class="hint">{report.advice}</p>}
      <dl class="stats">
        <Stat
          label="Capacity"
          value={capacity ? `${perSecond(capacity.throughput)} /s` : "–"}
          note={
            capacity
              ? `${perSecond(capacity.low)} to ${perSecond(capacity.high)}${capacity.bound === "at-least" ? ", at least" : ""}`
              : "not found"
          }
        />
        <Stat
          label="Knee"
          value={report.knee === undefined ? "–" : count(report.knee)}
          note="requests in flight"
        />
        <Stat label="Cause" value={report.cause?.name ?? "–"} note={<WhenWritten text={report.started} />} />
      </dl>
      {report.cause && (
        <details>
          <summary>{report.cause.summary || "Why"}</summary>
          <ul>
            {report.cause.evidence.map((evidence) => (
              <li key={evidence}>{evidence}</li>
            ))}
          </ul>
        </details>
      )}
      {levels.length > 1 && (
        <>
          <Chart
            summary={`Good replies per second by load, from ${at[0]} to ${at.at(-1)}.`}
            at={at}
            values={[levels.map(({ throughput }) => throughput)]}
            lines={[{ label: "good replies per second, by load", color: "--accent", fill: true }]}
            format={perSecond}
            isTime={false}
            isWhole
            unit=""
          />
          <Chart
            summary="Latency by load."
            at={at}
            values={[levels.map(({ p50_us }) => p50_us), levels.map(({ p99_us }) => p99_us)]}
            lines={[
              { label: "p50", color: "--accent" },
              { label: "p99", color: "--warn", dash: [5, 3] },
            ]}
            format={micros}
            isTime={false}
            isWhole
            unit=""
          />
        </>
      )}
      {report.capacity && <Accept report={report} />}
      <Scroll label={`Levels of ${report.file}`}>
        <table>
          <thead>
            <tr>
              <th scope="col" class="number">
                Load
              </th>
              <th scope="col" class="number">
                Good /s
              </th>
              <th scope="col" class="number">
                p50
              </th>
              <th scope="col" class="number">
                p99
              </th>
              <th scope="col" class="number">
                Errors
              </th>
              <th scope="col" class="number">
                Denied
              </th>
              <th scope="col">Zone</th>
              <th scope="col">Cause</th>
            </tr>
          </thead>
          <tbody>
            {levels.map((level) => (
              <tr key={level.load}>
                <th scope="row" class="number">
                  {count(level.load)}
                </th>
                <td class="number">{perSecond(level.throughput)}</td>
                <td class="number">{micros(level.p50_us)}</td>
                <td class="number">{micros(level.p99_us)}</td>
                <td class="number">{percent(level.error_ratio)}</td>
                <td class="number">{percent(level.denied_ratio)}</td>
                <td>
                  <Badge
                    kind={level.zone === "optimal" ? "good" : level.zone === "stressed" ? "warn" : "bad"}
                  >
                    {level.zone}
                  </Badge>
                </td>
                <td>{level.cause}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </Panel>
  );
}
