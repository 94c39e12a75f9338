// A change before it is made: what differs, the command that does the same, and what to do when somebody was faster.

import { useState } from "preact/hooks";
import { ask, RequestError } from "../api";
import { Curl, Problem } from "./basics";
import { Difference } from "./difference";

export interface ReviewProps {
  what: string;
  method: "PUT" | "DELETE";
  address: string;
  /** What is in force, as it was when the change was begun. */
  before: unknown;
  after: unknown;
  etag: string;
  /** The field of what is at the address that the document is, where it is not all of it. */
  part?: string;
  verb: string;
  done: (saved: boolean) => void;
  /** Mistakes that are shown elsewhere. */
  refused?: (error: RequestError) => void;
}

/** What somebody else has put meanwhile. */
interface Theirs {
  document: unknown;
  etag: string;
}

async function theirs(address: string, part: string | undefined): Promise<Theirs> {
  try {
    const { body, etag } = await ask<Record<string, unknown>>("GET", address);
    return { document: part === undefined ? body : body[part], etag: etag ?? '"0"' };
  } catch (error) {
    if (error instanceof RequestError && error.status === 404) return { document: null, etag: '"0"' };
    throw error;
  }
}

export function Review(props: ReviewProps) {
  const [base, setBase] = useState<Theirs>({ document: props.before, etag: props.etag });
  const [conflict, setConflict] = useState<Theirs>();
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const body = props.method === "PUT" ? props.after : undefined;
  const save = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await ask(props.method, props.address, { body, ifMatch: base.etag });
      props.done(true);
    } catch (error) {
      if (error instanceof RequestError && error.status === 412)
        await theirs(props.address, props.part).then(setConflict, setError);
      else if (error instanceof RequestError && error.status === 422 && props.refused) props.refused(error);
      else setError(error);
    } finally {
      setBusy(false);
    }
  };
  if (conflict) {
    return (
      <div class="problem" role="alert">
        <p>
          <strong>Somebody else changed it meanwhile.</strong> Nothing of yours is stored yet. What they
          changed:
        </p>
        <Difference
          before={base.document}
          after={conflict.document}
          heads={["When you began", "Now in force"]}
        />
        <p>What yours would make of it:</p>
        <Difference before={conflict.document} after={props.after} heads={["Now in force", "Yours"]} />
        <p class="actions">
          <button
            type="button"
            class="danger"
            onClick={() => {
              setBase(conflict);
              setConflict(undefined);
            }}
          >
            Put mine over theirs
          </button>
          <button type="button" onClick={() => props.done(false)}>
            Take theirs
          </button>
        </p>
      </div>
    );
  }
  return (
    <div class="review" role="group" aria-label="Before it is saved">
      <p>{props.what}</p>
      <Difference before={base.document} after={props.after} />
      {error !== undefined && <Problem what="It is not saved." error={error} />}
      <p class="actions">
        <button type="button" class="primary" disabled={busy} onClick={() => void save()}>
          {props.verb}
        </button>
        <button type="button" onClick={() => props.done(false)}>
          Back
        </button>
      </p>
      <Curl method={props.method} path={props.address} body={body} ifMatch={base.etag} />
    </div>
  );
}
