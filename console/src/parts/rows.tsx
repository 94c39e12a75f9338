// A list of any length, of which only the rows in sight are drawn. On a narrow screen the cells of a row stand below one
// another, so that rows differ in height: there the first ones are drawn, and more when somebody asks for them.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { count } from "../format";

const ROW = 36;
const AROUND = 8;
/** Lists up to this length are drawn whole. */
const WHOLE = 60;
/** Of a longer one so many are drawn on a narrow screen, and so many more at each click. */
const STEP = 20;
/** As in screens.css. */
const NARROW = matchMedia("(max-width: 52rem)");

function useNarrow(): boolean {
  const [isNarrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const read = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", read);
    return () => NARROW.removeEventListener("change", read);
  }, []);
  return isNarrow;
}

export function Rows<T>(props: {
  label: string;
  head: ComponentChildren;
  columns: string;
  items: readonly T[];
  id: (item: T) => string;
  row: (item: T) => ComponentChildren;
}) {
  const { items } = props;
  const place = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [most, setMost] = useState(STEP);
  const isNarrow = useNarrow();
  const windowed = items.length > WHOLE && !isNarrow;
  useEffect(() => {
    const element = place.current;
    if (!element || !windowed) return;
    const read = () => setTop(element.scrollTop);
    element.addEventListener("scroll", read, { passive: true });
    return () => element.removeEventListener("scroll", read);
  }, [windowed]);
  const height = 15 * ROW;
  const last = Math.max(items.length - 1, 0);
  const first = windowed ? Math.min(Math.max(Math.floor(top / ROW) - AROUND, 0), last) : 0;
  const end = windowed
    ? Math.min(first + Math.ceil(height / ROW) + 2 * AROUND, items.length)
    : Math.min(isNarrow ? most : WHOLE, items.length);
  const table = (
    <div
      ref={place}
      class={`rows ${windowed ? "windowed" : ""}`}
      role="table"
      aria-label={props.label}
      aria-rowcount={items.length + 1}
      tabIndex={0}
      style={{ "--columns": props.columns }}
    >
      <div role="row" class="head" aria-rowindex={1}>
        {props.head}
      </div>
      <div
        role="rowgroup"
        style={
          windowed ? { paddingTop: `${first * ROW}px`, paddingBottom: `${(items.length - end) * ROW}px` } : {}
        }
      >
        {items.slice(first, end).map((item, place) => (
          <div role="row" key={props.id(item)} aria-rowindex={first + place + 2}>
            {props.row(item)}
          </div>
        ))}
      </div>
    </div>
  );
  if (end >= items.length || !isNarrow) return table;
  return (
    <>
      {table}
      <button type="button" onClick={() => setMost(most + STEP)}>
        Show more of {count(items.length)}
      </button>
    </>
  );
}

export function Cell(props: {
  children?: ComponentChildren;
  number?: boolean;
  head?: boolean;
  label?: string;
}) {
  return (
    <div
      role={props.head ? "columnheader" : "cell"}
      class={props.number ? "number" : ""}
      data-label={props.label}
    >
      {props.children}
    </div>
  );
}
