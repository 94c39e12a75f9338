// Two reports of the tester beside one another: what is better or worse in the second.

import { count, latency, percent, perSecond } from "../format";
import type { Level, Report } from "../report";
import { Panel, Scroll } from "./basics";

interface Row {
  what: string;
  one: string;
  other: string;
  difference: string;
}

const SIGNED = new Intl.NumberFormat("en", { maximumSignificantDigits: 2, signDisplay: "exceptZero" });

/** `+12 %` of the first. */
function change(one: number | null | undefined, other: number | null | undefined): string {
  if (one === null || one === undefined || other === null || other === undefined || one === 0) return "–";
  return `${SIGNED.format((100 * (other - one)) / one)} %`;
}

/** Of two measured capacities; where their intervals overlap, nothing is said to differ. */
function ofCapacity(one: Report["capacity"], other: Report["capacity"]): string {
  if (!one || !other) return "–";
  if (one.low <= other.high && other.low <= one.high) return "none: their intervals overlap";
  return change(one.throughput, other.throughput);
}

function capacity(of: Report["capacity"]): string {
  return of ? `${perSecond(of.throughput)} /s (${perSecond(of.low)} to ${perSecond(of.high)})` : "–";
}

const micros = (value: number | null) => latency(value === null ? null : value / 1e6);

function ofLevel(one: Level, other: Level): Row[] {
  const at = `at load ${count(one.load)}`;
  return [
    {
      what: `Good /s ${at}`,
      one: perSecond(one.throughput),
      other: perSecond(other.throughput),
      difference: change(one.throughput, other.throughput),
    },
    {
      what: `p99 ${at}`,
      one: micros(one.p99_us),
      other: micros(other.p99_us),
      difference: change(one.p99_us, other.p99_us),
    },
    ...(one.error_ratio === other.error_ratio
      ? []
      : [
          {
            what: `Errors ${at}`,
            one: percent(one.error_ratio),
            other: percent(other.error_ratio),
            difference: change(one.error_ratio, other.error_ratio),
          },
        ]),
  ];
}

function rows(one: Report, other: Report): Row[] {
  const knee = (of: Report) => (of.knee === undefined ? "–" : count(of.knee));
  const cause = (of: Report) => of.cause?.name ?? "–";
  const both = one.levels.flatMap((level) => {
    const same = other.levels.find(({ load }) => load === level.load);
    return same ? [ofLevel(level, same)] : [];
  });
  return [
    {
      what: "Capacity",
      one: capacity(one.capacity),
      other: capacity(other.capacity),
      difference: ofCapacity(one.capacity, other.capacity),
    },
    { what: "Knee", one: knee(one), other: knee(other), difference: change(one.knee, other.knee) },
    {
      what: "Cause",
      one: cause(one),
      other: cause(other),
      difference: cause(one) === cause(other) ? "none" : "another",
    },
    ...both.flat(),
  ];
}

export function Compared(props: { one: Report; other: Report }) {
  const { one, other } = props;
  return (
    <Panel title="Compared" wide>
      {one.target !== other.target && (
        <p class="note" role="note">
          Their targets differ: {one.target} and {other.target}.
        </p>
      )}
      <Scroll label="Compared">
        <table>
          <thead>
            <tr>
              <th scope="col">What</th>
              <th scope="col">{one.file}</th>
              <th scope="col">{other.file}</th>
              <th scope="col">Difference</th>
            </tr>
          </thead>
          <tbody>
            {rows(one, other).map((row) => (
              <tr key={row.what}>
                <th scope="row">{row.what}</th>
                <td>{row.one}</td>
                <td>{row.other}</td>
                <td>{row.difference}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      <p class="hint">
        Only loads that both have. Levels have no interval of their own; whether two runs differ at all is
        what <code>tidegate compare</code> says.
      </p>
    </Panel>
  );
}
