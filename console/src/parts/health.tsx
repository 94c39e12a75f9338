// The server's health: what it says of itself, and what its metrics say of what it needs: servers, backends, the disk, other
// systems, certificates. What is down or late is named; what is well is counted. The nodes that share its database are named all.

import { ask } from "../api";
import { CERTIFICATE_SOON, certificates } from "../certificates";
import { breakers } from "../events";
import { ago, bytes, count, counted, wait } from "../format";
import { type Reading, type Series, total } from "../metrics";
import { useValue } from "../observable";
import { href } from "../router";
import { useAsked } from "./asked";
import { Badge, Meter, Panel, Problem } from "./basics";

/** Most servers of a kind that are named. */
const NAMED = 5;
/** A forward whose oldest line waits longer is late, in seconds. */
const FORWARD_LATE = 300;

/** Servers of which checks tell whether they are used. */
interface Checked {
  what: string;
  /** Those that are not: what they are, where more is said, and why. */
  out: { name: string; address: string; why: string; isDown: boolean }[];
  all: number;
}

function checkedBy(
  now: Reading,
  what: string,
  [up, ejected]: [string, string],
  name: (labels: Series["labels"]) => string,
  address: (labels: Series["labels"]) => string,
): Checked {
  const servers = now.families.get(up) ?? [];
  const out = servers.flatMap(({ labels, value }) => {
    const isEjected = total(now, ejected, labels) === 1;
    if (value === 1 && !isEjected) return [];
    const why = value === 1 ? "is left out: what was sent there failed" : "is down: its checks fail";
    return [{ name: name(labels), address: address(labels), why, isDown: value !== 1 }];
  });
  return { what, out, all: servers.length };
}

function checked(now: Reading): Checked[] {
  const kinds = [
    checkedBy(
      now,
      "servers",
      ["tidegate_upstream_server_up", "tidegate_upstream_server_ejected"],
      ({ server, upstream }) => `${server} of ${upstream}`,
      ({ upstream = "" }) => href(["gateway"], { upstream }),
    ),
    checkedBy(
      now,
      "backends",
      ["tidegate_edge_backend_up", "tidegate_edge_backend_ejected"],
      ({ backend = "" }) => backend,
      ({ backend = "", app = "" }) => href(["edge"], { backend, app }),
    ),
  ];
  return kinds.filter(({ all }) => all > 0);
}

function Servers({ what, out, all }: Checked) {
  const kind = out.some(({ isDown }) => isDown) ? "bad" : out.length > 0 ? "warn" : "good";
  return (
    <li>
      <Badge kind={kind}>{what}</Badge> {count(all - out.length)} of {count(all)} in use
      {out.slice(0, NAMED).map(({ name, address, why }) => (
        <span key={name}>
          ; <a href={address}>{name}</a> {why}
        </span>
      ))}
      {out.length > NAMED && `; and ${count(out.length - NAMED)} more`}
    </li>
  );
}

interface Trouble {
  name: string;
  says: string;
  isBad: boolean;
}

/** What else is wrong by the metrics page. */
function troubles(now: Reading): Trouble[] {
  const of = (family: string, says: (series: Series) => Trouble | undefined) =>
    (now.families.get(family) ?? []).flatMap((series) => says(series) ?? []);
  const ending = certificates(now).filter(({ left }) => left < CERTIFICATE_SOON);
  return [
    ...of("tidegate_config_last_reload_successful", ({ value }) =>
      value === 1
        ? undefined
        : { name: "file", says: "the configuration file as it is now was refused: see Logs", isBad: true },
    ),
    ...of("tidegate_log_troubled", ({ labels, value }) =>
      value === 0
        ? undefined
        : { name: "intake", says: `the disk refuses lines of partition ${labels.partition}`, isBad: true },
    ),
    ...of("tidegate_intake_alerts", ({ labels, value }) =>
      value === 0 || labels.state !== "firing"
        ? undefined
        : {
            name: "alert",
            says: `${labels.alert} fires for ${counted(value, "series", "series")}`,
            isBad: true,
          },
    ),
    ...of("tidegate_intake_forward_oldest_age_seconds", ({ labels, value }) =>
      value <= FORWARD_LATE
        ? undefined
        : { name: "forward", says: `${labels.forward} is ${wait(1000 * value)} behind`, isBad: false },
    ),
    ...ending.slice(0, NAMED).map(({ of, left }) => ({
      name: "certificate",
      says: left > 0 ? `of ${of} ends in ${wait(1000 * left)}` : `of ${of}: there is none that is good`,
      isBad: left <= 0,
    })),
    ...(ending.length > NAMED
      ? [{ name: "certificate", says: `${count(ending.length - NAMED)} more end soon`, isBad: false }]
      : []),
    ...of("tidegate_tls_last_reload_successful", ({ labels, value }) =>
      value === 1
        ? undefined
        : {
            name: "certificate",
            says: `of the listener ${labels.server}: its files as they are now were refused`,
            isBad: false,
          },
    ),
    ...of("tidegate_upstream_certificate_last_reload_successful", ({ labels, value }) =>
      value === 1
        ? undefined
        : {
            name: "certificate",
            says: `of the upstream ${labels.upstream}: its files as they are now were refused`,
            isBad: false,
          },
    ),
  ];
}

/** Most nodes that are named. */
const NODES_NAMED = 12;

interface ListedNode {
  number: number;
  name?: string;
  version?: string;
  started_unix_ms?: number;
  api?: string;
  self: boolean;
  present: boolean;
  last_seen_unix_ms?: number;
  same_name: boolean;
}

interface ListedNodes {
  shared: boolean;
  current: boolean;
  nodes: ListedNode[];
}

/** A node's name; its number tells it from another one of that name. */
function NodeName({ node }: { node: ListedNode }) {
  const { name, number, version, started_unix_ms, api } = node;
  const about = [
    version && `version ${version}`,
    started_unix_ms !== undefined && `since ${new Date(started_unix_ms).toLocaleString("sv")}`,
    api,
  ];
  return (
    <span title={about.filter(Boolean).join(", ")}>
      <b>{name ?? "a node without a name"}</b>
      {(node.same_name || name === undefined) && ` (number ${number})`}
      {node.self && " (this one)"}
    </span>
  );
}

/** What is known of where a node is, where it is not there. */
function whereabouts({ present, self, last_seen_unix_ms: seen }: ListedNode, isCurrent: boolean): string {
  if (self || (present && isCurrent)) return "";
  const last = seen === undefined ? "" : `last seen ${ago(Math.max(Date.now() - seen, 0))}`;
  if (present) return ` is not known to be there${last && `, ${last}`}`;
  return ` is gone${last && `, ${last}`}`;
}

/** The nodes that share the database, by name. A process alone has nobody to be told from. */
function Nodes() {
  const { body } = useAsked<ListedNodes>("/v1/nodes", 4_000);
  if (!body?.shared) return null;
  const { current, nodes } = body;
  const namesakes = new Set(nodes.flatMap(({ same_name, name }) => (same_name && name ? [name] : [])));
  const there = nodes.filter(({ present }) => present).length;
  return (
    <>
      <li>
        <Badge kind={current ? "good" : "warn"}>nodes</Badge>{" "}
        {current ? counted(there, "node") : "as they were when the database last answered"}:{" "}
        {nodes.slice(0, NODES_NAMED).map((node, place) => (
          <span key={node.number}>
            {place > 0 && "; "}
            <NodeName node={node} />
            {whereabouts(node, current)}
          </span>
        ))}
        {nodes.length > NODES_NAMED && `; and ${count(nodes.length - NODES_NAMED)} more`}
      </li>
      {namesakes.size > 0 && (
        <li>
          <Badge kind="warn">node names</Badge> several nodes are called {[...namesakes].join(", ")}: give
          each a node.name of its own
        </li>
      )}
    </>
  );
}

interface Readiness {
  ready: boolean;
  stage: string;
  reasons: string[];
  degraded?: string[];
  details?: { reason: string; detail: string }[];
}

/** A process that is not ready says so with 503. */
const readiness = (path: string, signal: AbortSignal) =>
  ask<Readiness>("GET", path, { signal, answers: [503] });

export function Health({ now }: { now: Reading }) {
  const { body, error } = useAsked("/readyz?verbose", 4_000, readiness);
  const seen = [...useValue(breakers).values()];
  const detail = (reason: string) => body?.details?.find((it) => it.reason === reason)?.detail;
  const reasons = [...(body?.reasons ?? []), ...(body?.degraded ?? [])];
  const used = total(now, "tidegate_store_bytes");
  const most = total(now, "tidegate_store_max_bytes");
  return (
    <Panel title="Health">
      {error !== undefined && !body && <Problem what="The server's health is not known." error={error} />}
      {body && (
        <ul class="health">
          <li>
            <Badge kind={!body.ready ? "bad" : reasons.length > 0 ? "warn" : "good"}>
              {!body.ready ? "not ready" : reasons.length > 0 ? "ready, degraded" : "ready"}
            </Badge>
          </li>
          {reasons.map((reason) => (
            <li key={reason}>
              <Badge kind="warn">{reason}</Badge> {detail(reason)}
            </li>
          ))}
          <li>
            <Badge kind={total(now, "tidegate_control_reachable") === 1 ? "good" : "bad"}>
              configuration
            </Badge>{" "}
            revision {count(total(now, "tidegate_config_revision"))} in force
          </li>
          <Nodes />
          {now.families.has("tidegate_store_bytes") && (
            <li>
              <Badge kind={used > 0.9 * most ? "warn" : "good"}>counters</Badge>{" "}
              {count(total(now, "tidegate_store_entries"))} keys in {bytes(used)} of {bytes(most)}{" "}
              <Meter used={used} limit={most} label="Memory of the counters" />
            </li>
          )}
          {checked(now).map((kind) => (
            <Servers key={kind.what} {...kind} />
          ))}
          {troubles(now).map(({ name, says, isBad }) => (
            <li key={name + says}>
              <Badge kind={isBad ? "bad" : "warn"}>{name}</Badge> {says}
            </li>
          ))}
          {seen.map((breaker) => (
            <li key={breaker.of + breaker.name}>
              <Badge kind={breaker.state === "closed" ? "good" : breaker.state === "open" ? "bad" : "warn"}>
                {breaker.of} {breaker.name}
              </Badge>{" "}
              breaker {breaker.state.replace("_", " ")}
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}
