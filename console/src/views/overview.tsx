// What matters in two seconds: how much is asked, what share is denied, how fast, what is wrong, what changed.

import { useMemo } from "preact/hooks";
import { ANSWERS, type Answer, answered, DURATIONS, isDecision } from "../answers";
import { addressOf } from "../api";
import { count, latency, percent, perSecond, speed, timeOfDay } from "../format";
import { useWithPast } from "../history";
import {
  earlier,
  type Quantile,
  quantile,
  type Reading,
  rate,
  readings,
  trouble,
  useReadings,
} from "../metrics";
import { useValue } from "../observable";
import { useAsked } from "../parts/asked";
import { Empty, Panel, Problem, Stat } from "../parts/basics";
import { ByDoor, ByPolicy } from "../parts/by";
import { CAPACITY, type CapacityNow } from "../parts/capacity";
import { Changes, useLastChanges } from "../parts/changes";
import { Chart } from "../parts/chart";
import { Health } from "../parts/health";
import { MostDenied, Nearest } from "../parts/heaviest";
import { href } from "../router";

/** From this share of what can be kept up on, the load is said to be high. */
const NEAR = 0.8;

/** Rates and quantiles are of the last ten seconds. */
const RECENT = 10;

export function Overview(props: { query: URLSearchParams }) {
  useReadings();
  const all = useValue(readings);
  const failed = useValue(trouble);
  const now = all.at(-1);
  const before = earlier(all, RECENT);
  if (!now) {
    return failed ? (
      <Problem what="The numbers cannot be read." error={`${failed}; they are asked for again every 2 s.`} />
    ) : (
      <Empty>Reading …</Empty>
    );
  }
  return (
    <div class="grid">
      <Now now={now} before={before} />
      <Health now={now} />
      <OverTime all={all} last={spanOf(props.query.get("last"))} />
      <ByPolicy now={now} before={before} />
      <ByDoor now={now} before={before} />
      <MostDenied most={8} />
      <Nearest most={8} />
      <Changed />
    </div>
  );
}

interface Two {
  now: Reading;
  before: Reading | undefined;
}

function Now({ now, before }: Two) {
  const of = (...answers: Answer[]) =>
    before && rate(before, now, (reading) => answered(reading, ...answers));
  const [all, denied, unmatched] = [of(...ANSWERS), of("denied"), of("unmatched")];
  const isKnown = typeof all === "number" && typeof denied === "number";
  const fast = (share: number) => before && quantile(before, now, DURATIONS, isDecision, share);
  return (
    <section class="panel wide now" aria-label="Now">
      <dl class="stats">
        <Stat
          label="Requests per second"
          value={perSecond(all)}
          note={
            before
              ? `in the last 10 s${unmatched ? `; ${perSecond(unmatched)} under no policy` : ""}`
              : "measuring"
          }
        />
        <Stat
          label="Denied"
          value={isKnown && all > 0 ? percent(denied / all) : "–"}
          note={isKnown ? `of the requests: ${perSecond(denied)} per second` : ""}
        />
        <Stat label="p50" value={speed(fast(0.5))} note="of decisions, in the server" />
        <Stat label="p99" value={speed(fast(0.99))} note="of decisions, in the server" />
        <Load now={now} />
      </dl>
      {answered(now, ...ANSWERS) === 0 && (
        <Empty>
          Nobody has asked for a decision yet. Try it:{" "}
          <code>{`curl -X POST ${addressOf("/api/v1/ratelimit")} -H 'content-type: application/json' -d '{"client_id":"user123","resource":"api"}'`}</code>
        </Empty>
      )}
    </section>
  );
}

/** The load beside what an accepted report says that can be kept up. */
function Load({ now }: { now: Reading }) {
  const { body } = useAsked<CapacityNow>(CAPACITY);
  const known = now.families.get("tidegate_capacity_used_ratio")?.[0];
  if (!body?.accepted) return null;
  const { is_knee, cause, server } = body.accepted;
  return (
    <Stat
      label={`Load of ${server}`}
      value={known ? percent(known.value) : "–"}
      note={`of the ${is_knee ? "knee" : "capacity"}; cause then: ${cause}`}
      {...(known && known.value >= NEAR ? { tone: "bad" as const } : {})}
    />
  );
}

interface Speeds {
  since: Reading;
  p50: Quantile | null;
  p99: Quantile | null;
}

const known = new WeakMap<Reading, Speeds>();

/** How fast decisions were from one reading to another. Each is worked out once, as long as both are kept. */
function speedsUntil(reading: Reading, since: Reading): Speeds {
  const found = known.get(reading);
  if (found?.since === since) return found;
  const fast = (share: number) => quantile(since, reading, DURATIONS, isDecision, share);
  const speeds = { since, p50: fast(0.5), p99: fast(0.99) };
  known.set(reading, speeds);
  return speeds;
}

/** How much of the past the charts have, in seconds. Those that the page cannot know by itself have an axis of their own. */
const SPANS = {
  minutes: { seconds: 300, label: "five minutes" },
  ten: { seconds: 600, label: "ten minutes" },
  hour: { seconds: 3_600, label: "hour" },
} as const;
type Span = keyof typeof SPANS;

/** The span that an address names; the shortest without one. */
const spanOf = (word: string | null): Span => (word === "ten" || word === "hour" ? word : "minutes");

/** Links to the other spans. */
function OtherSpans({ last }: { last: Span }) {
  const others = (Object.keys(SPANS) as Span[]).filter((other) => other !== last);
  return (
    <span>
      {others.map((other, place) => (
        <span key={other}>
          {place > 0 && " · "}
          <a href={href([], other === "minutes" ? {} : { last: other })}>The last {SPANS[other].label}</a>
        </span>
      ))}
    </span>
  );
}

/** Shortest time that a quantile is of, in milliseconds. */
const QUANTILES_OF = 9_000;

/** The reading with which that of `place` is compared. */
function compared(all: readonly Reading[], place: number): Reading {
  const until = all[place] as Reading;
  let before = Math.max(place - 1, 0);
  while (before > 0 && until.at - (all[before] as Reading).at < QUANTILES_OF) before -= 1;
  return all[before] as Reading;
}

function OverTime({ all: own, last }: { all: readonly Reading[]; last: Span }) {
  const { seconds, label } = SPANS[last];
  const all = useWithPast(own, seconds);
  const drawn = useMemo(() => {
    // The first has nothing before it: a rate of nothing.
    const pairs = all.map((reading, place) => [all[Math.max(place - 1, 0)] as Reading, reading] as const);
    const rates = (answer: Answer) =>
      pairs.map(([a, b]) => rate(a, b, (reading) => answered(reading, answer)));
    const speeds = pairs.map(([, b], place) => speedsUntil(b, compared(all, place)));
    return {
      at: pairs.map(([, { at }]) => at / 1000),
      requests: ANSWERS.map(rates),
      speeds: [speeds.map(({ p50 }) => p50?.seconds ?? null), speeds.map(({ p99 }) => p99?.seconds ?? null)],
      last: speeds.at(-1),
      below: speeds.flatMap(({ p50, p99 }) => [p50, p99]).find((quantile) => quantile?.isBelow),
    };
  }, [all]);
  const end = drawn.at.at(-1) ?? 0;
  const from = timeOfDay(drawn.at[0] ?? 0);
  const span = last !== "minutes" ? { span: [end - seconds, end] as [number, number] } : {};
  return (
    <>
      <Panel title="Requests per second" actions={<OtherSpans last={last} />}>
        <Chart
          summary={`Requests per second over the last ${label}, from ${from} on; now ${perSecond(drawn.requests[0]?.at(-1))} allowed, ${perSecond(drawn.requests[1]?.at(-1))} denied and ${perSecond(drawn.requests[2]?.at(-1))} under no policy.`}
          at={drawn.at}
          values={drawn.requests}
          lines={[
            { label: "allowed", color: "--accent", fill: true },
            { label: "denied", color: "--bad", dash: [5, 3] },
            { label: "under no policy", color: "--dim", dash: [2, 3] },
          ]}
          format={perSecond}
          {...span}
        />
      </Panel>
      <Panel title="Time to decide">
        <Chart
          summary={`Time to decide over the last ${label}; now p50 ${speed(drawn.last?.p50)}, p99 ${speed(drawn.last?.p99)}.`}
          at={drawn.at}
          values={drawn.speeds}
          lines={[
            { label: "p50", color: "--accent" },
            { label: "p99", color: "--warn", dash: [5, 3] },
          ]}
          format={latency}
          {...span}
        />
        {drawn.below && (
          <p class="hint">
            What took less than {latency(drawn.below.seconds)} is drawn there: no more is known of it.
          </p>
        )}
      </Panel>
    </>
  );
}

/** Changes of the last hour are looked for among so many. */
const LOOKED_AT = 200;
/** Most that are listed. */
const LISTED = 8;

function Changed() {
  const { body, error } = useLastChanges(LOOKED_AT);
  const entries = body?.entries;
  const recent = entries?.filter(({ at_ms }) => at_ms > Date.now() - 3_600_000).reverse();
  const more = Math.max((recent?.length ?? 0) - LISTED, 0);
  const isCut = entries !== undefined && recent?.length === entries.length && entries.length >= LOOKED_AT;
  return (
    <Panel title="Changed in the last hour" actions={<a href={href(["audit"])}>All changes</a>} two>
      {error !== undefined && !body && <Problem what="The changes cannot be read." error={error} />}
      {recent?.length === 0 && <Empty>Nothing was changed, through the API or in the file.</Empty>}
      {recent && recent.length > 0 && <Changes entries={recent.slice(0, LISTED)} />}
      {more > 0 && (
        <p class="hint">
          <a href={href(["audit"])}>
            {count(more)} more{isCut && ", or still more"}
          </a>{" "}
          in the last hour.
        </p>
      )}
    </Panel>
  );
}
