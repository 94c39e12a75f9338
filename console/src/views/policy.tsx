// One policy: its numbers, a change of it with the difference before it is saved, and what became of it over time.

import { useEffect, useState } from "preact/hooks";
import { ask, mayConfigure, path, RequestError, session } from "../api";
import { revision } from "../events";
import { count } from "../format";
import { readings, total, useReadings } from "../metrics";
import { useValue } from "../observable";
import { useAsked } from "../parts/asked";
import { Badge, Empty, Panel, Problem } from "../parts/basics";
import { Changes, type Entry } from "../parts/changes";
import { PolicyForm } from "../parts/policy_form";
import { Review } from "../parts/review";
import {
  ALGORITHMS,
  type Document,
  type ListedPolicy,
  matching,
  ORIGINS,
  type Policy,
  quota,
} from "../policy";
import { go, href } from "../router";

/** The address of a policy that is not there yet. */
const NEW = "+";

const FRESH: Document = {
  name: "",
  algorithm: "sliding_log",
  limit: 100,
  window_seconds: 60,
  key: ["client_id"],
  mode: "enforce",
};

export function PolicyPage(props: { name: string }) {
  if (props.name === NEW) return <NewPolicy />;
  return <KnownPolicy name={props.name} />;
}

function NewPolicy() {
  const who = useValue(session);
  if (!mayConfigure(who)) return <Empty>Your token may read, and not configure.</Empty>;
  return (
    <Panel title="A new policy" wide>
      <PolicyForm
        document={FRESH}
        etag='"0"'
        isNew
        done={(name) => go(name === undefined ? ["policies"] : ["policies", name])}
      />
    </Panel>
  );
}

/** What is in force under the name: the document, its version and its layer. */
interface Known {
  policy: Policy;
  etag: string;
}

function KnownPolicy(props: { name: string }) {
  useReadings();
  const { body, etag, error, again } = useAsked<Policy>(path("/v1/policies/{}", props.name));
  const list = useAsked<{ policies: ListedPolicy[] }>("/v1/policies").body;
  const origin = list?.policies.find(({ policy }) => policy.name === props.name)?.origin;
  const who = useValue(session);
  const reading = useValue(readings).at(-1);
  // The form keeps the version that it began with, whatever is in force meanwhile.
  const [edited, setEdited] = useState<Known & { draft?: Document }>();
  const [saved, setSaved] = useState(false);
  if (error instanceof RequestError && error.status === 404) {
    return (
      <>
        <Empty>
          There is no policy {props.name} in force. <a href={href(["policies"])}>All policies</a>
        </Empty>
        <History name={props.name} current={undefined} etag='"0"' />
      </>
    );
  }
  if (error !== undefined && !body)
    return <Problem what="The policy cannot be read." error={error} retry={again} />;
  if (!body) return <Empty>Asking …</Empty>;
  const current: Known = { policy: body, etag: etag ?? '"0"' };
  const verdicts = (result: string) =>
    reading ? total(reading, "tidegate_decisions_total", { policy: props.name, result }) : 0;
  const asked = verdicts("allowed") + verdicts("denied") + verdicts("shadow_denied");
  const isShadow = body.mode === "shadow";
  const begin = (draft?: Document) => {
    setSaved(false);
    setEdited(draft ? { ...current, draft } : current);
  };
  return (
    <div class="grid">
      <Panel
        title={props.name}
        actions={isShadow ? <Badge kind="plain">shadow: it denies nothing</Badge> : undefined}
      >
        <dl class="facts">
          <dt>Limit</dt>
          <dd>{quota(body)}</dd>
          <dt>Algorithm</dt>
          <dd>{ALGORITHMS[body.algorithm]}</dd>
          <dt>Applies to</dt>
          <dd>{matching(body)}</dd>
          <dt>Counted by</dt>
          <dd>{body.key.length > 0 ? body.key.join(", ") : "one counter for all"}</dd>
          <dt>Comes from</dt>
          <dd>
            {origin === undefined ? "…" : (ORIGINS[origin] ?? origin)}
            {origin === "stored" && <span class="hint"> at revision {current.etag.replaceAll('"', "")}</span>}
          </dd>
          {reading && (
            <>
              <dt>Verdicts</dt>
              <dd>
                {count(verdicts("allowed"))} allowed, {count(verdicts("denied"))} denied
                {verdicts("shadow_denied") > 0 &&
                  `, ${count(verdicts("shadow_denied"))} would have been denied`}{" "}
                <span class="hint">since the process began</span>
              </dd>
            </>
          )}
        </dl>
        {reading && asked === 0 && (
          <p class="note" role="note">
            <Badge kind="warn">not asked yet</Badge> No request has met this policy since the process began.
            Is what it applies to what clients send? <a href={href(["clients"])}>Look at a client</a> with the
            attributes of its requests.
          </p>
        )}
        <p role="status">{saved && <Badge kind="good">saved and in force</Badge>}</p>
        {mayConfigure(who) && !edited && (
          <div class="actions">
            <button type="button" class="primary" onClick={() => begin()}>
              Edit
            </button>
            <button type="button" onClick={() => begin({ ...body, mode: isShadow ? "enforce" : "shadow" })}>
              {isShadow ? "Enforce it" : "Switch to shadow"}
            </button>
            {origin === "stored" && <Delete name={props.name} etag={current.etag} done={() => again()} />}
          </div>
        )}
      </Panel>
      {edited && (
        <Panel title="Change it">
          <PolicyForm
            key={edited.etag}
            document={edited.policy}
            etag={edited.etag}
            draft={edited.draft}
            done={(name) => {
              setEdited(undefined);
              setSaved(name !== undefined);
              again();
            }}
          />
        </Panel>
      )}
      <History name={props.name} current={body} etag={current.etag} />
    </div>
  );
}

/** How many of the last changes are searched for those of the policy. */
const SEARCHED = 1_000;

function History(props: { name: string; current: Document | undefined; etag: string }) {
  const inForce = useValue(revision);
  const who = useValue(session);
  const [reverted, setReverted] = useState<Entry>();
  const after = Math.max((inForce ?? 0) - SEARCHED, 0);
  const { body, error } = useAsked<Entry[]>(
    inForce === undefined ? undefined : `/v1/audit?after=${after}&limit=${SEARCHED}`,
  );
  const own = body?.filter(({ kind, name }) => kind === "policy" && name === props.name).reverse();
  // Another version in force makes the question void.
  useEffect(() => setReverted(undefined), [props.etag]);
  return (
    <Panel title="History" wide>
      {error !== undefined && !body && <Problem what="Its changes cannot be read." error={error} />}
      {own?.length === 0 && (
        <Empty>
          {after > 0
            ? `None of the last ${count(SEARCHED)} changes is of this policy.`
            : "It was never changed through the API."}
        </Empty>
      )}
      {own && own.length > 0 && (
        <Changes
          entries={own}
          action={(entry) =>
            mayConfigure(who) &&
            (reverted === entry ? (
              <Review
                what={
                  entry.before === null
                    ? "Deletes the stored policy again."
                    : "Puts back what was in force before this change."
                }
                method={entry.before === null ? "DELETE" : "PUT"}
                address={path("/v1/policies/{}", props.name)}
                before={props.current ?? null}
                after={entry.before}
                etag={props.etag}
                verb="Revert"
                done={() => setReverted(undefined)}
              />
            ) : (
              <button type="button" onClick={() => setReverted(entry)}>
                Revert to before it
              </button>
            ))
          }
        />
      )}
    </Panel>
  );
}

function Delete(props: { name: string; etag: string; done: () => void }) {
  const [sure, setSure] = useState(false);
  const [error, setError] = useState<unknown>();
  const remove = async () => {
    try {
      await ask("DELETE", path("/v1/policies/{}", props.name), { ifMatch: props.etag });
      props.done();
    } catch (error) {
      setError(error);
    }
    setSure(false);
  };
  return (
    <>
      {sure ? (
        <span class="confirm" role="group" aria-label="Delete it">
          One of the file, or the built-in one, of this name is then in force again.{" "}
          <button type="button" class="danger" onClick={() => void remove()}>
            Delete
          </button>{" "}
          <button type="button" onClick={() => setSure(false)}>
            Cancel
          </button>
        </span>
      ) : (
        <button type="button" onClick={() => setSure(true)}>
          Delete the stored one
        </button>
      )}
      {error !== undefined && <Problem what="It is not deleted." error={error} />}
    </>
  );
}
