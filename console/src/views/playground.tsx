// Algorithms on the same requests, side by side. What each says is asked of the server, which runs the very functions
// that decide; nothing is counted there. A request holds its permit of the concurrency limit until its lease ends.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask, RequestError } from "../api";
import { connection } from "../events";
import { count, percent, wait } from "../format";
import { useValue } from "../observable";
import { Badge, Curl, Empty, Field, Panel, Problem } from "../parts/basics";
import { Chart } from "../parts/chart";
import { NumberInput } from "../parts/numbers";
import { ALGORITHMS, type Document, numbersOf } from "../policy";
import { choose } from "../router";

interface Asked {
  at_ms: number;
  cost?: number;
}

interface Verdict {
  allowed: boolean;
  remaining: number;
  retry_after_ms?: number;
  delay_ms?: number;
}

interface Curve {
  limit: number;
  points: { at_ms: number; remaining: number }[];
  verdicts: Verdict[];
}

/** What the server takes at most. */
const MOST = 2_000;
const POINTS = 240;
/** How many windows are drawn. */
const WINDOWS = 3;

interface Numbers {
  limit: number;
  /** In milliseconds. */
  window: number;
}

/** When requests come, in milliseconds. */
const PATTERNS: Record<string, { label: string; runs: (numbers: Numbers) => Run[] }> = {
  edge: {
    label: "at the edge of two windows",
    runs: ({ limit, window }) => [
      { number: limit, from: 0.93 * window, to: 0.99 * window },
      { number: limit, from: 1.01 * window, to: 1.07 * window },
    ],
  },
  steady: {
    label: "steadily, at one and a half times the limit",
    runs: ({ limit, window }) => [{ number: 1.5 * WINDOWS * limit, from: 0, to: WINDOWS * window }],
  },
  burst: {
    label: "in two bursts of twice the limit",
    runs: ({ limit, window }) => [
      { number: 2 * limit, from: 0.2 * window, to: 0.22 * window },
      { number: 2 * limit, from: 1.5 * window, to: 1.52 * window },
    ],
  },
  cron: {
    label: "all at each full window, as from cron",
    runs: ({ limit, window }) =>
      Array.from({ length: WINDOWS }, (_, n) => ({
        number: 1.2 * limit,
        from: n * window,
        to: (n + 0.02) * window,
      })),
  },
  hand: { label: "when I click", runs: () => [] },
};

/** So many requests, evenly over a time in milliseconds. */
interface Run {
  number: number;
  from: number;
  to: number;
}

/** When the requests of a pattern come, as many as the server takes, and how many the whole pattern has. */
function timesOf(pattern: string, numbers: Numbers): { times: number[]; whole: number } {
  const isKnown = Number.isFinite(numbers.limit) && Number.isFinite(numbers.window);
  const times: number[] = [];
  let whole = 0;
  for (const { number, from, to } of isKnown ? (PATTERNS[pattern]?.runs(numbers) ?? []) : []) {
    const rounded = Math.max(Math.round(number), 1);
    whole += rounded;
    for (let n = 0; n < rounded && times.length < MOST; n += 1)
      times.push(Math.round(from + ((to - from) * n) / rounded));
  }
  return { times, whole };
}

const COMPARED = [
  "fixed_window",
  "sliding_log",
  "sliding_counter",
  "token_bucket",
  "leaky_bucket",
  "concurrency",
  "calendar",
];

/** Periods of a calendar, and how long one is at least, in milliseconds. */
const PERIODS: Record<string, number> = { day: 86_400_000, month: 28 * 86_400_000 };

function documentOf(algorithm: string, numbers: Record<string, string>): Document {
  const document: Document = { algorithm };
  for (const name of numbersOf(algorithm)) {
    const text = numbers[name] ?? "";
    if (text !== "") document[name] = Number.isNaN(Number(text)) ? text : Number(text);
  }
  return document;
}

export function Playground(props: { query: URLSearchParams }) {
  const value = (name: string, otherwise: string) => props.query.get(name) ?? otherwise;
  const limit = value("limit", "10");
  const seconds = value("window", "10");
  const burst = value("burst", "");
  const lease = value("lease", "2");
  const period = PERIODS[value("period", "day")] ? value("period", "day") : "day";
  const zone = value("zone", "UTC");
  const pattern = PATTERNS[value("pattern", "edge")] ? value("pattern", "edge") : "edge";
  const [clicks, setClicks] = useState<Asked[]>([]);
  const began = useRef(0);
  const change = (part: Record<string, string>) =>
    choose(["playground"], { limit, window: seconds, burst, lease, period, zone, pattern, ...part });
  const numbers = { limit: Number(limit), window: 1000 * Number(seconds) };
  const until = WINDOWS * numbers.window;
  const [trial, whole] = useMemo(() => {
    const { times, whole } = timesOf(pattern, { limit: Number(limit), window: 1000 * Number(seconds) });
    const documents = COMPARED.map((algorithm) =>
      documentOf(algorithm, {
        limit,
        window_seconds: seconds,
        burst,
        lease_seconds: lease,
        period,
        time_zone: zone,
      }),
    );
    const requests = pattern === "hand" ? clicks : times.map((at_ms) => ({ at_ms }));
    const until_ms = Math.max(Math.round(WINDOWS * 1000 * Number(seconds)) || 1, 1);
    return [{ policies: documents, requests, until_ms, points: POINTS }, whole] as const;
  }, [limit, seconds, burst, lease, period, zone, pattern, clicks]);
  const [answer, setAnswer] = useState<{ curves: Curve[]; trial: typeof trial }>();
  const [error, setError] = useState<unknown>();
  const isOpen = useValue(connection) === "open";
  // Tried again when the connection is back.
  useEffect(() => {
    const stop = new AbortController();
    ask<{ curves: Curve[] }>("POST", "/v1/playground", { body: trial, signal: stop.signal }).then(
      ({ body }) => {
        setAnswer({ curves: body.curves, trial });
        setError(undefined);
      },
      (error) => {
        if (!stop.signal.aborted) setError(error);
      },
    );
    return () => stop.abort();
  }, [trial, isOpen]);
  // What an earlier trial said is no answer to one that was refused.
  const shown = error === undefined ? answer : undefined;
  const mistakes = error instanceof RequestError ? error.errors : [];
  const mistake = (name: string) => {
    const found = mistakes.find(({ pointer }) => pointer.endsWith(`/${name}`));
    return found && `${found.detail}; accepted: ${found.accepted}`;
  };
  const click = () => {
    const now = performance.now();
    if (clicks.length === 0 || now - began.current > until) {
      began.current = now;
      setClicks([{ at_ms: 0 }]);
    } else {
      setClicks([...clicks, { at_ms: Math.round(now - began.current) }].slice(0, MOST));
    }
  };
  return (
    <>
      <form class="edit panel" onSubmit={(event) => event.preventDefault()}>
        <Field label="Limit" error={mistake("limit")}>
          {(attributes) => (
            <NumberInput {...attributes} value={limit} change={(text) => change({ limit: text })} />
          )}
        </Field>
        <Field label="Window, in seconds" error={mistake("window_seconds")}>
          {(attributes) => (
            <NumberInput {...attributes} value={seconds} change={(text) => change({ window: text })} />
          )}
        </Field>
        <Field label="Burst" hint="of the buckets; empty: the limit" error={mistake("burst")}>
          {(attributes) => (
            <NumberInput {...attributes} value={burst} change={(text) => change({ burst: text })} />
          )}
        </Field>
        <Field
          label="A request takes"
          hint="in seconds; of the concurrency limit"
          error={mistake("lease_seconds")}
        >
          {(attributes) => (
            <NumberInput {...attributes} value={lease} change={(text) => change({ lease: text })} />
          )}
        </Field>
        <Field label="Period" hint="of the calendar">
          {(attributes) => (
            <select
              {...attributes}
              value={period}
              onChange={(event) => change({ period: event.currentTarget.value })}
            >
              {Object.keys(PERIODS).map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          )}
        </Field>
        <Field label="Time zone" hint="of the calendar" error={mistake("time_zone")}>
          {(attributes) => (
            <NumberInput
              {...attributes}
              inputMode="text"
              value={zone}
              change={(text) => change({ zone: text })}
            />
          )}
        </Field>
        <Field label="Requests come" wide>
          {(attributes) => (
            <select
              {...attributes}
              value={pattern}
              onChange={(event) => change({ pattern: event.currentTarget.value })}
            >
              {Object.entries(PATTERNS).map(([value, { label }]) => (
                <option key={value} value={value}>
                  {label}
                </option>
              ))}
            </select>
          )}
        </Field>
        {pattern === "hand" && (
          <div class="actions">
            <button type="button" class="primary" onClick={click}>
              Ask once
            </button>
            <button type="button" onClick={() => setClicks([])}>
              Begin anew
            </button>
            <span class="hint">The time begins with the first click, and after {wait(until)} again.</span>
          </div>
        )}
      </form>
      {error !== undefined && mistakes.length === 0 && (
        <Problem what="The server did not try it." error={error} />
      )}
      {whole > MOST && (
        <p class="note" role="note">
          <Badge kind="warn">cut</Badge> The pattern has {count(whole)} requests; these are the first{" "}
          {count(MOST)}. Try a smaller limit: what an algorithm does is the same.
        </p>
      )}
      {pattern === "hand" && clicks.length === 0 && <Empty>Click “Ask once”, as fast as you like.</Empty>}
      <div class="grid">
        {shown?.curves.map((curve, place) => (
          <Tried
            key={COMPARED[place]}
            algorithm={COMPARED[place] ?? ""}
            curve={curve}
            requests={shown.trial.requests}
            until={shown.trial.until_ms}
            note={COMPARED[place] === "calendar" ? shortNote(period, shown.trial.until_ms) : undefined}
          />
        ))}
      </div>
      <Curl method="POST" path="/v1/playground" body={trial} />
    </>
  );
}

/** What is said of a time in which no new period begins. */
function shortNote(period: string, until: number): string | undefined {
  if (until > (PERIODS[period] ?? 0)) return undefined;
  return `All of it is within one ${period}. A window of ${count((PERIODS[period] ?? 0) / 1000)} seconds shows several.`;
}

function Tried(props: {
  algorithm: string;
  curve: Curve;
  requests: Asked[];
  until: number;
  note: string | undefined;
}) {
  const { curve, requests, until } = props;
  const drawn = useMemo(
    () => ({
      at: curve.points.map(({ at_ms }) => at_ms / 1000),
      values: [curve.points.map(({ remaining }) => remaining)],
    }),
    [curve],
  );
  const allowed = curve.verdicts.filter((verdict) => verdict.allowed).length;
  const first = curve.verdicts.findIndex((verdict) => !verdict.allowed);
  const after = curve.verdicts[first]?.retry_after_ms;
  const held = curve.verdicts.reduce((most, { delay_ms }) => Math.max(most, delay_ms ?? 0), 0);
  const label = ALGORITHMS[props.algorithm] ?? props.algorithm;
  return (
    <Panel title={label}>
      <p>
        <b>
          {count(allowed)} of {count(requests.length)}
        </b>{" "}
        allowed{requests.length > 0 && ` (${percent(allowed / requests.length)})`}
        {after !== undefined &&
          `; the first denial, after ${wait(requests[first]?.at_ms ?? 0)}, says to wait ${wait(after)}`}
        {held > 0 && `; held back for up to ${wait(held)}`}
      </p>
      <Chart
        summary={`${label}: what remains over ${wait(until)}; ${allowed} of ${requests.length} requests allowed.`}
        at={drawn.at}
        values={drawn.values}
        lines={[{ label: "remaining", color: "--accent", fill: true, stepped: true }]}
        format={count}
        counts
        isTime={false}
        height={130}
      />
      <Strip verdicts={curve.verdicts} requests={requests} until={until} />
      {props.note && <p class="hint">{props.note}</p>}
    </Panel>
  );
}

/** Each request where it came: a line above if it was allowed, one below if it was denied. */
function Strip(props: { verdicts: Verdict[]; requests: Asked[]; until: number }) {
  const lines = (wanted: boolean) =>
    props.verdicts
      .map((verdict, place) => {
        if (verdict.allowed !== wanted) return "";
        const x = ((1000 * (props.requests[place]?.at_ms ?? 0)) / props.until).toFixed(1);
        return wanted ? `M${x} 2V13` : `M${x} 16V27`;
      })
      .join("");
  return (
    <div class="strip" aria-hidden="true">
      <span>
        allowed
        <br />
        denied
      </span>
      <svg viewBox="0 0 1000 29" preserveAspectRatio="none" aria-hidden="true">
        <path class="yes" d={lines(true)} />
        <path class="no" d={lines(false)} />
      </svg>
    </div>
  );
}
