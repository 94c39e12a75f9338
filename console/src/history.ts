// The last hour, as the server has kept it: what charts begin with when the page opens, and fill their gaps with when it was
// not looked at. It is read as the metrics page is, with fewer numbers.

import { useEffect, useMemo } from "preact/hooks";
import { ask, RequestError } from "./api";
import { labelsOf, type Reading, rate, type Series } from "./metrics";
import { Observable, useValue } from "./observable";

interface History {
  at_unix_ms: number[];
  series: { series: string; numbers: number[] }[];
}

/** How often it is read, in milliseconds: before the page's own readings, of five minutes, no longer reach it. */
const PERIOD = 240_000;
/** Between two of its readings, in milliseconds. */
const STEP = 10_000;
/** Of a longer time than this, in seconds, every third reading is drawn: a chart has no more points, and each costs. */
const SHORT = 600;

const past = new Observable<readonly Reading[]>([]);

/** Its readings by this machine's clock: the last one is less than a step old. */
function readingsOf({ at_unix_ms, series }: History): Reading[] {
  const late = Date.now() - (at_unix_ms.at(-1) ?? 0);
  const shift = late > -2_000 && late < STEP + 2_000 ? 0 : late - STEP / 2;
  const known = series.map(({ series, numbers }) => {
    const [, name = "", list = ""] = /^([^{]*)\{?(.*?)\}?$/.exec(series) ?? [];
    return { name, labels: labelsOf(list), numbers };
  });
  return at_unix_ms.map((at, place) => {
    const families = new Map<string, Series[]>();
    for (const { name, labels, numbers } of known) {
      const family = families.get(name) ?? [];
      family.push({ labels, value: numbers[place] ?? 0 });
      families.set(name, family);
    }
    return { at: at + shift, families, digests: new Map() };
  });
}

async function read(): Promise<void> {
  if (document.hidden) return;
  try {
    past.set(readingsOf((await ask<History>("GET", "/v1/history")).body));
  } catch (error) {
    // A chart then begins with what the page reads itself.
    if (!(error instanceof RequestError)) throw error;
  }
}

/** The page's own readings of so many seconds, with those of the server where there are none. */
export function useWithPast(own: readonly Reading[], seconds: number): readonly Reading[] {
  const before = useValue(past);
  useEffect(() => {
    void read();
    const timer = setInterval(read, PERIOD);
    document.addEventListener("visibilitychange", read);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", read);
    };
  }, []);
  return useMemo(() => {
    const last = own.at(-1)?.at ?? 0;
    const since = last - 1000 * seconds;
    const isApart = ({ at }: Reading) => own.every((reading) => Math.abs(reading.at - at) >= STEP / 2);
    const some = seconds > SHORT ? before.filter((_, place) => place % 3 === 0) : before;
    const missing = some.filter((reading) => reading.at >= since && reading.at < last && isApart(reading));
    if (missing.length === 0) return own;
    return [...missing, ...own.filter(({ at }) => at >= since)].sort((a, b) => a.at - b.at);
  }, [own, before, seconds]);
}

/** What is drawn of sums over time: when each was read, in seconds since the epoch, and how fast it grew until then. The sums are
 * the same each time: what is drawn is worked out when there is a new reading. */
export function useRates(
  own: readonly Reading[],
  seconds: number,
  sums: readonly ((reading: Reading) => number)[],
): { at: number[]; values: (number | null)[][] } {
  const all = useWithPast(own, seconds);
  return useMemo(() => {
    // The first has nothing before it: a rate of nothing.
    const pairs = all.map((reading, place) => [all[Math.max(place - 1, 0)] as Reading, reading] as const);
    return {
      at: pairs.map(([, { at }]) => at / 1000),
      values: sums.map((sum) => pairs.map(([before, after]) => rate(before, after, sum))),
    };
  }, [all, sums]);
}
