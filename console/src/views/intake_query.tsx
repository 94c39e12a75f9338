// What the intake has of one metric, as a plot: did it arrive, and what does it look like?

import { useMemo, useState } from "preact/hooks";
import { bytes, count, counted } from "../format";
import { useAsked } from "../parts/asked";
import { Badge, Curl, Empty, Field, Panel, Problem } from "../parts/basics";
import { Chart } from "../parts/chart";
import { go } from "../router";

interface Answer {
  name: string;
  agg: string;
  start: number;
  end: number;
  step: number;
  points: [number, number][];
  lines: number;
  bytes_read: number;
  complete: boolean;
}

const SPANS: [string, string][] = [
  ["5m", "5 minutes"],
  ["1h", "1 hour"],
  ["6h", "6 hours"],
  ["1d", "1 day"],
  ["7d", "7 days"],
];
const AGGREGATES = ["avg", "min", "max", "sum", "count", "rate", "p50", "p90", "p95", "p99", "p99.9"];

/** How often the newest points are asked for, in milliseconds. */
const PERIOD = 10_000;

const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const shown = (value: number) => NUMBER.format(value);

/** Every step of the time, so that one without lines is a gap. */
function drawn({ points, start, end, step }: Answer): { at: number[]; values: (number | null)[][] } {
  const known = new Map(points.map(([at, value]) => [Math.floor((at - start) / step), value]));
  const steps = Math.ceil((end - start) / step);
  const all = Array.from({ length: steps }, (_, place) => place);
  return {
    at: all.map((place) => (start + place * step) / 1000),
    values: [all.map((place) => known.get(place) ?? null)],
  };
}

function addressOf(value: (name: string, otherwise: string) => string): string {
  const asked = new URLSearchParams({
    name: value("name", ""),
    last: value("last", "5m"),
    agg: value("agg", "avg"),
  });
  for (const tag of value("tags", "").split(" ").filter(Boolean)) asked.append("tags", tag);
  return `/v1/intake/query?${asked}`;
}

export function IntakeQuery(props: { query: URLSearchParams }) {
  const stated = (name: string, otherwise: string) => props.query.get(name) ?? otherwise;
  const [texts, setTexts] = useState<Record<string, string>>({
    name: stated("name", ""),
    last: stated("last", "5m"),
    agg: stated("agg", "avg"),
    tags: stated("tags", ""),
  });
  const address = stated("name", "") === "" ? undefined : addressOf(stated);
  const { body, error } = useAsked<Answer>(address, PERIOD);
  const lines = useMemo(() => (body ? drawn(body) : undefined), [body]);
  const input = (field: string) => ({
    value: texts[field] ?? "",
    onInput: (event: { currentTarget: { value: string } }) =>
      setTexts({ ...texts, [field]: event.currentTarget.value }),
  });
  const values = body?.points.map(([, value]) => value) ?? [];
  return (
    <Panel title="What came of a metric" wide>
      <form
        class="search"
        onSubmit={(event) => {
          event.preventDefault();
          go(
            ["intake"],
            Object.fromEntries(Object.entries(texts).map(([field, text]) => [field, text.trim()])),
          );
        }}
      >
        <Field label="Metric" hint="its name, exactly">
          {(attributes) => <input {...attributes} autocomplete="off" spellcheck={false} {...input("name")} />}
        </Field>
        <Field label="Tags" hint="name=value, with blanks between">
          {(attributes) => <input {...attributes} autocomplete="off" spellcheck={false} {...input("tags")} />}
        </Field>
        <Field label="The last">
          {(attributes) => (
            <select {...attributes} {...input("last")}>
              {SPANS.map(([value, label]) => (
                <option key={value} value={value}>
                  {label}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field label="As">
          {(attributes) => (
            <select {...attributes} {...input("agg")}>
              {AGGREGATES.map((value) => (
                <option key={value}>{value}</option>
              ))}
            </select>
          )}
        </Field>
        <button class="primary" type="submit">
          Ask
        </button>
      </form>
      {address === undefined && (
        <Empty>Name a metric, and the intake says what has come of it, drawn over time.</Empty>
      )}
      {error !== undefined && <Problem what="It is not answered." error={error} />}
      {body?.points.length === 0 && (
        <Empty>
          No line of {body.name} has come in that time. See that the name is exact, and try a longer time.
        </Empty>
      )}
      {body && lines && body.points.length > 0 && (
        <>
          <Chart
            summary={`${body.agg} of ${body.name}: ${counted(body.points.length, "point")}, from ${shown(Math.min(...values))} to ${shown(Math.max(...values))}; the last is ${shown(values.at(-1) ?? 0)}.`}
            at={lines.at}
            values={lines.values}
            lines={[{ label: `${body.agg} of ${body.name}`, color: "--accent", points: true }]}
            format={shown}
            span={[body.start / 1000, body.end / 1000]}
          />
          <p class="hint">
            {counted(body.points.length, "point")} of {count(body.step / 1000)} s;{" "}
            {counted(body.lines, "line")} ({bytes(body.bytes_read)}) read.{" "}
            {!body.complete && <Badge kind="warn">not complete: a bound was reached</Badge>}
          </p>
        </>
      )}
      <Curl method="GET" path={addressOf((name) => (texts[name] ?? "").trim())} />
    </Panel>
  );
}
