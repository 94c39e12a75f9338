// Numbers and times as people read them.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

/** `1,234`. */
export function count(value: number): string {
  return WHOLE.format(value);
}

/** `1 error`, `1,234 errors`. */
export function counted(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** `12.3`, `1,230`, `0`: three digits are what a rate is good for. */
export function perSecond(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  return value >= 1000 ? WHOLE.format(value) : SHORT.format(value);
}

export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  const value = 100 * share;
  return `${value > 0 && value < 10 ? value.toFixed(1) : value.toFixed(0)} %`;
}

/** Seconds as `58 µs`, `1.2 ms`, `3.4 s`. */
export function latency(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1e-3) return `${SHORT.format(seconds * 1e6)} µs`;
  if (seconds < 1) return `${SHORT.format(seconds * 1e3)} ms`;
  return `${SHORT.format(seconds)} s`;
}

/** A quantile as a latency; `< 100 µs` where no more is known. */
export function speed(quantile: { seconds: number; isBelow: boolean } | null | undefined): string {
  if (!quantile) return "–";
  return `${quantile.isBelow ? "< " : ""}${latency(quantile.seconds)}`;
}

/** Milliseconds until something as `59 s`, `2 min 5 s`, `3 h`, `12 d`. Rounded up: at that time it is so. */
export function wait(ms: number): string {
  const seconds = Math.ceil(ms / 1000);
  if (ms < 1000) return `${Math.ceil(ms)} ms`;
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([number]) => number > 0);
  const shown = parts.slice(first, first + 2).filter(([number]) => number > 0);
  return shown.map(([number, unit]) => `${number} ${unit}`).join(" ");
}

/** Seconds since the epoch as a time of day, `14:03:59`. */
export function timeOfDay(seconds: number): string {
  return new Date(1000 * seconds).toLocaleTimeString("sv", { timeStyle: "medium" });
}

/** How long ago, as `5 s ago`. */
export function ago(ms: number): string {
  return ms < 1000 ? "just now" : `${wait(ms).split(" ").slice(0, 2).join(" ")} ago`;
}

/** `60 s`, `1 h`, `1 d` of a window. */
export function span(seconds: number): string {
  if (seconds % 86_400 === 0) return `${count(seconds / 86_400)} d`;
  if (seconds % 3600 === 0) return `${count(seconds / 3600)} h`;
  if (seconds % 60 === 0 && seconds > 60) return `${count(seconds / 60)} min`;
  return `${count(seconds)} s`;
}

/** `1.2 MB`, `–` where nothing is known. */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  let rest = value;
  while (rest >= 1000 && at < units.length - 1) {
    rest /= 1000;
    at += 1;
  }
  return `${SHORT.format(rest)} ${units[at]}`;
}
