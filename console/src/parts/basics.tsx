// Small parts of every view.

import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { addressOf, RequestError, type Sent, session } from "../api";
import { ago } from "../format";
import { Observable, useValue } from "../observable";

export function Panel(props: {
  title: string;
  /** Where it is, of one that can be chosen. */
  address?: string;
  isChosen?: boolean;
  actions?: ComponentChildren;
  wide?: boolean;
  /** As wide as two where there are three beside one another. */
  two?: boolean;
  children: ComponentChildren;
}) {
  return (
    <section
      class={`panel ${props.wide ? "wide" : props.two ? "two" : ""}`}
      {...chosen(props.isChosen === true)}
    >
      <header>
        <h2>{props.address === undefined ? props.title : <a href={props.address}>{props.title}</a>}</h2>
        {props.actions}
      </header>
      {props.children}
    </section>
  );
}

/** One number that is read from afar. `tone` says in a word what the colour says, too. */
export function Stat(props: {
  label: string;
  value: string;
  note?: ComponentChildren;
  tone?: "good" | "bad";
}) {
  return (
    <div class={`stat ${props.tone ?? ""}`}>
      <dt>{props.label}</dt>
      <dd>
        <b>{props.value}</b>
        {props.note && <span>{props.note}</span>}
      </dd>
    </div>
  );
}

/** What to do where there is nothing to show. */
export function Empty(props: { children: ComponentChildren }) {
  return <p class="empty">{props.children}</p>;
}

/** What happened and what to try. */
export function Problem(props: { error: unknown; what: string; retry?: () => void }) {
  const { error } = props;
  const errors = error instanceof RequestError ? error.errors : [];
  return (
    <div class="problem" role="alert">
      <p>
        <strong>{props.what}</strong> {error instanceof Error ? error.message : String(error)}
      </p>
      {errors.length > 0 && (
        <ul>
          {errors.map(({ pointer, detail, accepted }) => (
            <li key={pointer + detail}>
              <code>{pointer || "/"}</code> {detail}; accepted: {accepted}
            </li>
          ))}
        </ul>
      )}
      {props.retry && (
        <button type="button" onClick={props.retry}>
          Try again
        </button>
      )}
    </div>
  );
}

/** What all times are relative to, so that what is older never looks newer. */
const now = new Observable(Date.now());
setInterval(() => {
  if (!document.hidden) now.set(Date.now());
}, 5_000);

/** The time in the reader's zone, with UTC where the pointer rests. */
export function When(props: { ms: number; short?: boolean }) {
  const date = new Date(props.ms);
  const since = Math.max(useValue(now) - props.ms, 0);
  const iso = date.toISOString();
  const local = date.toLocaleString("sv", { dateStyle: "short", timeStyle: "medium" });
  return (
    <time dateTime={iso} title={`${iso.replace("T", " ").replace(/\.\d+Z/, "")} UTC`}>
      {props.short ? ago(since) : local}
    </time>
  );
}

/** The same of a time that somebody else has written: as it is where it is none. */
export function WhenWritten(props: { text: string }) {
  const ms = Date.parse(props.text);
  return Number.isNaN(ms) ? <span>{props.text}</span> : <When ms={ms} />;
}

/** How much of a limit is used: the bar says what the numbers beside it say. */
export function Meter(props: { used: number; limit: number; label: string }) {
  const share = props.limit > 0 ? Math.min(Math.max(props.used / props.limit, 0), 1) : 1;
  return (
    <span
      class={`meter ${share >= 1 ? "full" : share >= 0.8 ? "near" : ""}`}
      role="meter"
      aria-label={props.label}
      aria-valuemin={0}
      aria-valuemax={props.limit}
      aria-valuenow={Math.min(props.used, props.limit)}
    >
      <span style={{ width: `${100 * share}%` }} />
    </span>
  );
}

/** A word with a sign before it, so that no colour says anything alone. */
export function Badge(props: { kind: "good" | "bad" | "warn" | "plain"; children: ComponentChildren }) {
  const sign = { good: "✓", bad: "✕", warn: "!", plain: "" }[props.kind];
  return (
    <span class={`badge ${props.kind}`}>
      {sign && <span aria-hidden="true">{sign}</span>}
      {props.children}
    </span>
  );
}

/** For a shell: in single quotes unless it needs none. */
function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The command that does what the form does. */
export function curl(
  method: string,
  path: string,
  sent: Pick<Sent, "body" | "ifMatch"> & { file?: string | undefined } = {},
  withToken = false,
): string {
  const words = ["curl"];
  if (method !== "GET") words.push("-X", method);
  words.push(quoted(addressOf(path)));
  if (withToken) words.push("-H", '"authorization: Bearer $TOKEN"');
  if (sent.ifMatch !== undefined) words.push("-H", quoted(`if-match: ${sent.ifMatch}`));
  if (sent.file !== undefined)
    words.push("-H", quoted("content-type: application/json"), "-d", quoted(`@${sent.file}`));
  if (sent.body !== undefined)
    words.push("-H", quoted("content-type: application/json"), "-d", quoted(JSON.stringify(sent.body)));
  return words.join(" ");
}

/** Shows that command. */
export function Curl(props: {
  method: string;
  path: string;
  body?: unknown;
  /** The file that is the body, where it is too long to be shown. */
  file?: string;
  ifMatch?: string | undefined;
  /** With a token, whoever is signed in. */
  withToken?: boolean;
}) {
  const who = useValue(session);
  const [copied, setCopied] = useState(false);
  const needsToken = props.withToken ?? (who.state === "in" && who.name !== "local");
  const text = curl(props.method, props.path, props, needsToken);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <details class="curl">
      <summary>The same with curl</summary>
      <div>
        <pre tabIndex={0}>{text}</pre>
        {navigator.clipboard && (
          <button type="button" onClick={() => void copy().catch(() => setCopied(false))}>
            {copied ? "Copied" : "Copy"}
          </button>
        )}
      </div>
    </details>
  );
}

/** What may be wider than a small screen; by keyboard, too, all of it can be reached. On a telephone the cells of a row stand
 * below one another, each with the head of its column before it. */
export function Scroll(props: { label: string; children: ComponentChildren }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    for (const table of place.current?.querySelectorAll("table") ?? []) {
      const heads = [...(table.tHead?.rows[0]?.cells ?? [])].map(({ textContent }) => textContent ?? "");
      for (const row of [...table.tBodies].flatMap(({ rows }) => [...rows])) {
        for (const cell of row.cells) {
          const label = cell.tagName === "TD" ? heads[cell.cellIndex] : undefined;
          if (label && cell.dataset.label !== label) cell.dataset.label = label;
        }
      }
    }
  });
  return (
    <div ref={place} class="scroll" tabIndex={0} role="region" aria-label={props.label}>
      {props.children}
    </div>
  );
}

function intoSight(element: Element | null): void {
  element?.scrollIntoView({ block: "nearest" });
}

/** What marks the entry that the address names, and brings it into sight. */
export function chosen(isChosen: boolean) {
  return isChosen ? { "aria-current": "true" as const, ref: intoSight } : {};
}

/** A labelled field with the checker's message beside it. */
export function Field(props: {
  label: string;
  hint?: string;
  error?: string | undefined;
  wide?: boolean;
  children: (attributes: {
    id: string;
    "aria-describedby": string;
    "aria-invalid": boolean;
  }) => ComponentChildren;
}) {
  const id = useId();
  return (
    <div class={`field ${props.wide ? "wide" : ""} ${props.error ? "wrong" : ""}`}>
      <label for={id}>{props.label}</label>
      {props.children({ id, "aria-describedby": `${id}-note`, "aria-invalid": props.error !== undefined })}
      <p id={`${id}-note`} class={props.error ? "wrong" : "hint"}>
        {props.error ?? props.hint}
      </p>
    </div>
  );
}
