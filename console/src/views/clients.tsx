// One client: what every policy says of it now, why it is denied, its own limits, and a new start.

import { useState } from "preact/hooks";
import { ask, mayConfigure, path, RequestError, session } from "../api";
import { pairsOf } from "../attributes";
import { count, counted, wait } from "../format";
import { useValue } from "../observable";
import { useAsked } from "../parts/asked";
import { Badge, Curl, Empty, Field, Meter, Panel, Problem } from "../parts/basics";
import { Fares, MostDenied, Nearest } from "../parts/heaviest";
import { OwnLimitForm } from "../parts/own_limit";
import { ORIGINS, type Policy, quota } from "../policy";
import { go, href } from "../router";

interface Verdict {
  allowed: boolean;
  limit: number;
  remaining: number;
  reset_ms?: number;
  retry_after_ms?: number;
  mode: string;
}

export interface Explained {
  policy: Policy;
  origin: string;
  applies: boolean;
  because_of?: string;
  own_limits?: Record<string, unknown>;
  verdict?: Verdict;
}

interface Explanation {
  allowed: boolean;
  no_match?: boolean;
  degraded?: string;
  policies: Explained[];
  /** How many more policies do not apply. */
  not_listed?: number;
}

/** What is used before the request that is asked about, whose unit an allowing verdict has taken already. */
function used(verdict: Verdict): number {
  return Math.max(verdict.limit - verdict.remaining - (verdict.allowed ? 1 : 0), 0);
}

/** Most policies that do not apply which are listed. */
const LISTED = 50;

export function Clients(props: { query: URLSearchParams }) {
  const id = props.query.get("id") ?? "";
  const more = props.query.get("with") ?? "";
  return (
    <>
      <Search id={id} more={more} key={`${id} ${more}`} />
      {id === "" ? <Lists /> : <Client id={id} more={more} key={id} />}
    </>
  );
}

function Search(props: { id: string; more: string }) {
  const [id, setId] = useState(props.id);
  const [more, setMore] = useState(props.more);
  const submit = (event: Event) => {
    event.preventDefault();
    go(["clients"], { id: id.trim(), with: more.trim() });
  };
  return (
    <form class="search" role="search" onSubmit={submit}>
      <Field label="Client" hint="Its client_id, as it is sent.">
        {(attributes) => (
          <input
            {...attributes}
            type="search"
            autocomplete="off"
            spellcheck={false}
            maxLength={512}
            value={id}
            onInput={(event) => setId(event.currentTarget.value)}
          />
        )}
      </Field>
      <Field
        label="And"
        hint="Further attributes of a request, such as resource=api path=/v1/users. With a space: name=&quot;a b&quot;"
      >
        {(attributes) => (
          <input
            {...attributes}
            autocomplete="off"
            spellcheck={false}
            value={more}
            onInput={(event) => setMore(event.currentTarget.value)}
          />
        )}
      </Field>
      <button class="primary" type="submit">
        Look
      </button>
      <Curl method="GET" path={id.trim() === "" ? "/v1/denied-clients" : explainPath(id.trim(), more)} />
    </form>
  );
}

/** The query for a request of the client with further attributes, written as `resource=api path=/x`. */
function explainPath(id: string, more: string): string {
  const query = new URLSearchParams({ client_id: id, not_applying: String(LISTED) });
  for (const [name, value] of pairsOf(more)) query.append(name, value);
  return `/v1/explain?${query}`;
}

function Client(props: { id: string; more: string }) {
  const asked = explainPath(props.id, props.more);
  const { body, error, again } = useAsked<Explanation>(asked, 2_000);
  if (error !== undefined && !body) {
    return <Problem what="What would become of its requests is not known." error={error} retry={again} />;
  }
  if (!body) return <Empty>Asking …</Empty>;
  const applying = body.policies.filter((it) => it.applies);
  const others = body.policies.filter((it) => !it.applies);
  const more = body.not_listed ?? 0;
  return (
    <>
      <Summary id={props.id} more={props.more} explanation={body} />
      {error !== undefined && <Problem what="This is the last that is known." error={error} />}
      <div class="grid">
        {applying.map((it) => (
          <ClientPolicy key={it.policy.name} id={props.id} more={props.more} explained={it} reload={again} />
        ))}
      </div>
      {others.length > 0 && (
        <Panel
          title={`${count(others.length + more)} ${others.length + more === 1 ? "policy does" : "policies do"} not apply`}
          wide
        >
          <ul class="plain">
            {others.map((it) => (
              <li key={it.policy.name}>
                <a href={href(["policies", it.policy.name])}>{it.policy.name}</a>: the attribute{" "}
                <code>{it.because_of}</code> is absent or does not match
              </li>
            ))}
          </ul>
          {more > 0 && <p class="hint">and {count(more)} more</p>}
        </Panel>
      )}
    </>
  );
}

/** Why, in one sentence. */
function Summary(props: { id: string; more: string; explanation: Explanation }) {
  const { explanation } = props;
  const denying = explanation.policies.filter(
    (it) => it.verdict && !it.verdict.allowed && it.verdict.mode !== "shadow",
  );
  const longest = denying.reduce((most, it) => Math.max(most, it.verdict?.retry_after_ms ?? Infinity), 0);
  const first = denying[0];
  return (
    <section class="summary">
      <p role="status">
        <Badge kind={explanation.allowed ? "good" : "bad"}>
          {explanation.allowed ? "allowed" : "denied"}
        </Badge>{" "}
        {explanation.allowed && !explanation.no_match && (
          <>
            A request of <b>{props.id}</b> would be allowed now.
          </>
        )}
        {explanation.no_match && (
          <>
            No policy applies to this request of <b>{props.id}</b>, so <code>on_no_match</code> decides.
          </>
        )}
        {!explanation.allowed && first && (
          <>
            <b>{props.id}</b> is denied by{" "}
            {denying.length === 1 ? (
              <>
                the policy <a href={href(["policies", first.policy.name])}>{first.policy.name}</a>: it has
                used {count((first.verdict?.limit ?? 0) - (first.verdict?.remaining ?? 0))} of{" "}
                {quota(numbers(first))}.
              </>
            ) : (
              <>{counted(denying.length, "policy", "policies")}.</>
            )}{" "}
            {longest === Infinity
              ? "Waiting does not help: the limit is too small for it."
              : `The same request is allowed in ${wait(longest)}.`}
          </>
        )}
      </p>
      <Fares id={props.id} more={props.more} />
      {explanation.degraded && (
        <p class="hint">Answered without the counters' store: {explanation.degraded}.</p>
      )}
    </section>
  );
}

/** The numbers that hold for the client. */
function numbers(explained: Explained): Record<string, unknown> {
  return explained.own_limits ?? explained.policy;
}

function ClientPolicy(props: { id: string; more: string; explained: Explained; reload: () => void }) {
  const { explained } = props;
  const { policy, verdict } = explained;
  const who = useValue(session);
  const [isOpen, setOpen] = useState(false);
  return (
    <Panel
      title={policy.name}
      actions={
        <span class="badges">
          {policy.mode === "shadow" && <Badge kind="plain">shadow</Badge>}
          {verdict && (
            <Badge kind={verdict.allowed ? "good" : "bad"}>
              {verdict.allowed ? "allows" : policy.mode === "shadow" ? "would deny" : "denies"}
            </Badge>
          )}
        </span>
      }
    >
      <dl class="facts">
        <dt>Limit</dt>
        <dd>
          {quota(numbers(explained))}{" "}
          <span class="hint">{explained.own_limits ? "the client's own" : "everyone's"}</span>
        </dd>
        {verdict && (
          <>
            <dt>Used</dt>
            <dd>
              {count(used(verdict))} of {count(verdict.limit)}
              <Meter used={used(verdict)} limit={verdict.limit} label={`Used under ${policy.name}`} />
            </dd>
            {!verdict.allowed && (
              <>
                <dt>Allowed again</dt>
                <dd>
                  {verdict.retry_after_ms === undefined
                    ? "never: the limit is too small"
                    : `in ${wait(verdict.retry_after_ms)}`}
                </dd>
              </>
            )}
            <dt>All of it is back</dt>
            <dd>{verdict.reset_ms ? `in ${wait(verdict.reset_ms)}` : "now"}</dd>
          </>
        )}
        {!verdict && (
          <>
            <dt>Verdict</dt>
            <dd>none: another policy that applies replaces it</dd>
          </>
        )}
        <dt>Counted by</dt>
        <dd>{policy.key.length > 0 ? policy.key.join(", ") : "one counter for all"}</dd>
        <dt>Comes from</dt>
        <dd>{ORIGINS[explained.origin] ?? explained.origin}</dd>
      </dl>
      {mayConfigure(who) && (
        <div class="actions">
          <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            {explained.own_limits ? "Change its own limit" : "Give it its own limit"}
          </button>
          {policy.key.includes("client_id") && (
            <Reset id={props.id} more={props.more} policy={policy.name} reload={props.reload} />
          )}
        </div>
      )}
      {isOpen && (
        <OwnLimitForm
          client={props.id}
          explained={explained}
          done={() => {
            setOpen(false);
            props.reload();
          }}
        />
      )}
    </Panel>
  );
}

/** Lets the client start anew, after a second click. */
function Reset(props: { id: string; more: string; policy: string; reload: () => void }) {
  const [state, setState] = useState<"idle" | "sure" | "done">("idle");
  const [error, setError] = useState<unknown>();
  const query = new URLSearchParams({ policy: props.policy });
  for (const [name, value] of pairsOf(props.more)) query.append(name, value);
  const address = `${path("/v1/clients/{}/usage", props.id)}?${query}`;
  const reset = async () => {
    try {
      const { body } = await ask<{ reset: string[]; not_reset: { policy: string; because_of: string }[] }>(
        "DELETE",
        address,
      );
      const left = body.not_reset[0];
      if (left)
        throw new RequestError(
          0,
          `The policy is keyed on ${left.because_of}, too: state it beside the client.`,
        );
      setState("done");
      setError(undefined);
      props.reload();
    } catch (error) {
      setError(error);
      setState("idle");
    }
  };
  return (
    <>
      {state !== "sure" && (
        <button type="button" onClick={() => setState("sure")}>
          Reset its usage
        </button>
      )}
      {state === "sure" && (
        <span class="confirm" role="group" aria-label="Reset its usage">
          It starts anew under {props.policy}.{" "}
          <button type="button" class="danger" onClick={() => void reset()}>
            Reset
          </button>{" "}
          <button type="button" onClick={() => setState("idle")}>
            Cancel
          </button>
          <Curl method="DELETE" path={address} />
        </span>
      )}
      <span role="status">{state === "done" && "Its usage is reset."}</span>
      {error !== undefined && <Problem what="Its usage was not reset." error={error} />}
    </>
  );
}

interface Listed {
  client_id: string;
  limits: Record<string, Record<string, unknown>>;
}

/** Most clients of a list. */
const LISTED_CLIENTS = 25;

function Lists() {
  const own = useAsked<Listed[]>("/v1/clients?limit=100");
  return (
    <div class="grid">
      <MostDenied most={LISTED_CLIENTS} />
      <Nearest most={LISTED_CLIENTS} />
      <Panel title="With limits of their own">
        {own.error !== undefined && !own.body && <Problem what="They cannot be read." error={own.error} />}
        {own.body?.length === 0 && (
          <Empty>No client has limits of its own. Look at one to give it some.</Empty>
        )}
        <ol class="clients">
          {own.body?.map((client) => (
            <li key={client.client_id}>
              <a href={href(["clients"], { id: client.client_id })}>{client.client_id}</a>
              <span>{Object.keys(client.limits).join(", ")}</span>
            </li>
          ))}
        </ol>
        {own.body?.length === 100 && (
          <p class="hint">These are the first 100 by name; the others are found by their id.</p>
        )}
      </Panel>
    </div>
  );
}
