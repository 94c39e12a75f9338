// A breaker: what it is, the rule that it follows, and the calls that it judges by now.
//
// The events tell its state at once, and the server's list the calls, every two seconds. Where the list says a state that
// the events have overtaken, the newer one is shown, and no calls, which are of the other one.

import { breakers } from "../events";
import { count, counted, wait } from "../format";
import { useValue } from "../observable";
import { useAsked } from "./asked";
import { Badge, Meter } from "./basics";

export interface Breaker {
  of: string;
  name: string;
  state: string;
  /** Of those that it judges: in its window, or that opened it, or trials that have ended. */
  calls: number;
  failed: number;
  slow: number;
  /** The calls are of the state before this one. */
  isOvertaken: boolean;
  /** Until it lets one through; 0: it does. */
  retry_ms: number;
  /** One of the two. */
  window_calls?: number;
  window_seconds?: number;
  minimum_calls: number;
  failure_percent: number;
  /** Over 100: slowness never opens it. */
  slow_percent: number;
  slow_ms: number;
  /** The first pause, and the longest that it becomes by trials that fail. */
  first_open_seconds: number;
  open_seconds: number;
  /** The pause that it is in, or whose trials are under way. */
  pause_seconds?: number;
  trials: number;
}

/** How often they are asked for, in milliseconds. */
const PERIOD = 2_000;

/** Those of the gateway, by `upstream app`, `route api`. */
export function useBreakers(): ReadonlyMap<string, Breaker> | undefined {
  const { body } = useAsked<{ breakers: Omit<Breaker, "isOvertaken">[] }>("/v1/gateway/breakers", PERIOD);
  const told = useValue(breakers);
  if (!body) return undefined;
  return new Map(
    body.breakers.map((breaker) => {
      const key = `${breaker.of} ${breaker.name}`;
      const state = told.get(key)?.state ?? breaker.state;
      return [key, { ...breaker, state, isOvertaken: state !== breaker.state }];
    }),
  );
}

export function BreakerBadge({ breaker: { state } }: { breaker: { state: string } }) {
  return (
    <Badge kind={state === "closed" ? "good" : state === "open" ? "bad" : "warn"}>
      breaker {state.replace("_", " ")}
    </Badge>
  );
}

/** When it opens, and for how long. */
export function BreakerRule({ breaker }: { breaker: Breaker }) {
  const looked =
    breaker.window_seconds === undefined
      ? `the last ${counted(breaker.window_calls ?? 0, "call")}`
      : `the calls of the last ${breaker.window_seconds} s`;
  const slow =
    breaker.slow_percent > 100 ? "" : `, or ${breaker.slow_percent} % took over ${wait(breaker.slow_ms)}`;
  const { first_open_seconds: first, open_seconds: longest } = breaker;
  const opens =
    first < longest ? `${first} s, and for up to ${longest} s while trials fail,` : `${longest} s`;
  return (
    <p class="hint">
      Breaker: judges {looked}, once there are {count(breaker.minimum_calls)}; opens for {opens} when{" "}
      {breaker.failure_percent} % failed{slow}.
    </p>
  );
}

/** How long it waits this time, where that grows. */
function pauseOf({
  first_open_seconds: first,
  open_seconds: longest,
  pause_seconds: pause,
}: Breaker): string {
  if (pause === undefined || first >= longest) return "";
  const next = pause < longest ? "; trials that fail double it" : ", the longest";
  return ` Its pause is ${wait(1000 * pause)}${next}.`;
}

/** The calls that it judges by now, and how near they are to opening it. */
export function BreakerWindow({ breaker }: { breaker: Breaker }) {
  const { state, isOvertaken, calls, failed, slow, minimum_calls, failure_percent, trials, retry_ms } =
    breaker;
  if (isOvertaken) return null;
  const bad = `${count(failed)} failed${slow > 0 ? `, ${count(slow)} were slow` : ""}`;
  if (state === "open")
    return (
      <>
        Of {counted(calls, "call")} {bad}.{" "}
        {retry_ms > 0 ? `It is tried again in ${wait(retry_ms)}.` : "The next request tries it."}
        {pauseOf(breaker)}
      </>
    );
  const judged = state === "closed" ? Math.max(calls, minimum_calls) : trials;
  const limit = Math.ceil((judged * failure_percent) / 100);
  return (
    <>
      {state === "closed"
        ? `${counted(calls, "call")} in its window, ${bad}.`
        : `It is tried: of ${counted(trials, "trial")} ${count(calls)} ended, ${bad}.`}{" "}
      <Meter
        used={failed}
        limit={limit}
        label={`Failed calls of ${breaker.of} ${breaker.name}, until it opens`}
      />
    </>
  );
}
