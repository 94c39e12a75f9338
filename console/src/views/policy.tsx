// One policy: its numbers, a change of it with the difference before it is saved, and what became of it over time.

import { useEffect, useMemo, useState } from "preact/hooks";
import { mayConfigure, path, RequestError, session } from "../api";
import { count, perSecond } from "../format";
import { rate, readings, useReadings } from "../metrics";
import { useValue } from "../observable";
import { useAsked } from "../parts/asked";
import { Badge, Empty, Panel, Problem } from "../parts/basics";
import { Changes, type Entry, useLastChanges } from "../parts/changes";
import { Chart } from "../parts/chart";
import { PolicyForm } from "../parts/policy_form";
import { Review } from "../parts/review";
import { ALGORITHMS, type Document, matching, ORIGINS, type Policy, type PolicyList, quota } from "../policy";
import { go, href } from "../router";
import { askedOf, type Verdicts, verdictsOf } from "../verdicts";

/** How often it is looked whether a request has met a policy that none has met yet, in milliseconds. */
const UNMET_PERIOD = 2_000;

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
  const [every, setEvery] = useState<number>();
  const list = useAsked<PolicyList>(`/v1/policies?${new URLSearchParams({ name: props.name })}`, every).body;
  const { origin, asked_since_change: isAsked } = list?.policies[0] ?? {};
  useEffect(() => setEvery(isAsked === false ? UNMET_PERIOD : undefined), [isAsked]);
  const who = useValue(session);
  const reading = useValue(readings).at(-1);
  // The form keeps the version that it began with, whatever is in force meanwhile.
  const [edited, setEdited] = useState<Known & { draft?: Document }>();
  const [deleted, setDeleted] = useState<Known>();
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
  const verdicts = reading && verdictsOf(reading, props.name);
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
                <Counted verdicts={verdicts} />
              </dd>
            </>
          )}
        </dl>
        {isAsked === false && reading && <NotAsked verdicts={verdicts} />}
        <p role="status">{saved && <Badge kind="good">saved and in force</Badge>}</p>
        {deleted && (
          <Review
            what="One of the file, or the built-in one, of this name is then in force again."
            method="DELETE"
            address={path("/v1/policies/{}", props.name)}
            before={deleted.policy}
            after={null}
            etag={deleted.etag}
            verb="Delete"
            done={() => {
              setDeleted(undefined);
              again();
            }}
          />
        )}
        {mayConfigure(who) && !edited && !deleted && (
          <div class="actions">
            <button type="button" class="primary" onClick={() => begin()}>
              Edit
            </button>
            <button type="button" onClick={() => begin({ ...body, mode: isShadow ? "enforce" : "shadow" })}>
              {isShadow ? "Enforce it" : "Switch to shadow"}
            </button>
            {origin === "stored" && (
              <button type="button" onClick={() => setDeleted(current)}>
                Delete the stored one
              </button>
            )}
          </div>
        )}
      </Panel>
      {!edited && verdicts && <OverTime name={props.name} isShadow={isShadow} />}
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

/** What a policy answers, over the last five minutes. */
function OverTime(props: { name: string; isShadow: boolean }) {
  const all = useValue(readings);
  const denied = props.isShadow ? "shadow_denied" : "denied";
  const drawn = useMemo(() => {
    const grown = (kind: keyof Verdicts) =>
      all.map((reading, place) =>
        rate(
          all[Math.max(place - 1, 0)] ?? reading,
          reading,
          (it) => verdictsOf(it, props.name)?.[kind] ?? 0,
        ),
      );
    return { at: all.map(({ at }) => at / 1000), values: [grown("allowed"), grown(denied)] };
  }, [all, props.name, denied]);
  const words = props.isShadow ? "would be denied" : "denied";
  return (
    <Panel title="Verdicts per second" two>
      <Chart
        summary={`Verdicts of ${props.name} per second over the last five minutes; now ${perSecond(drawn.values[0]?.at(-1))} allowed, ${perSecond(drawn.values[1]?.at(-1))} ${words}.`}
        at={drawn.at}
        values={drawn.values}
        lines={[
          { label: "allowed", color: "--accent", fill: true },
          { label: words, color: "--bad", dash: [5, 3] },
        ]}
        format={perSecond}
      />
    </Panel>
  );
}

/** What a policy answered since the process began. */
function Counted({ verdicts }: { verdicts: Verdicts | undefined }) {
  if (!verdicts)
    return (
      <span class="hint">counted together with others: there are more policies than are told apart</span>
    );
  const { allowed, denied, shadow_denied } = verdicts;
  return (
    <>
      {count(allowed)} allowed, {count(denied)} denied
      {shadow_denied > 0 && `, ${count(shadow_denied)} would have been denied`}{" "}
      <span class="hint">since the process began</span>
    </>
  );
}

/** Says that no request has met the policy as it is. One that was met at all was met before its last change. */
function NotAsked({ verdicts }: { verdicts: Verdicts | undefined }) {
  const since = !verdicts
    ? "its last change, or since the process began"
    : askedOf(verdicts) > 0
      ? "it was changed"
      : "the process began";
  return (
    <p class="note" role="note">
      <Badge kind="warn">not asked yet</Badge> No request has met this policy since {since}. Is what it
      applies to what clients send? <a href={href(["clients"])}>Look at a client</a> with the attributes of
      its requests.
    </p>
  );
}

/** How many of the last changes are searched for those of the policy. */
const SEARCHED = 1_000;

function History(props: { name: string; current: Document | undefined; etag: string }) {
  const who = useValue(session);
  const [reverted, setReverted] = useState<Entry>();
  const { body, error } = useLastChanges(SEARCHED);
  const own = body?.entries.filter(({ kind, name }) => kind === "policy" && name === props.name).reverse();
  // Another version in force makes the question void.
  useEffect(() => setReverted(undefined), [props.etag]);
  return (
    <Panel title="History" wide>
      {error !== undefined && !body && <Problem what="Its changes cannot be read." error={error} />}
      {own?.length === 0 && (
        <Empty>
          {body && body.after > 0
            ? `None of the last ${count(SEARCHED)} changes is of this policy.`
            : "It was never changed through the API."}
        </Empty>
      )}
      {own && own.length > 0 && (
        <Changes
          entries={own}
          action={(entry) =>
            mayConfigure(who) &&
            (reverted?.revision === entry.revision ? (
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
