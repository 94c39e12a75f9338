// A value as the server explains it: names and values, lists as lists.

import { Scroll } from "./basics";

/** Seventeen digits are what a machine is good for; what is nearly nothing is nothing. */
const FRACTION = new Intl.NumberFormat("en", { maximumFractionDigits: 4, useGrouping: false });

const words = (name: string) => name.replaceAll("_", " ");

/** Whether it is an object of plain values, such as a row of a table. */
function isFlat(value: unknown): value is Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  return Object.values(value).every((part) => typeof part !== "object" || part === null);
}

/** What a row is of: its column is the first. */
const OF = ["name", "route", "policy", "server", "backend"];

function Table(props: { rows: Record<string, unknown>[] }) {
  const all = [...new Set(props.rows.flatMap(Object.keys))];
  const names = [...all.filter((name) => OF.includes(name)), ...all.filter((name) => !OF.includes(name))];
  return (
    <Scroll label={names.map(words).join(", ")}>
      <table>
        <thead>
          <tr>
            {names.map((name) => (
              <th scope="col" key={name}>
                {words(name)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {props.rows.map((row, place) => (
            <tr key={place}>
              {names.map((name) => (
                <td key={name}>{name in row ? <Tree value={row[name]} /> : ""}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

export function Tree(props: { value: unknown }) {
  const { value } = props;
  if (Array.isArray(value)) {
    if (value.length === 0) return <span class="hint">none</span>;
    if (value.every(isFlat)) return <Table rows={value} />;
    return (
      <ul class="tree">
        {value.map((item, place) => (
          <li key={place}>
            <Tree value={item} />
          </li>
        ))}
      </ul>
    );
  }
  if (typeof value === "object" && value !== null) {
    return (
      <dl class="facts">
        {Object.entries(value).map(([name, part]) => [
          <dt key={name}>{words(name)}</dt>,
          <dd key={`${name} value`}>
            <Tree value={part} />
          </dd>,
        ])}
      </dl>
    );
  }
  if (typeof value === "number" && !Number.isInteger(value)) return <>{FRACTION.format(value)}</>;
  if (typeof value === "boolean") return <>{value ? "yes" : "no"}</>;
  return <>{value === null || value === undefined ? "–" : String(value)}</>;
}
