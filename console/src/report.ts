// A report of the tester, read as what it should be: a file that somebody dropped onto the page can be anything.

export interface Level {
  load: number;
  throughput: number | null;
  p50_us: number | null;
  p99_us: number | null;
  error_ratio: number;
  denied_ratio: number;
  zone: string;
  cause: string;
}

export interface Report {
  file: string;
  /** As it was read: what is sent where it is accepted. */
  whole: unknown;
  target: string;
  started: string;
  version: string;
  sentence: string;
  advice: string;
  capacity: { throughput: number; low: number; high: number; load: number; bound: string } | undefined;
  knee: number | undefined;
  cause: { name: string; summary: string; evidence: string[] } | undefined;
  levels: Level[];
}

/** What the tester writes now. */
const SCHEMA = "tidegate-report/2";
/** Largest file that is read, in bytes: a report has 1 MB at most when its steps are many. */
export const MAX_BYTES = 16_000_000;
/** Most levels that are drawn. */
const MAX_LEVELS = 1_000;

type Fields = Record<string, unknown>;

const fields = (value: unknown): Fields =>
  typeof value === "object" && value !== null ? (value as Fields) : {};
const text = (value: unknown) => (typeof value === "string" ? value : "");
const number = (value: unknown) => (typeof value === "number" && Number.isFinite(value) ? value : null);

/** Reads it, or says why it is none. */
export function read(file: string, content: string): Report {
  let parsed: unknown;
  try {
    parsed = JSON.parse(content);
  } catch {
    throw new Error(`${file} is not JSON. tidegate saturate --json FILE writes a report.`);
  }
  return check(file, parsed);
}

/** What is in it, or why it is none. */
export function check(file: string, parsed: unknown): Report {
  const report = fields(parsed);
  if (report.schema !== SCHEMA) {
    const found = text(report.schema) || "none";
    throw new Error(`${file} has the schema ${found}; what is read here is ${SCHEMA}.`);
  }
  const capacity = fields(report.capacity);
  const interval = fields(capacity.interval);
  const throughput = number(capacity.throughput);
  const cause = fields(report.cause);
  const levels = Array.isArray(report.levels) ? report.levels.slice(0, MAX_LEVELS) : [];
  return {
    file,
    whole: parsed,
    target: text(report.target),
    started: text(report.started),
    version: text(report.version),
    sentence: text(fields(report.conclusion).sentence),
    advice: text(fields(report.conclusion).advice),
    capacity:
      throughput === null
        ? undefined
        : {
            throughput,
            low: number(interval.low) ?? throughput,
            high: number(interval.high) ?? throughput,
            load: number(capacity.load) ?? 0,
            bound: text(capacity.bound),
          },
    knee: number(fields(report.knee).concurrency) ?? undefined,
    cause: text(cause.name)
      ? {
          name: text(cause.name),
          summary: text(cause.summary),
          evidence: Array.isArray(cause.evidence) ? cause.evidence.map(text).filter(Boolean) : [],
        }
      : undefined,
    levels: levels.map(fields).map((level) => ({
      load: number(level.load) ?? 0,
      throughput: number(level.throughput),
      p50_us: number(level.p50_us),
      p99_us: number(level.p99_us),
      error_ratio: number(level.error_ratio) ?? 0,
      denied_ratio: number(level.denied_ratio) ?? 0,
      zone: text(level.zone),
      cause: text(level.cause),
    })),
  };
}
