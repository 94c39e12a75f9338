// The candidate: routes, upstreams and policies that are judged on the requests that come, and are promoted or dropped from here. What
// would be changed is shown as differences, and what would become of requests as counts with examples.

import { useState } from "preact/hooks";
import { ask, mayConfigure, session } from "../api";
import { count, counted, percent } from "../format";
import { useValue } from "../observable";
import { useAsked } from "./asked";
import { Badge, Curl, Empty, Panel, Problem, Scroll, WhenWritten } from "./basics";
import { Difference } from "./difference";

const ADDRESS = "/v1/candidate";
/** How often its counts are asked for, in milliseconds. */
const PERIOD = 2_000;
/** So many requests are few to go by. */
const FEW = 100;

type Documents = ({ name: string } & Record<string, unknown>)[];

/** What becomes of a request. */
interface Outcome {
  route?: string;
  forward?: string;
  reply?: number;
  refuse?: { status: number; because: string };
}

interface Judged {
  since: string;
  requests: number;
  by_difference: Record<string, number>;
  examples: {
    difference: string;
    method: string;
    host: string;
    path: string;
    in_force: Outcome;
    candidate: Outcome;
    requests: number;
  }[];
  without_example: number;
}

/** What its policies would have said. */
interface Limits {
  since: string;
  decisions: number;
  by_difference: Record<string, number>;
  examples: {
    difference: string;
    policy: string | null;
    protocol: string;
    client_id: string | null;
    attributes: string | null;
    requests: number;
  }[];
  not_judged: string[];
}

type Kind = "policy" | "upstream" | "route";

interface CandidateNow {
  revision: number;
  candidate: { [kind in Kind]?: Documents } & { remove?: { [kind in Kind]?: string[] } };
  mistakes: string[];
  judged: Judged | null;
  limits: Limits | null;
}

/** Without a candidate the answer is 404, which is no failure. */
const candidateNow = (path: string, signal: AbortSignal) =>
  ask<CandidateNow | { revision?: undefined }>("GET", path, { signal, answers: [404] });

/** The differences in words, the worst first. */
const WORDS: Record<string, string> = {
  would_refuse: "would be refused",
  would_admit: "would be let through",
  other_upstream: "would go to another upstream",
  other_reply: "would be answered otherwise by the gateway",
  other_route: "would be taken by another route",
  other_limits: "would be under other policies",
  other_options: "would be treated otherwise by their route",
};

function told(outcome: Outcome): string {
  const { route, forward, reply, refuse } = outcome;
  const by = route === undefined ? "" : ` by ${route}`;
  if (forward !== undefined) return `to ${forward}${by}`;
  if (reply !== undefined) return `answered ${reply}${by}`;
  return refuse ? `refused with ${refuse.status}, ${refuse.because.replaceAll("_", " ")}${by}` : "–";
}

export function Candidate(props: { routes: Documents; upstreams: Documents }) {
  const { body, etag, error, again } = useAsked(ADDRESS, PERIOD, candidateNow);
  if (error !== undefined && !body) return <Problem what="The candidate is not known." error={error} />;
  if (!body) return null;
  if (body.revision === undefined) {
    return (
      <Panel title="Candidate" wide>
        <Empty>
          There is none. Routes and upstreams can be judged on the requests that come before they are in
          force, and policies, too: <code>PUT /v1/candidate</code> takes them as the file has them.
        </Empty>
      </Panel>
    );
  }
  const { candidate, mistakes, judged, limits } = body;
  return (
    <Panel
      title="Candidate"
      wide
      actions={
        <Badge kind={mistakes.length > 0 ? "bad" : "plain"}>
          {mistakes.length > 0 ? "not judged" : `revision ${body.revision}`}
        </Badge>
      }
    >
      {mistakes.length > 0 && (
        <div class="problem" role="alert">
          <p>
            <strong>It does not go with what is in force now.</strong> Put it again, or drop it.
          </p>
          <ul>
            {mistakes.map((mistake) => (
              <li key={mistake}>{mistake}</li>
            ))}
          </ul>
        </div>
      )}
      {mistakes.length === 0 && !judged && !limits && <Empty>It is judged from the next request on.</Empty>}
      {judged && <Counts judged={judged} />}
      {judged && judged.examples.length > 0 && <Examples judged={judged} />}
      {limits && <Limited limits={limits} />}
      <details class="details">
        <summary>What it changes</summary>
        <Changed candidate={candidate} {...props} />
      </details>
      <Decide etag={etag} judged={judged} limits={limits} isWhole={mistakes.length === 0} done={again} />
    </Panel>
  );
}

/** Of how many requests how many would end otherwise. */
function Counts({ judged }: { judged: Judged }) {
  const { requests, by_difference, since } = judged;
  const same = by_difference.same ?? 0;
  const other = Object.keys(WORDS).filter((word) => (by_difference[word] ?? 0) > 0);
  if (requests === 0) {
    return (
      <p>
        No request has come since <WhenWritten text={since} />.
      </p>
    );
  }
  return (
    <>
      <p>
        <b>
          {count(requests - same)} of {counted(requests, "request")}
        </b>{" "}
        that this node has had since <WhenWritten text={since} /> would end otherwise (
        {percent((requests - same) / requests)}).
      </p>
      {other.length > 0 && (
        <ul class="plain">
          {other.map((word) => (
            <li key={word}>
              <Badge kind={word === "would_refuse" ? "bad" : word === "would_admit" ? "warn" : "plain"}>
                {count(by_difference[word] ?? 0)}
              </Badge>{" "}
              {WORDS[word]}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function Examples({ judged }: { judged: Judged }) {
  return (
    <>
      <Scroll label="Requests that would end otherwise">
        <table>
          <thead>
            <tr>
              <th scope="col">The first such request</th>
              <th scope="col">In force</th>
              <th scope="col">Candidate</th>
              <th scope="col" class="number">
                Requests
              </th>
            </tr>
          </thead>
          <tbody>
            {judged.examples.map((example) => {
              const { difference, method, host, path, in_force, candidate, requests } = example;
              return (
                <tr key={[difference, told(in_force), told(candidate)].join(" ")}>
                  <th scope="row">
                    {method} {host}
                    {path}
                  </th>
                  <td>{told(in_force)}</td>
                  <td>{told(candidate)}</td>
                  <td class="number">{count(requests)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
      {judged.without_example > 0 && (
        <p class="hint">
          {counted(judged.without_example, "request")} more would end otherwise in ways of which there is no
          example.
        </p>
      )}
    </>
  );
}

/** Of how many decisions how many its policies would have made otherwise, with examples. */
function Limited({ limits }: { limits: Limits }) {
  const { decisions, by_difference, since, examples, not_judged } = limits;
  const other = [
    { word: "would_limit", said: "would be limited", kind: "bad" as const },
    { word: "would_allow", said: "would be allowed, and are denied", kind: "warn" as const },
  ].filter(({ word }) => (by_difference[word] ?? 0) > 0);
  return (
    <>
      <p>
        <b>
          {count(decisions - (by_difference.same ?? 0))} of {counted(decisions, "decision")}
        </b>{" "}
        that this node has made since <WhenWritten text={since} /> would be others under its policies. Their
        counters began empty then.
      </p>
      {other.length > 0 && (
        <ul class="plain">
          {other.map(({ word, said, kind }) => (
            <li key={word}>
              <Badge kind={kind}>{count(by_difference[word] ?? 0)}</Badge> {said}
            </li>
          ))}
        </ul>
      )}
      {not_judged.length > 0 && (
        <p class="hint">Not judged, since they count what is under way: {not_judged.join(", ")}.</p>
      )}
      {examples.length > 0 && (
        <Scroll label="Decisions that would be others">
          <table>
            <thead>
              <tr>
                <th scope="col">Policy</th>
                <th scope="col">The first such request</th>
                <th scope="col">Candidate</th>
                <th scope="col" class="number">
                  Requests
                </th>
              </tr>
            </thead>
            <tbody>
              {examples.map(({ difference, policy, protocol, client_id, attributes, requests }) => (
                <tr key={[difference, policy, protocol].join(" ")}>
                  <th scope="row">{policy ?? "no policy applies"}</th>
                  <td>{[protocol, client_id, attributes].filter((part) => part).join(" ")}</td>
                  <td>{difference === "would_limit" ? "would limit" : "would allow"}</td>
                  <td class="number">{count(requests)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </>
  );
}

/** Each document as it is and as it would be. */
function Changed(props: { candidate: CandidateNow["candidate"]; routes: Documents; upstreams: Documents }) {
  const { candidate } = props;
  const listed = useAsked<{ policies: { policy: Documents[number] }[] }>("/v1/policies").body;
  const policies = listed?.policies.map(({ policy }) => policy) ?? [];
  const of = (kind: Kind, inForce: Documents) => {
    const find = (name: string) => inForce.find((document) => document.name === name) ?? null;
    return [
      ...(candidate[kind] ?? []).map((after) => ({
        kind,
        name: after.name,
        before: find(after.name),
        after,
      })),
      ...(candidate.remove?.[kind] ?? []).map((name) => ({ kind, name, before: find(name), after: null })),
    ];
  };
  const all = [...of("policy", policies), ...of("upstream", props.upstreams), ...of("route", props.routes)];
  return (
    <>
      {all.map(({ kind, name, before, after }) => (
        <section key={`${kind} ${name}`} aria-label={`${kind} ${name}`}>
          <h3>
            {kind} {name}
            {after === null ? ": what is stored of it goes" : before === null ? ": new" : ""}
          </h3>
          {after !== null && (
            <Difference
              before={before}
              after={after}
              heads={["In force", "Candidate"]}
              none="It stays as it is."
            />
          )}
        </section>
      ))}
    </>
  );
}

const QUESTIONS = {
  promote: { method: "POST", address: `${ADDRESS}/promote`, verb: "Promote", failed: "It is not in force." },
  drop: { method: "DELETE", address: ADDRESS, verb: "Drop", failed: "It is not dropped." },
};

/** Puts it in force or takes it away, each after a question. */
function Decide(props: {
  etag: string | undefined;
  judged: Judged | null;
  limits: Limits | null;
  isWhole: boolean;
  done: () => void;
}) {
  const who = useValue(session);
  // As it was when the question came up: who confirms means that one.
  const [asked, put] = useState<{ what: keyof typeof QUESTIONS; ifMatch: string | undefined }>();
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  if (!mayConfigure(who)) return null;
  const { etag } = props;
  // Of both the fewer: what a promotion with `judged` goes by.
  const judged = [props.judged?.requests, props.limits?.decisions].filter(
    (it): it is number => it !== undefined,
  );
  const requests = judged.length > 0 ? Math.min(...judged) : 0;
  if (!asked) {
    return (
      <p class="actions">
        <button
          type="button"
          class="primary"
          disabled={!props.isWhole}
          onClick={() => put({ what: "promote", ifMatch: etag })}
        >
          Promote …
        </button>
        <button type="button" onClick={() => put({ what: "drop", ifMatch: etag })}>
          Drop …
        </button>
      </p>
    );
  }
  const { method, address, verb, failed } = QUESTIONS[asked.what];
  const close = () => {
    put(undefined);
    setError(undefined);
  };
  const decide = async () => {
    setBusy(true);
    try {
      await ask(method, address, { ifMatch: asked.ifMatch });
      close();
    } catch (error) {
      setError(error);
    } finally {
      setBusy(false);
      props.done();
    }
  };
  return (
    <div
      class="review"
      role="group"
      aria-label={`Before it is ${asked.what === "drop" ? "dropped" : "promoted"}`}
    >
      {asked.what === "drop" ? (
        <p>What is in force stays, and what was counted is gone.</p>
      ) : (
        <p>
          All of it is then in force at every node, in one change; <code>tidegate revert</code> is the way
          back. This node has judged {counted(requests, "request")} by it
          {requests < FEW ? ", which is little to go by." : "."}
        </p>
      )}
      {error !== undefined && <Problem what={failed} error={error} />}
      <p class="actions">
        <button
          type="button"
          class={asked.what === "drop" ? "danger" : "primary"}
          disabled={isBusy}
          onClick={() => void decide()}
        >
          {verb}
        </button>
        <button type="button" onClick={close}>
          Back
        </button>
      </p>
      <Curl method={method} path={address} ifMatch={asked.ifMatch} />
    </div>
  );
}
