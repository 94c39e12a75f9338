// The fields of a policy. What is wrong with one stands beside it, in the words of the server's own checker.

import { useState } from "preact/hooks";
import { path, type RequestError } from "../api";
import { ALGORITHMS, type Document, numbersOf } from "../policy";
import { Curl, Field, Problem } from "./basics";
import { LABELS, NumberInput } from "./numbers";
import { Review } from "./review";

const QUOTA = ["limit", "window_seconds", "burst", "lease_seconds", "period", "time_zone"];
const FAILURES: Record<string, string> = {
  local: "each node decides for itself",
  open: "let requests through",
  closed: "deny them",
};

/** What is typed, before it is a document. */
interface Draft {
  name: string;
  algorithm: string;
  mode: string;
  on_store_failure: string;
  key: string;
  match: string;
  replaces: string;
  numbers: Record<string, string>;
}

const list = (value: unknown) => (Array.isArray(value) ? value.join(", ") : "");

function draftOf(document: Document): Draft {
  const text = (name: string) => (document[name] === undefined ? "" : String(document[name]));
  return {
    name: text("name"),
    algorithm: text("algorithm"),
    mode: text("mode") || "enforce",
    on_store_failure: text("on_store_failure") || "local",
    key: list(document.key),
    match: document.match === undefined ? "" : JSON.stringify(document.match, undefined, 1),
    replaces: list(document.replaces),
    numbers: Object.fromEntries(QUOTA.map((name) => [name, text(name)])),
  };
}

const names = (text: string) =>
  text
    .split(",")
    .map((name) => name.trim())
    .filter(Boolean);

/** What the form has fields for. */
const SHOWN = ["name", "algorithm", ...QUOTA, "key", "match", "mode", "on_store_failure", "replaces"];

/** The document: what the form does not show is as it was, such as `tiers`. What is no JSON stays as it was typed, and
 * the checker says so. */
function documentOf(draft: Draft, original: Document): Document {
  const kept = Object.entries(original).filter(([name]) => !SHOWN.includes(name));
  const document: Document = { ...Object.fromEntries(kept), name: draft.name, algorithm: draft.algorithm };
  for (const name of numbersOf(draft.algorithm)) {
    const text = draft.numbers[name] ?? "";
    if (text !== "")
      document[name] =
        name === "period" || name === "time_zone" || Number.isNaN(Number(text)) ? text : Number(text);
  }
  document.key = names(draft.key);
  if (draft.match.trim() !== "") {
    try {
      document.match = JSON.parse(draft.match);
    } catch {
      document.match = draft.match;
    }
  }
  document.mode = draft.mode;
  document.on_store_failure = draft.on_store_failure;
  if (draft.replaces.trim() !== "") document.replaces = names(draft.replaces);
  return document;
}

export function PolicyForm(props: {
  document: Document;
  etag: string;
  /** What the fields begin with, if not with the document. It is reviewed at once. */
  draft?: Document | undefined;
  isNew?: boolean;
  /** The name of what was saved; none if nothing was. */
  done: (name?: string) => void;
}) {
  const [draft, setDraft] = useState(() => draftOf(props.draft ?? props.document));
  const [reviewed, setReviewed] = useState(props.draft !== undefined);
  const [refused, setRefused] = useState<RequestError>();
  const change = (part: Partial<Draft>) => setDraft({ ...draft, ...part });
  const original = props.draft ?? props.document;
  const document = documentOf(draft, original);
  const kept = Object.keys(original).filter((name) => !SHOWN.includes(name));
  const fields = [
    "name",
    "algorithm",
    "key",
    "match",
    "mode",
    "on_store_failure",
    "replaces",
    ...numbersOf(draft.algorithm),
  ];
  const mistake = (field: string) => {
    const found = refused?.errors.find(
      ({ pointer }) => pointer === `/${field}` || pointer.startsWith(`/${field}/`),
    );
    return (
      found && `${found.pointer.slice(field.length + 1)} ${found.detail}; accepted: ${found.accepted}`.trim()
    );
  };
  const placed = refused?.errors.every(({ pointer }) => fields.includes(pointer.split("/")[1] ?? "")) ?? true;
  if (reviewed) {
    return (
      <Review
        what={
          props.isNew
            ? "It is in force as soon as it is saved."
            : "In force as soon as it is saved. What clients have used is kept."
        }
        method="PUT"
        address={path("/v1/policies/{}", draft.name)}
        before={props.isNew ? null : props.document}
        after={document}
        etag={props.etag}
        verb="Save"
        done={(saved) => {
          if (saved) props.done(draft.name);
          else if (props.draft !== undefined) props.done();
          else setReviewed(false);
        }}
        refused={(error) => {
          setRefused(error);
          setReviewed(false);
        }}
      />
    );
  }
  return (
    <form
      class="edit"
      onSubmit={(event) => {
        event.preventDefault();
        setRefused(undefined);
        setReviewed(true);
      }}
    >
      {refused && !placed && <Problem what="It is not saved." error={refused} />}
      {refused && placed && (
        <p class="problem" role="alert">
          <strong>It is not saved:</strong> {refused.message}. What is wrong stands at its field.
        </p>
      )}
      {props.isNew && (
        <Field label="Name" hint="Lower-case letters, digits, - _ and ." error={mistake("name")}>
          {(attributes) => (
            <input
              {...attributes}
              required
              autocomplete="off"
              spellcheck={false}
              value={draft.name}
              onInput={(event) => change({ name: event.currentTarget.value.trim() })}
            />
          )}
        </Field>
      )}
      <Field label="Algorithm" error={mistake("algorithm")}>
        {(attributes) => (
          <select
            {...attributes}
            value={draft.algorithm}
            onChange={(event) => change({ algorithm: event.currentTarget.value })}
          >
            {Object.entries(ALGORITHMS).map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        )}
      </Field>
      {numbersOf(draft.algorithm).map((name) => (
        <Field key={name} label={LABELS[name] ?? name} error={mistake(name)}>
          {(attributes) => (
            <NumberInput
              {...attributes}
              {...(name === "period" || name === "time_zone" ? { inputMode: "text" } : {})}
              value={draft.numbers[name] ?? ""}
              change={(text) => change({ numbers: { ...draft.numbers, [name]: text } })}
            />
          )}
        </Field>
      ))}
      <Field
        label="Counted by"
        hint="Attributes, with commas; none: one counter for all."
        error={mistake("key")}
      >
        {(attributes) => (
          <input
            {...attributes}
            spellcheck={false}
            value={draft.key}
            onInput={(event) => change({ key: event.currentTarget.value })}
          />
        )}
      </Field>
      <Field
        label="Applies to"
        wide
        hint='Attribute to pattern: {"resource": "api", "path": "/v1/*"}; empty: every request.'
        error={mistake("match")}
      >
        {(attributes) => (
          <textarea
            {...attributes}
            rows={3}
            spellcheck={false}
            value={draft.match}
            onInput={(event) => change({ match: event.currentTarget.value })}
          />
        )}
      </Field>
      <Field label="Denials" error={mistake("mode")}>
        {(attributes) => (
          <select
            {...attributes}
            value={draft.mode}
            onChange={(event) => change({ mode: event.currentTarget.value })}
          >
            <option value="enforce">are enforced</option>
            <option value="shadow">are only counted (shadow)</option>
          </select>
        )}
      </Field>
      <Field label="Without the store" error={mistake("on_store_failure")}>
        {(attributes) => (
          <select
            {...attributes}
            value={draft.on_store_failure}
            onChange={(event) => change({ on_store_failure: event.currentTarget.value })}
          >
            {Object.entries(FAILURES).map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field
        label="Replaces"
        hint="Policies that are left out where this one applies."
        error={mistake("replaces")}
      >
        {(attributes) => (
          <input
            {...attributes}
            spellcheck={false}
            value={draft.replaces}
            onInput={(event) => change({ replaces: event.currentTarget.value })}
          />
        )}
      </Field>
      {kept.length > 0 && (
        <p class="hint">
          Kept as it is: <code>{kept.join(", ")}</code>, which this form has no field for.
        </p>
      )}
      <div class="actions">
        <button class="primary" type="submit">
          Review
        </button>
        <button type="button" onClick={() => props.done()}>
          Cancel
        </button>
      </div>
      <Curl method="PUT" path={path("/v1/policies/{}", draft.name)} body={document} ifMatch={props.etag} />
    </form>
  );
}
