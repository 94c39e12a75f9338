// Lines over time, drawn by uPlot in the colours of the page.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { useValue } from "../observable";
import { theme } from "../theme";

export interface Line {
  label: string;
  /** A custom property of the stylesheet. */
  color: string;
  fill?: boolean;
  stepped?: boolean;
  dash?: number[];
  /** Each value as a point, so that one between two gaps is seen. */
  points?: boolean;
}

interface ChartProps {
  /** What a reader who does not see it is told. */
  summary: string;
  /** Seconds since the epoch, or, with `isTime` false, any numbers. */
  at: number[];
  lines: Line[];
  values: (number | null)[][];
  format: (value: number) => string;
  /** Values that are counts are marked at whole numbers alone, and so is `at` with `isTime` false. */
  counts?: boolean;
  isWhole?: boolean;
  isTime?: boolean;
  /** What is drawn of the time, in seconds since the epoch: the last five minutes if absent, as far as there is any. */
  span?: [number, number];
  /** Of `at`, with `isTime` false. */
  unit?: string;
  height?: number;
}

/** How much of the past is drawn at most, and at least, in seconds. */
const SPAN = 300;
const LEAST_SPAN = 60;

/** Distances of marks where only whole numbers are. */
const WHOLE = Array.from({ length: 10 }, (_, n) => [1, 2, 5].map((digit) => digit * 10 ** n)).flat();

const CLOCK = new Intl.DateTimeFormat("sv", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("sv", {
  month: "2-digit",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
});

const SECONDS = new Intl.DateTimeFormat("sv", { timeStyle: "medium" });

/** Marks as times of day: with seconds where minutes do not tell them apart, with the day where there is more than one. */
function clock(ticks: number[], [first, last]: [number, number]): string[] {
  const [one = 0, other = Infinity] = ticks;
  const format = last - first > 86_400 ? DAY : other - one < 60 ? SECONDS : CLOCK;
  return ticks.map((tick) => format.format(1000 * tick));
}

const dark = matchMedia("(prefers-color-scheme: dark)");

/** How much larger letters are than on a screen on a desk, as the page has them. */
const scale = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 14;

/** How the legend draws a line that is drawn so. */
function styleOf(dash: number[] | undefined): string {
  if (!dash) return "solid";
  return (dash[0] ?? 0) < 3 ? "dotted" : "dashed";
}

export function Chart(props: ChartProps) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const newest = useRef(props);
  newest.current = props;
  const shown = useValue(theme);
  const names = props.lines.map(({ label }) => label).join();
  // A plot is made anew for other lines and colours.
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(element, newest), data(newest.current), element);
    };
    make();
    const resized = new ResizeObserver(() => {
      const { width } = element.getBoundingClientRect();
      if (width > 0) plot.current?.setSize({ width, height: scale() * (newest.current.height ?? 160) });
    });
    resized.observe(element);
    dark.addEventListener("change", make);
    return () => {
      resized.disconnect();
      dark.removeEventListener("change", make);
      plot.current?.destroy();
      plot.current = undefined;
    };
  }, [shown, names]);
  useEffect(() => {
    plot.current?.setData(data(props));
  }, [props.at, props.values]);
  return (
    <figure class="chart">
      <div ref={place} role="img" aria-label={props.summary} />
      <figcaption>
        {props.lines.map(({ label, color, dash }) => (
          <span key={label}>
            <i
              style={{ borderTopColor: `var(${color})`, borderTopStyle: styleOf(dash) }}
              aria-hidden="true"
            />
            {label}
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

function data({ at, values }: ChartProps): uPlot.AlignedData {
  return [at, ...values];
}

function options(element: HTMLElement, newest: { current: ChartProps }): uPlot.Options {
  const style = getComputedStyle(element);
  const probe = document.createElement("span");
  element.append(probe);
  // `light-dark()` is only resolved where it is used.
  const color = (name: string) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const { lines, isTime = true, isWhole, counts, unit = " s", height = 160 } = newest.current;
  const by = scale();
  const axis: uPlot.Axis = {
    stroke: color("--dim"),
    grid: { stroke: color("--rule"), width: 1 },
    ticks: { show: false },
    font: `${11 * by}px ${style.fontFamily}`,
  };
  const made: uPlot.Options = {
    width: Math.max(element.getBoundingClientRect().width, 120),
    height: by * height,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { show: false } },
    scales: {
      x: isTime
        ? {
            range: (_, first, last) =>
              newest.current.span ?? [Math.max(last - SPAN, Math.min(first, last - LEAST_SPAN)), last],
          }
        : { time: false },
      y: { range: (_, least, most) => [Math.min(least ?? 0, 0) * 1.1, most > 0 ? most * 1.1 : 1] },
    },
    axes: [
      isTime
        ? {
            ...axis,
            size: 24 * by,
            space: 90 * by,
            values: (plot, ticks) => clock(ticks, [plot.scales.x?.min ?? 0, plot.scales.x?.max ?? 0]),
          }
        : {
            ...axis,
            ...(isWhole ? { incrs: WHOLE } : {}),
            size: 24 * by,
            values: (_, ticks) => ticks.map((tick) => `${tick}${unit}`),
          },
      {
        ...axis,
        ...(counts ? { incrs: WHOLE } : {}),
        size: 62 * by,
        values: (_, ticks) => ticks.map((tick) => newest.current.format(tick)),
      },
    ],
    series: [
      {},
      ...lines.map((line): uPlot.Series => {
        const series: uPlot.Series = {
          label: line.label,
          stroke: color(line.color),
          width: 1.5,
          points: { show: line.points === true, size: 4 },
        };
        if (line.fill) series.fill = color(`${line.color}-soft`);
        if (line.dash) series.dash = line.dash;
        if (line.stepped && uPlot.paths.stepped) series.paths = uPlot.paths.stepped({ align: 1 });
        return series;
      }),
    ],
  };
  probe.remove();
  return made;
}
