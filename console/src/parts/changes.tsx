// Changes of the configuration as lines of the audit log, each with what became of the document.

import { href } from "../router";
import { Badge, When } from "./basics";
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
}

/** Where a document is shown. */
function place(entry: Entry): string | undefined {
  switch (entry.kind) {
    case "policy":
      return href(["policies", entry.name]);
    case "override":
    case "usage":
      return href(["clients"], { id: entry.name });
    default:
      return undefined;
  }
}

const WORDS: Record<string, string> = { override: "limits of client", usage: "usage of client" };

/** `created`, `changed`, `deleted`, `reset`. */
function verb(entry: Entry): string {
  if (entry.kind === "usage") return "reset";
  if (entry.after === null) return "deleted";
  return entry.before === null ? "created" : "changed";
}

export function Changes(props: {
  entries: readonly Entry[];
  action?: (entry: Entry) => preact.ComponentChild;
}) {
  return (
    <ol class="changes">
      {props.entries.map((entry) => {
        const link = place(entry);
        return (
          <li key={`${entry.revision} ${entry.kind} ${entry.name}`}>
            <p>
              <When ms={entry.at_ms} short /> <Badge kind="plain">{entry.actor}</Badge> {verb(entry)}{" "}
              {WORDS[entry.kind] ?? entry.kind} {link ? <a href={link}>{entry.name}</a> : <b>{entry.name}</b>}{" "}
              <span class="hint">revision {entry.revision}</span>
            </p>
            {entry.kind !== "usage" && (
              <details>
                <summary>What changed</summary>
                <Difference before={entry.before} after={entry.after} />
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
