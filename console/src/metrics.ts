// The metrics page as numbers over time: what the overview and the lists draw.
//
// It is asked for every two seconds while a view wants it and the page is looked at. Rates are differences of two
// readings; where the process began anew in between there is a gap, never a negative rate.

import { useEffect } from "preact/hooks";
import { addressOf } from "./api";
import { Observable } from "./observable";

/** One series of a family. */
export interface Series {
  labels: Readonly<Record<string, string>>;
  value: number;
}

/** What one reading of the page says. */
export interface Reading {
  /** When, in milliseconds since the Unix epoch. */
  at: number;
  families: ReadonlyMap<string, readonly Series[]>;
  /** What is kept of families with a digest, by name. */
  digests: ReadonlyMap<string, unknown>;
}

/** How often the page is read, in milliseconds. */
const PERIOD = 2_000;
/** Most readings that are kept: five minutes. */
const KEPT = 151;
/** Longest time that reading holds up what else the page does, in milliseconds. */
const SLICE = 8;
/** Longest wait for the page. */
const PATIENCE = 10_000;

/** The readings, the oldest first. */
export const readings = new Observable<readonly Reading[]>([]);
/** Why the last reading failed. */
export const trouble = new Observable<string | undefined>(undefined);

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPES: Record<string, string> = { "\\n": "\n", '\\"': '"', "\\\\": "\\" };

/** The labels of the last reading by their text: the next one has the same, which are neither read nor kept twice. */
let known: ReadonlyMap<string, Series["labels"]> = new Map();

/** The labels of a series, of what stands between its braces. */
export function labelsOf(list: string): Series["labels"] {
  const labels: Record<string, string> = {};
  for (const [, label = "", value = ""] of list.matchAll(LABEL)) {
    labels[label] = value.replace(/\\[n"\\]/g, (escaped) => ESCAPES[escaped] ?? escaped);
  }
  return labels;
}

/** Lets the page do what else there is to do. */
const pause = () => new Promise<void>((resolve) => setTimeout(resolve));

/** Reads the text that Prometheus reads, a slice of time after the other: it can have a hundred thousand lines. Lines
 * that are none are left out. */
export async function parse(text: string, at: number): Promise<Reading> {
  const families = new Map<string, Series[]>();
  const next = new Map<string, Series["labels"]>();
  let began = performance.now();
  for (let start = 0, end = 0; start < text.length; start = end + 1) {
    end = text.indexOf("\n", start);
    if (end < 0) end = text.length;
    if (performance.now() - began > SLICE) {
      await pause();
      began = performance.now();
    }
    const line = text.slice(start, end);
    if (line === "" || line.startsWith("#")) continue;
    const parts = LINE.exec(line);
    if (!parts) continue;
    const [, name = "", list = "", number = ""] = parts;
    const labels = known.get(list) ?? labelsOf(list);
    next.set(list, labels);
    const value = number === "+Inf" ? Infinity : Number(number);
    const family = families.get(name);
    if (family) family.push({ labels, value });
    else families.set(name, [{ labels, value }]);
  }
  known = next;
  const digested = new Map<string, unknown>();
  for (const [name, work] of digests) {
    await pause();
    digested.set(name, work(families.get(name) ?? []));
    families.delete(name);
  }
  return { at, families, digests: digested };
}

type Work<T> = (series: readonly Series[]) => T;

const digests = new Map<string, Work<unknown>>();

/** Has `work` done with a family of each reading as it comes, and only its result kept. */
export function digest<T>(name: string, work: Work<T>): (reading: Reading) => T {
  digests.set(name, work);
  return (reading) => reading.digests.get(name) as T;
}

/** The sum of a family's series that have these labels. */
export function total(reading: Reading, name: string, wanted: Record<string, string> = {}): number {
  const entries = Object.entries(wanted);
  let sum = 0;
  for (const { labels, value } of reading.families.get(name) ?? []) {
    if (entries.every(([label, text]) => labels[label] === text)) sum += value;
  }
  return sum;
}

/** Growth per second from one reading to the next; `null` where the counter began anew. */
export function rate(before: Reading, after: Reading, count: (reading: Reading) => number): number | null {
  const grown = count(after) - count(before);
  const seconds = (after.at - before.at) / 1000;
  return grown < 0 || seconds <= 0 ? null : grown / seconds;
}

/** The reading about `seconds` before the last one. */
export function earlier(all: readonly Reading[], seconds: number): Reading | undefined {
  const last = all.at(-1);
  return last && all.find((reading) => reading.at >= last.at - seconds * 1000 - PERIOD / 2);
}

/** Cumulative counts by upper bound of a histogram's series that `wanted` accepts. */
function buckets(reading: Reading, name: string, wanted: (series: Series) => boolean): Map<number, number> {
  const counts = new Map<number, number>();
  for (const series of reading.families.get(`${name}_bucket`) ?? []) {
    if (!wanted(series)) continue;
    const bound = series.labels.le === "+Inf" ? Infinity : Number(series.labels.le);
    counts.set(bound, (counts.get(bound) ?? 0) + series.value);
  }
  return counts;
}

/** A quantile of a histogram, in seconds. */
export interface Quantile {
  seconds: number;
  /** It is somewhere below this: the histogram says no more of its first bucket. */
  isBelow: boolean;
}

/** A quantile of what a histogram counted from one reading to another: its bucket's part of the way. */
export function quantile(
  before: Reading,
  after: Reading,
  names: readonly string[],
  wanted: (series: Series) => boolean,
  share: number,
): Quantile | null {
  const grown = new Map<number, number>();
  for (const name of names) {
    const old = buckets(before, name, wanted);
    for (const [bound, count] of buckets(after, name, wanted)) {
      grown.set(bound, (grown.get(bound) ?? 0) + count - (old.get(bound) ?? 0));
    }
  }
  const sorted = [...grown].sort(([a], [b]) => a - b);
  const all = sorted.at(-1)?.[1] ?? 0;
  if (all <= 0) return null;
  const exactly = (seconds: number) => ({ seconds, isBelow: false });
  let [lower, below] = [0, 0];
  for (const [bound, count] of sorted) {
    if (count >= share * all) {
      if (bound === Infinity) return exactly(lower);
      if (lower === 0) return { seconds: bound, isBelow: true };
      return exactly(lower + ((bound - lower) * (share * all - below)) / Math.max(count - below, 1));
    }
    [lower, below] = [bound, count];
  }
  return exactly(lower);
}

let wanting = 0;
let timer: number | undefined;
let reading = false;

async function read(): Promise<void> {
  clearTimeout(timer);
  if (reading || wanting === 0 || document.hidden) return;
  reading = true;
  const began = performance.now();
  try {
    const signal = AbortSignal.timeout(PATIENCE);
    const response = await fetch(addressOf("/metrics"), {
      headers: { accept: "text/plain" },
      cache: "no-store",
      signal,
    });
    if (!response.ok) throw new Error(`it answered ${response.status}`);
    const next = await parse(await response.text(), Date.now());
    readings.set([...readings.value, next].slice(-KEPT));
    trouble.set(undefined);
  } catch (error) {
    trouble.set(error instanceof Error ? error.message : String(error));
  } finally {
    reading = false;
  }
  timer = setTimeout(read, Math.max(PERIOD - (performance.now() - began), PERIOD / 2));
}

document.addEventListener("visibilitychange", read);

/** Reads the page for as long as the view is there. */
export function useReadings(): void {
  useEffect(() => {
    wanting += 1;
    void read();
    return () => {
      wanting -= 1;
    };
  }, []);
}
