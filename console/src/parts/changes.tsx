// Changes of the configuration as lines of the audit log, each with what became of the document.

import { ask, type Reply } from "../api";
import { revision } from "../events";
import { useValue } from "../observable";
import { href } from "../router";
import { type Asked, useAsked } from "./asked";
import { Badge, chosen, When } from "./basics";
import { Difference } from "./difference";

export interface Entry {
  revision: number;
  at_ms: number;
  actor: string;
  action: string;
  kind: string;
  name: string;
  before: unknown;
  after: unknown;
  /** The address that asked; of a change of the file, the machine. */
  from?: string | null;
}

/** Changes after a revision and until another one, the oldest first. */
export interface ListedChanges {
  after: number;
  until: number;
  entries: Entry[];
}

/** The address of so many changes until a revision. */
export function changesUntil(until: number, most: number): string {
  return `/v1/audit?after=${Math.max(until - most, 0)}&limit=${most}`;
}

/** The last changes when they are asked for, and not of a revision that the page was told of before: otherwise each change would make
 * another question of it, and while they come fast none would be answered. */
async function lastChanges(path: string, signal: AbortSignal): Promise<Reply<ListedChanges>> {
  const most = Number(new URL(path, location.href).searchParams.get("limit"));
  const known = revision.value ?? 0;
  const reply = await ask<Entry[]>("GET", changesUntil(known, most), { signal });
  const until = Math.max(known, reply.body.at(-1)?.revision ?? 0);
  return { ...reply, body: { after: Math.max(known - most, 0), until, entries: reply.body } };
}

/** The last changes, that many at most, and at each further one again. */
export function useLastChanges(most: number): Asked<ListedChanges> {
  const isKnown = useValue(revision) !== undefined;
  return useAsked(isKnown ? `/v1/audit?limit=${most}` : undefined, undefined, lastChanges);
}

/** A change of the file, which has many settings and documents in it. */
const FILE = "file";

/** Those of a change of the file by kind and name; any other document is shown by its fields. */
function parts({ kind }: Entry, document: unknown): unknown {
  if (kind !== FILE) return document;
  const kinds = Object.entries((document ?? {}) as Record<string, unknown>);
  const named = kinds.flatMap(([kind, all]) =>
    typeof all === "object" && all !== null
      ? Object.entries(all).map(([name, value]) => [`${kind} ${name}`, value])
      : [[kind.replaceAll("_", " "), all]],
  );
  return Object.fromEntries(named);
}

/** What it is of: of a run its target, since it is no document. */
function subject({ kind, name, before }: Entry): string {
  const { wanted } = (kind === "saturation_run" ? before : {}) as { wanted?: { target?: string } };
  return wanted?.target ?? name;
}

/** Where a document is shown. */
function place(entry: Entry): string | undefined {
  switch (entry.kind) {
    case "policy":
      return href(["policies", entry.name]);
    case "override":
    case "usage":
      return href(["clients"], { id: entry.name });
    case "route":
    case "upstream":
      return href(["gateway"], { [entry.kind]: entry.name });
    case "key":
      return href(["keys"], { id: entry.name });
    case "candidate":
      return href(["gateway"]);
    case "edge_backend":
      return href(["edge"], { backend: entry.name });
    case FILE:
      return href(["configuration"]);
    default:
      return undefined;
  }
}

/** The address of a change itself, among those before it. */
function address({ revision }: Entry): string {
  return href(["audit"], { to: String(revision), revision: String(revision) });
}

const WORDS: Record<string, string> = {
  override: "limits of client",
  usage: "usage of client",
  saturation_run: "a saturation run of",
  [FILE]: "the file",
};

/** `created`, `changed`, `deleted`, `reset`; of a run `started`, `cancelled`. */
function verb(entry: Entry): string {
  if (entry.kind === "usage") return "reset";
  if (entry.kind === "saturation_run") return entry.name;
  if (entry.kind === FILE) return "changed";
  if (entry.after === null) return "deleted";
  return entry.before === null ? "created" : "changed";
}

/** Where nothing of a changed file may be shown. */
const NOTHING_SHOWN = "No setting and no document: a comment, a secret, a token or a listener.";

export function Changes(props: {
  entries: readonly Entry[];
  /** The revision of the one that is looked at. */
  chosen?: string | null;
  action?: (entry: Entry) => preact.ComponentChild;
}) {
  return (
    <ol class="changes">
      {props.entries.map((entry) => {
        const link = place(entry);
        return (
          <li
            key={`${entry.revision} ${entry.kind} ${entry.name}`}
            {...chosen(String(entry.revision) === props.chosen)}
          >
            <p>
              <When ms={entry.at_ms} short /> <Badge kind="plain">{entry.actor}</Badge> {verb(entry)}{" "}
              {WORDS[entry.kind] ?? entry.kind}{" "}
              {link ? <a href={link}>{entry.name}</a> : <b>{subject(entry)}</b>}{" "}
              <a class="hint" href={address(entry)}>
                revision {entry.revision}
              </a>
              {entry.from && <span class="hint"> from {entry.from}</span>}
            </p>
            {entry.kind !== "usage" && (
              <details>
                <summary>What changed</summary>
                <Difference
                  before={parts(entry, entry.before)}
                  after={parts(entry, entry.after)}
                  {...(entry.kind === FILE ? { none: NOTHING_SHOWN } : {})}
                />
                <p class="hint">
                  <When ms={entry.at_ms} />
                </p>
              </details>
            )}
            {props.action?.(entry)}
          </li>
        );
      })}
    </ol>
  );
}
