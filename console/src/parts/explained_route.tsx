// Where a request would go, in sentences: which route takes it, what its credential and its limits say, which server is next.

import type { ComponentChildren } from "preact";
import { count, counted, wait } from "../format";
import { href } from "../router";
import { Badge } from "./basics";

interface Server {
  server: string;
  because_of?: string;
}

interface Forward {
  upstream: string;
  canary?: { upstream: string; taken: boolean; because: string };
  split?: { shares: { upstream: string; percent: number }[]; because: string };
  mirror?: string;
  fallback?: { upstream?: string; status?: number };
  route_breaker?: string;
  upstream_breaker?: string;
  balance: string;
  panic: boolean;
  next?: string;
  servers: Server[];
}

interface Verdict {
  allowed: boolean;
  policy: string;
  mode: string;
  limit: number;
  remaining: number;
  retry_after_ms?: number;
}

interface Limits {
  allowed?: boolean;
  no_match?: boolean;
  error?: string;
  policies?: { verdict?: Verdict }[];
}

export interface ExplainedRoute {
  host: string;
  path: string;
  client: string;
  route?: string;
  considered: { route: string; matches: string; taken: boolean; because_of?: string }[];
  not_shown?: number;
  key?: { outcome: string; consumer?: string; subject?: string };
  lacks_policy?: string;
  shedding?: { priority: string; refused_percent: number };
  limits?: Limits | null;
  action?: { reply?: { status: number; because_of?: string }; forward?: Forward };
}

/** Most routes that do not take it which are named. */
const NAMED = 5;

const words = (text: string) => text.replaceAll("_", " ");

export function RouteSentences({ explained }: { explained: ExplainedRoute }) {
  const { route, limits, lacks_policy: lacks, key, shedding, action } = explained;
  const sentences: ComponentChildren[] = [<Taken {...explained} />];
  if (key) {
    const who = key.consumer ?? key.subject;
    sentences.push(
      <>
        What is said of its credential: {words(key.outcome)}
        {who && (
          <>
            , of <b>{who}</b>
          </>
        )}
        .
      </>,
    );
  }
  if (lacks !== undefined)
    sentences.push(
      <>
        It is refused: the policy <b>{lacks}</b>, which the route lists, is not in force.
      </>,
    );
  if (shedding && shedding.refused_percent > 0)
    sentences.push(
      <>
        This process cannot keep up: {shedding.refused_percent} of a hundred requests of priority{" "}
        {shedding.priority} are refused now.
      </>,
    );
  if (route !== undefined && lacks === undefined) sentences.push(<Limited limits={limits ?? undefined} />);
  if (action?.reply)
    sentences.push(
      <>
        The gateway answers {action.reply.status} itself
        {action.reply.because_of && `, for ${words(action.reply.because_of)}`}; no server is asked.
      </>,
    );
  if (action?.forward)
    sentences.push(
      <Sent forward={action.forward} isAllowed={limits?.allowed !== false && lacks === undefined} />,
    );
  return (
    <ul class="sentences">
      {sentences.map((sentence, place) => (
        <li key={place}>{sentence}</li>
      ))}
    </ul>
  );
}

/** Which route takes it, and what keeps the others from it. */
function Taken({ route, considered, not_shown = 0 }: ExplainedRoute) {
  const others = considered.filter(({ taken }) => !taken);
  const more = others.length - NAMED + not_shown;
  return (
    <>
      {route === undefined ? (
        <>
          <Badge kind="bad">no route</Badge> No route takes it: it is answered 404.
        </>
      ) : (
        <>
          The route <a href={href(["gateway"], { route })}>{route}</a> takes it (
          {considered.find(({ taken }) => taken)?.matches}).
        </>
      )}{" "}
      {others.length > 0 && (route === undefined ? "Looked at: " : "The others do not: ")}
      {others.slice(0, NAMED).map(({ route, because_of }, place) => (
        <span key={route}>
          {place > 0 && ", "}
          <b>{route}</b>
          {because_of && ` (${words(because_of)})`}
        </span>
      ))}
      {more > 0 && `, and ${count(more)} more`}
      {others.length > 0 && "."}
    </>
  );
}

function Limited({ limits }: { limits: Limits | undefined }) {
  if (limits?.error) return <>Its limits are not known: {limits.error}.</>;
  const verdicts = (limits?.policies ?? []).flatMap(({ verdict }) => verdict ?? []);
  if (!limits || (verdicts.length === 0 && !limits.no_match)) return <>No policy limits it.</>;
  if (limits.no_match)
    return (
      <>
        None of the route's policies applies to it, so <code>on_no_match</code> decides:{" "}
        {limits.allowed ? "it is let through" : "it is denied"}.
      </>
    );
  const binding = verdicts.filter(({ mode }) => mode !== "shadow");
  const denying = binding.filter(({ allowed }) => !allowed);
  const shown = denying.length > 0 ? denying : binding;
  return (
    <>
      <Badge kind={limits.allowed ? "good" : "bad"}>{limits.allowed ? "allowed" : "denied"}</Badge>{" "}
      {limits.allowed ? "Its limits allow it" : "Its limits deny it"}
      {shown.length > 0 && ": "}
      {shown.map(({ policy, remaining, limit, retry_after_ms: again }, place) => (
        <span key={policy}>
          {place > 0 && ", "}
          {count(remaining)} of {count(limit)} left under <a href={href(["policies", policy])}>{policy}</a>
          {again !== undefined && `, again in ${wait(again)}`}
        </span>
      ))}
      .
      {verdicts.some(({ mode, allowed }) => mode === "shadow" && !allowed) &&
        " A policy in shadow would deny it."}
    </>
  );
}

function Sent({ forward, isAllowed }: { forward: Forward; isAllowed: boolean }) {
  const { upstream, next, canary, split, mirror, fallback, servers } = forward;
  const open = [
    ["the route", forward.route_breaker],
    ["the upstream", forward.upstream_breaker],
  ].filter(([, state]) => state !== undefined && state !== "closed");
  const out = servers
    .flatMap(({ server, because_of }) => (because_of ? [`${server}: ${because_of}`] : []))
    .slice(0, NAMED);
  return (
    <>
      {isAllowed ? "" : "If it were let through: "}
      {next === undefined ? (
        <>
          <Badge kind="bad">no server</Badge> {isAllowed ? "No" : "no"} server of{" "}
          <a href={href(["gateway"], { upstream })}>{upstream}</a> can take it.
        </>
      ) : (
        <>
          {isAllowed ? "The" : "the"} next server is <b>{next}</b> of{" "}
          <a href={href(["gateway"], { upstream })}>{upstream}</a>, which has{" "}
          {counted(servers.length, "server")} (by {words(forward.balance)}).
        </>
      )}
      {forward.panic && " No server is usable, so that the others count, too."}
      {open.map(([what, state]) => ` The breaker of ${what} is ${words(state ?? "")}.`)}
      {canary &&
        ` The canary ${canary.upstream} ${canary.taken ? "takes" : "does not take"} it: ${canary.because}.`}
      {split &&
        ` The route's clients are split: ${split.shares.map((it) => `${it.upstream} ${it.percent} %`).join(", ")}. Of this one, ${split.because}.`}
      {mirror && ` A copy goes to ${mirror}.`}
      {fallback &&
        ` When none gives a reply: ${[fallback.upstream, fallback.status].filter((it) => it !== undefined).join(", then ")}.`}
      {out.map((why) => ` The server ${why}.`)}
    </>
  );
}
