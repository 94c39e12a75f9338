// The last warnings and errors of the server's log. What is said again is one line, with how often.

import { count, counted } from "../format";
import { useAsked } from "../parts/asked";
import { Badge, Curl, Empty, Field, Panel, Problem, When } from "../parts/basics";
import { Cell, Rows } from "../parts/rows";
import { choose } from "../router";

interface Warning {
  at_unix_ms: number;
  first_at_unix_ms: number;
  times: number;
  level: "warn" | "error";
  target: string;
  message: string;
  fields: string;
}

interface Kept {
  errors: number;
  warnings: number;
  last: Warning[];
}

const ADDRESS = "/v1/warnings";

const LEVELS: Record<string, string> = { error: "errors alone", warn: "warnings alone" };

export function Warnings(props: { query: URLSearchParams }) {
  const { body, error, again } = useAsked<Kept>(ADDRESS, 4_000);
  const text = props.query.get("find") ?? "";
  const only = props.query.get("level") ?? "";
  const change = (part: Record<string, string>) => choose(["logs"], { find: text, level: only, ...part });
  if (error !== undefined && !body)
    return <Problem what="The log cannot be read." error={error} retry={again} />;
  if (!body) return <Empty>Asking …</Empty>;
  const wanted = text.toLowerCase();
  const found = body.last
    .map((warning, place) => ({ ...warning, place: body.last.length - place }))
    .filter(
      ({ message, fields, target, level }) =>
        (!LEVELS[only] || level === only) &&
        `${level} ${target} ${message} ${fields}`.toLowerCase().includes(wanted),
    );
  return (
    <>
      <form class="search" role="search" onSubmit={(event) => event.preventDefault()}>
        <Field label="Find" hint="Any part of a line.">
          {(attributes) => (
            <input
              {...attributes}
              type="search"
              value={text}
              onInput={(event) => change({ find: event.currentTarget.value })}
            />
          )}
        </Field>
        <Field label="Level">
          {(attributes) => (
            <select
              {...attributes}
              value={LEVELS[only] ? only : ""}
              onInput={(event) => change({ level: event.currentTarget.value })}
            >
              <option value="">both</option>
              {Object.entries(LEVELS).map(([level, label]) => (
                <option key={level} value={level}>
                  {label}
                </option>
              ))}
            </select>
          )}
        </Field>
      </form>
      <Panel
        title={`${counted(body.errors, "error")} and ${counted(body.warnings, "warning")} since the process began`}
        wide
      >
        {body.last.length === 0 && (
          <Empty>
            None. What is less than a warning is on standard error alone; <code>log.level</code> says what is
            written at all.
          </Empty>
        )}
        {body.last.length > 0 && found.length === 0 && (
          <Empty>
            {text === "" ? "There is no such line." : `No line of this level has “${text}” in it.`}
          </Empty>
        )}
        {found.length > 0 && (
          <Rows
            label="Warnings and errors"
            columns="7rem 6rem 4.5rem minmax(14rem,2fr) minmax(12rem,2fr) minmax(8rem,1fr)"
            items={found}
            id={({ at_unix_ms, place }) => `${at_unix_ms} ${place}`}
            head={
              <>
                <Cell head>When</Cell>
                <Cell head>Level</Cell>
                <Cell head number>
                  Times
                </Cell>
                <Cell head>What</Cell>
                <Cell head>Known</Cell>
                <Cell head>Part</Cell>
              </>
            }
            row={(warning) => (
              <>
                <Cell label="When">
                  <When ms={warning.at_unix_ms} short />
                </Cell>
                <Cell label="Level">
                  <Badge kind={warning.level === "error" ? "bad" : "warn"}>{warning.level}</Badge>
                </Cell>
                <Cell number label="Times">
                  <Times warning={warning} />
                </Cell>
                <Cell label="What">
                  <span title={warning.message}>{warning.message}</span>
                </Cell>
                <Cell label="Known">
                  <span title={warning.fields}>{warning.fields}</span>
                </Cell>
                <Cell label="Part">{warning.target}</Cell>
              </>
            )}
          />
        )}
      </Panel>
      <Curl method="GET" path={ADDRESS} />
    </>
  );
}

/** How often it was said, with since when where the pointer rests. */
function Times({ warning: { times, first_at_unix_ms } }: { warning: Warning }) {
  const since = new Date(first_at_unix_ms).toLocaleString("sv", { dateStyle: "short", timeStyle: "medium" });
  return <span title={`since ${since}`}>{count(times)}</span>;
}
