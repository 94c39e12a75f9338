// A client's own numbers under one policy, in the one document that has those under all.

import { useEffect, useState } from "preact/hooks";
import { ask, path, RequestError } from "../api";
import { ALGORITHMS, type Document, numbersOf } from "../policy";
import type { Explained } from "../views/clients";
import { Curl, Field, Problem } from "./basics";
import { Difference } from "./difference";
import { LABELS, NumberInput } from "./numbers";

type Limits = Record<string, Record<string, unknown>>;

interface Stored {
  limits: Limits;
  /** `"0"`: nothing is stored for the client. */
  etag: string;
}

async function read(client: string): Promise<Stored> {
  try {
    const { body, etag } = await ask<Limits>("GET", path("/v1/clients/{}/limits", client));
    return { limits: body, etag: etag ?? '"0"' };
  } catch (error) {
    if (error instanceof RequestError && error.status === 404) return { limits: {}, etag: '"0"' };
    throw error;
  }
}

export function OwnLimitForm(props: { client: string; explained: Explained; done: () => void }) {
  const { policy, own_limits } = props.explained;
  // Those that hold for the client: its own algorithm can be another.
  const held: Document = own_limits ?? policy;
  const names = numbersOf(String(held.algorithm)).filter((name) => typeof held[name] === "number");
  const shown = (name: string) => String(held[name] ?? "");
  const [texts, setTexts] = useState(() => Object.fromEntries(names.map((name) => [name, shown(name)])));
  const [stored, setStored] = useState<Stored>();
  const [conflict, setConflict] = useState<Stored>();
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    read(props.client).then(setStored, setError);
  }, [props.client]);

  // What is as everyone's stays out, so that it follows everyone's when that changes.
  // What has no field here is as it was: an override can have another algorithm or period.
  const numbers: Record<string, unknown> = { ...stored?.limits[policy.name] };
  for (const name of names) {
    delete numbers[name];
    const text = texts[name] ?? "";
    if (text !== "" && text !== String(policy[name] ?? ""))
      numbers[name] = Number.isNaN(Number(text)) ? text : Number(text);
  }
  const kept = Object.keys(numbers).filter((name) => !names.includes(name));
  const document: Limits = { ...stored?.limits };
  if (Object.keys(numbers).length > 0) document[policy.name] = numbers;
  else delete document[policy.name];
  const isEmpty = Object.keys(document).length === 0;
  const method = isEmpty ? "DELETE" : "PUT";
  const address = path("/v1/clients/{}/limits", props.client);
  const body = isEmpty ? undefined : document;
  const mistakes = error instanceof RequestError ? error.errors : [];
  const mistake = (name: string) => {
    const found = mistakes.find(({ pointer }) => pointer.endsWith(`/${policy.name}/${name}`));
    return found && `${found.detail}; accepted: ${found.accepted}`;
  };
  const placed =
    mistakes.length > 0 &&
    mistakes.every(({ pointer }) => names.some((name) => pointer.endsWith(`/${policy.name}/${name}`)));

  const save = async (event: Event) => {
    event.preventDefault();
    if (!stored) return;
    setBusy(true);
    setError(undefined);
    try {
      await ask(method, address, { body, ifMatch: stored.etag });
      props.done();
    } catch (error) {
      if (error instanceof RequestError && error.status === 412) {
        await read(props.client).then(setConflict, setError);
      } else {
        setError(error);
      }
    } finally {
      setBusy(false);
    }
  };

  const unchanged = stored !== undefined && JSON.stringify(document) === JSON.stringify(stored.limits);
  return (
    <form class="edit" onSubmit={(event) => void save(event)}>
      <p class="hint">
        {ALGORITHMS[String(held.algorithm)]}; for <b>{props.client}</b> alone. What is as everyone's follows
        everyone's.
        {kept.length > 0 && (
          <>
            {" "}
            Kept as it is: <code>{kept.map((name) => `${name} ${String(numbers[name])}`).join(", ")}</code>.
          </>
        )}
      </p>
      {names.map((name) => (
        <Field
          key={name}
          label={LABELS[name] ?? name}
          hint={`everyone's: ${policy[name] ?? "none"}`}
          error={mistake(name)}
        >
          {(attributes) => (
            <NumberInput
              {...attributes}
              value={texts[name] ?? ""}
              change={(text) => setTexts({ ...texts, [name]: text })}
            />
          )}
        </Field>
      ))}
      {conflict && stored && (
        <div class="problem" role="alert">
          <p>
            <strong>Somebody else changed this client's limits meanwhile.</strong> Nothing of yours is stored
            yet.
          </p>
          <Difference before={stored.limits} after={conflict.limits} heads={["When you began", "Now"]} />
          <p class="actions">
            <button
              type="button"
              onClick={() => {
                setStored(conflict);
                setConflict(undefined);
              }}
            >
              Keep mine for this policy, on top of theirs
            </button>
            <button type="button" onClick={props.done}>
              Take theirs
            </button>
          </p>
        </div>
      )}
      {error !== undefined && !placed && <Problem what="It is not stored." error={error} />}
      <div class="actions">
        <button
          class="primary"
          type="submit"
          disabled={busy || !stored || unchanged || conflict !== undefined}
        >
          Save
        </button>
        <button type="button" onClick={props.done}>
          Cancel
        </button>
        {unchanged && <span class="hint">It is so already.</span>}
      </div>
      <Curl method={method} path={address} body={body} ifMatch={stored?.etag} />
    </form>
  );
}
