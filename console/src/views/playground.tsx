// Algorithms on the same requests, side by side. What each says is asked of the server, which runs the very functions
// that decide; nothing is counted there.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask, RequestError } from "../api";
import { count, percent, wait } from "../format";
import { Curl, Empty, Field, Panel, Problem } from "../parts/basics";
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
const PATTERNS: Record<string, { label: string; times: (numbers: Numbers) => number[] }> = {
  edge: {
    label: "at the edge of two windows",
    times: ({ limit, window }) => [
      ...spread(limit, 0.93 * window, 0.99 * window),
      ...spread(limit, 1.01 * window, 1.07 * window),
    ],
  },
  steady: {
    label: "steadily, at one and a half times the limit",
    times: ({ limit, window }) => spread(1.5 * WINDOWS * limit, 0, WINDOWS * window),
  },
  burst: {
    label: "in two bursts of twice the limit",
    times: ({ limit, window }) => [
      ...spread(2 * limit, 0.2 * window, 0.22 * window),
      ...spread(2 * limit, 1.5 * window, 1.52 * window),
    ],
  },
  cron: {
    label: "all at each full window, as from cron",
    times: ({ limit, window }) =>
      Array.from({ length: WINDOWS }, (_, n) => spread(1.2 * limit, n * window, (n + 0.02) * window)).flat(),
  },
  hand: { label: "when I click", times: () => [] },
};

function spread(number: number, from: number, to: number): number[] {
  const whole = Math.max(Math.round(number), 1);
  return Array.from({ length: whole }, (_, n) => Math.round(from + ((to - from) * n) / whole));
}

const COMPARED = ["fixed_window", "sliding_log", "sliding_counter", "token_bucket", "leaky_bucket"];

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
  const pattern = PATTERNS[value("pattern", "edge")] ? value("pattern", "edge") : "edge";
  const [clicks, setClicks] = useState<Asked[]>([]);
  const began = useRef(0);
  const change = (part: Record<string, string>) =>
    choose(["playground"], { limit, window: seconds, burst, pattern, ...part });
  const numbers = { limit: Number(limit), window: 1000 * Number(seconds) };
  const until = WINDOWS * numbers.window;
  const trial = useMemo(() => {
    const made = PATTERNS[pattern]?.times({ limit: Number(limit), window: 1000 * Number(seconds) }) ?? [];
    const times =
      Number.isFinite(Number(limit)) && Number.isFinite(Number(seconds)) ? made.slice(0, MOST) : [];
    const documents = COMPARED.map((algorithm) =>
      documentOf(algorithm, { limit, window_seconds: seconds, burst }),
    );
    const requests = pattern === "hand" ? clicks : times.map((at_ms) => ({ at_ms }));
    return {
      policies: documents,
      requests,
      until_ms: Math.max(Math.round(WINDOWS * 1000 * Number(seconds)) || 1, 1),
      points: POINTS,
    };
  }, [limit, seconds, burst, pattern, clicks]);
  const [answer, setAnswer] = useState<{ curves: Curve[]; trial: typeof trial }>();
  const [error, setError] = useState<unknown>();
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
  }, [trial]);
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
        <Field label="Requests come">
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
      {pattern === "hand" && clicks.length === 0 && <Empty>Click “Ask once”, as fast as you like.</Empty>}
      <div class="grid">
        {answer?.curves.map((curve, place) => (
          <Tried
            key={COMPARED[place]}
            algorithm={COMPARED[place] ?? ""}
            curve={curve}
            requests={answer.trial.requests}
            until={answer.trial.until_ms}
          />
        ))}
      </div>
      <Curl method="POST" path="/v1/playground" body={trial} />
    </>
  );
}

function Tried(props: { algorithm: string; curve: Curve; requests: Asked[]; until: number }) {
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
        isTime={false}
        height={130}
      />
      <Strip verdicts={curve.verdicts} requests={requests} until={until} />
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
