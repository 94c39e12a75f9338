// The gateway's last requests, and what was done for one of them.

import { useState } from "preact/hooks";
import { counted, latency } from "../format";
import { useAsked } from "../parts/asked";
import { Badge, Curl, Empty, Field, Panel, Problem, Scroll, When } from "../parts/basics";
import { Cell, Rows } from "../parts/rows";
import { href } from "../router";

interface Trace {
  id: string;
  at_unix_ms: number;
  client: string;
  method: string;
  host: string;
  path: string;
  route?: string;
  upstream?: string;
  server?: string;
  attempts: number;
  status: number;
  bytes: number;
  duration_ms: number;
  end: string;
  because?: string;
  key?: string;
  consumer?: string;
  request_id: string;
}

interface WholeTrace extends Trace {
  steps: string[];
}

const ADDRESS = "/v1/gateway/traces";

const isGood = (trace: Trace) => trace.because === undefined && trace.status < 400;

function Outcome({ trace }: { trace: Trace }) {
  const words = trace.because?.replaceAll("_", " ");
  const kind = isGood(trace) ? "good" : trace.status === 429 ? "warn" : "bad";
  return (
    <Badge kind={kind}>
      {trace.status}
      {words && ` ${words}`}
    </Badge>
  );
}

interface Kept {
  watched_seconds: number;
  traces: Trace[];
}

/** Whether any of what a row shows has the text in it. */
function fits(trace: Trace, text: string): boolean {
  const { method, path, host, client, consumer, route, server, status, because } = trace;
  const shown = [method, path, host, client, consumer, route, server, status, because];
  return shown.filter(Boolean).join(" ").toLowerCase().includes(text.toLowerCase());
}

export function LastRequests() {
  const asked = useAsked<Kept>(ADDRESS, 2_000);
  // What was there when somebody paused; the server keeps requests only for as long as it is asked for them.
  const [held, hold] = useState<Kept>();
  const [text, setText] = useState("");
  const { error } = asked;
  const body = held ?? asked.body;
  const found = body?.traces.filter((trace) => fits(trace, text)) ?? [];
  return (
    <Panel
      title="The last requests"
      wide
      actions={
        (body?.traces.length ?? 0) > 0 &&
        (held ? (
          <button type="button" onClick={() => hold(undefined)}>
            Go on
          </button>
        ) : (
          <button type="button" onClick={() => hold(asked.body)}>
            Pause
          </button>
        ))
      }
    >
      {held && <p role="status">Paused: what came since is not shown.</p>}
      {body && body.traces.length > 0 && (
        <form class="search" role="search" onSubmit={(event) => event.preventDefault()}>
          <Field label="Find" hint="Any part of a row, such as a route, a client or 429.">
            {(attributes) => (
              <input
                {...attributes}
                type="search"
                value={text}
                onInput={(event) => setText(event.currentTarget.value)}
              />
            )}
          </Field>
        </form>
      )}
      {error !== undefined && !body && <Problem what="They cannot be read." error={error} />}
      {body?.traces.length === 0 && (
        <Empty>
          None yet. Requests are kept from now on for as long as this page is looked at: the last 100 that
          were answered, and the last 100 that were turned away or failed.
        </Empty>
      )}
      {body && body.traces.length > 0 && found.length === 0 && (
        <Empty>
          None of the last {counted(body.traces.length, "request")} has “{text}” in it.
        </Empty>
      )}
      {found.length > 0 && (
        <Rows
          label="The last requests"
          columns="7rem minmax(10rem,2fr) minmax(7rem,1fr) minmax(9rem,1fr) minmax(8rem,1fr) 5rem"
          items={found}
          id={({ id }) => id}
          head={
            <>
              <Cell head>When</Cell>
              <Cell head>Request</Cell>
              <Cell head>Client</Cell>
              <Cell head>Route, server</Cell>
              <Cell head>Reply</Cell>
              <Cell head number>
                Took
              </Cell>
            </>
          }
          row={(trace) => (
            <>
              <Cell label="When">
                <When ms={trace.at_unix_ms} short />
              </Cell>
              <Cell label="Request">
                <a href={href(["gateway", "traces", trace.id])}>
                  {trace.method} {trace.path}
                </a>
              </Cell>
              <Cell label="Client">{trace.consumer ?? trace.client}</Cell>
              <Cell label="Route, server">
                {[trace.route, trace.server].filter(Boolean).join(", ") || "–"}
              </Cell>
              <Cell label="Reply">
                <Outcome trace={trace} />
              </Cell>
              <Cell number label="Took">
                {latency(trace.duration_ms / 1000)}
              </Cell>
            </>
          )}
        />
      )}
      <Curl method="GET" path={ADDRESS} />
    </Panel>
  );
}

/** A member of a list as RFC 9651 writes it: a word, and parameters whose values are in quotes or not. */
function read(member: string): { word: string; us: number | undefined; details: string } {
  const [, word = "", rest = ""] = /^([^;]*)(.*)$/s.exec(member) ?? [];
  let us: number | undefined;
  const details: string[] = [];
  for (const [, name = "", quoted, plain] of rest.matchAll(/;([a-z_]+)=(?:"([^"]*)"|([^;]*))/g)) {
    if (name === "us") us = Number(plain);
    else details.push(`${name.replaceAll("_", " ")} ${(quoted ?? plain ?? "").replaceAll("_", " ")}`);
  }
  return { word: word.replaceAll("_", " "), us, details: details.join(", ") };
}

export function TracePage(props: { id: string }) {
  const path = `${ADDRESS}/${encodeURIComponent(props.id)}`;
  const { body, error, again } = useAsked<WholeTrace>(path);
  const back = <a href={href(["gateway"])}>All requests</a>;
  if (error !== undefined && !body) {
    return (
      <>
        <Problem
          what="This request is not kept any more, or the server is another."
          error={error}
          retry={again}
        />
        <p>{back}</p>
      </>
    );
  }
  if (!body) return <Empty>Asking …</Empty>;
  const facts: [string, preact.ComponentChild][] = [
    ["Reply", <Outcome trace={body} />],
    ["When", <When ms={body.at_unix_ms} />],
    ["Took", `${latency(body.duration_ms / 1000)}, ${body.bytes} bytes, ${body.end.replaceAll("_", " ")}`],
    ["Client", [body.client, body.consumer, body.key].filter(Boolean).join(", ")],
    ["Host", body.host || "–"],
    ["Route", body.route ?? "none"],
    [
      "Server",
      body.server ? `${body.server} of ${body.upstream}, attempt ${body.attempts}` : "none was asked",
    ],
    ["Request id", body.request_id || "–"],
  ];
  return (
    <div class="grid">
      <Panel title={`${body.method} ${body.path}`} actions={back} wide>
        <dl class="facts">
          {facts.map(([name, value]) => [<dt key={name}>{name}</dt>, <dd key={`${name} value`}>{value}</dd>])}
        </dl>
      </Panel>
      <Panel title="What was done" wide>
        <Scroll label="What was done">
          <table>
            <thead>
              <tr>
                <th scope="col">Step</th>
                <th scope="col">What it said</th>
                <th scope="col" class="number">
                  Took
                </th>
              </tr>
            </thead>
            <tbody>
              {body.steps.map(read).map(({ word, us, details }, place) => (
                <tr key={place}>
                  <th scope="row">{word}</th>
                  <td>{details}</td>
                  <td class="number">{us === undefined ? "" : latency(us / 1e6)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
        <Curl method="GET" path={path} />
      </Panel>
    </div>
  );
}
