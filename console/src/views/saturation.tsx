// Reports of the tester, dropped onto the page: where a service stops scaling, and why. Nothing is sent anywhere.

import { useState } from "preact/hooks";
import { count, latency, percent, perSecond } from "../format";
import { Observable, useValue } from "../observable";
import { Badge, Empty, Panel, Problem, Scroll, Stat } from "../parts/basics";
import { Chart } from "../parts/chart";
import { MAX_BYTES, type Report, read } from "../report";

/** Most reports that are shown side by side. */
const MOST = 2;

/** They stay while one looks at other views. */
const opened = new Observable<readonly Report[]>([]);

export function Saturation() {
  const reports = useValue(opened);
  const [error, setError] = useState<unknown>();
  const [isOver, setOver] = useState(false);
  const open = async (files: FileList | null | undefined) => {
    setError(undefined);
    try {
      for (const file of [...(files ?? [])].slice(0, MOST)) {
        if (file.size > MAX_BYTES) throw new Error(`${file.name} is larger than any report.`);
        const report = read(file.name, await file.text());
        opened.set([...opened.value, report].slice(-MOST));
      }
    } catch (error) {
      setError(error);
    }
  };
  return (
    <>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the field in it does the same by keyboard. */}
      <div
        class={`drop ${isOver ? "over" : ""}`}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => {
          event.preventDefault();
          setOver(false);
          void open(event.dataTransfer?.files);
        }}
      >
        <label for="reports">Drop a report here, or choose one or two:</label>
        <input
          id="reports"
          type="file"
          multiple
          accept=".json,application/json"
          onChange={(event) => {
            void open(event.currentTarget.files);
            // The same file can be chosen again.
            event.currentTarget.value = "";
          }}
        />
        <p class="hint">
          <code>tidegate saturate URL --json report.json</code> writes one. It is read in this page and sent
          nowhere.
        </p>
      </div>
      {error !== undefined && <Problem what="The report is not shown." error={error} />}
      {reports.length === 0 && error === undefined && <Empty>No report is open.</Empty>}
      {reports.length > 0 && (
        <p class="actions">
          <button type="button" onClick={() => opened.set([])}>
            Close {reports.length === 1 ? "it" : "both"}
          </button>
        </p>
      )}
      <div class="grid">
        {reports.map((report, place) => (
          <Shown key={`${place} ${report.file}`} report={report} />
        ))}
      </div>
    </>
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
        <Stat label="Cause" value={report.cause?.name ?? "–"} note={report.started} />
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
            unit=""
          />
        </>
      )}
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
