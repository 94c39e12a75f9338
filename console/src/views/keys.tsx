// API keys of the gateway's clients, and the tiers that policies have numbers for. The text of a key is shown once, in the reply
// that issues it, and the page forgets it with the next view.

import { useMemo, useState } from "preact/hooks";
import { ask, mayConfigure, path, type Reply, RequestError, session } from "../api";
import { count, counted } from "../format";
import { useValue } from "../observable";
import { useAsked } from "../parts/asked";
import { Badge, Curl, Empty, Field, Panel, Problem, Scroll, WhenWritten } from "../parts/basics";
import { NumberInput } from "../parts/numbers";
import { Cell, Rows } from "../parts/rows";
import { type Document, type PolicyList, policiesInForce, quota } from "../policy";
import { choose, href } from "../router";

const ADDRESS = "/v1/keys";
const DAY = 86_400;
/** How often the list is asked for, in milliseconds: when keys were used last changes by itself. */
const PERIOD = 10_000;
/** Keys of a page of the list, and most pages: what is beyond is found by its id. */
const PAGE = 1_000;
const MOST_PAGES = 10;

interface Key {
  id: string;
  masked: string;
  consumer: string;
  tier?: string;
  /** Those that it opens; absent: all that ask for keys. */
  routes?: string[];
  /** Absent: none. */
  scopes?: string[];
  created: string;
  expires?: string;
  last_used?: string;
  old_secret_until?: string;
  etag: string;
}

/** A key with its text. */
type Issued = Key & { key: string };

async function allKeys(
  address: string,
  signal: AbortSignal,
): Promise<Reply<{ keys: Key[]; isAll: boolean }>> {
  const keys: Key[] = [];
  for (let pages = 0; pages < MOST_PAGES; pages += 1) {
    const query = new URLSearchParams({
      limit: String(PAGE),
      ...(keys.length > 0 ? { after: keys.at(-1)?.id ?? "" } : {}),
    });
    const { body } = await ask<Key[]>("GET", `${address}?${query}`, { signal });
    keys.push(...body);
    if (body.length < PAGE) return { body: { keys, isAll: true }, etag: undefined };
  }
  return { body: { keys, isAll: false }, etag: undefined };
}

/** Whether it ended. */
const isOver = ({ expires }: Key) => expires !== undefined && Date.parse(expires) <= Date.now();

export function Keys(props: { query: URLSearchParams }) {
  const { body, error, again } = useAsked(ADDRESS, PERIOD, allKeys);
  const policies = useAsked("/v1/policies", undefined, policiesInForce).body;
  const who = useValue(session);
  const [issued, setIssued] = useState<Issued>();
  const tiers = useMemo(() => tiersOf(policies), [policies]);
  const text = props.query.get("find") ?? "";
  const id = props.query.get("id");
  const found = useMemo(() => {
    const wanted = text.toLowerCase();
    return (body?.keys ?? []).filter(({ id, consumer, tier = "" }) =>
      `${id} ${consumer} ${tier}`.toLowerCase().includes(wanted),
    );
  }, [body, text]);
  if (error !== undefined && !body)
    return <Problem what="The keys cannot be read." error={error} retry={again} />;
  if (!body) return <Empty>Asking …</Empty>;
  const names = [...new Set(tiers.map(({ tier }) => tier))];
  const told = (key: Issued) => {
    setIssued(key);
    again();
  };
  return (
    <>
      {issued && <Text issued={issued} close={() => setIssued(undefined)} />}
      {id !== null && <OneKey id={id} key={id} tiers={names} told={told} />}
      <form class="search" role="search" onSubmit={(event) => event.preventDefault()}>
        <Field label="Find" hint="Any part of an id, a consumer or a tier.">
          {(attributes) => (
            <input
              {...attributes}
              type="search"
              value={text}
              onInput={(event) => choose(["keys"], { find: event.currentTarget.value, id: id ?? "" })}
            />
          )}
        </Field>
      </form>
      <Panel title={`${count(found.length)} of ${counted(body.keys.length, "key")}`} wide>
        {!body.isAll && (
          <p class="hint">
            These are the first {count(body.keys.length)} by id; another one is at{" "}
            <code>{href(["keys"], { id: "…" })}</code>.
          </p>
        )}
        {body.keys.length === 0 && (
          <Empty>
            There is none. A route with <code>auth = "key"</code> lets requests through that carry one.
          </Empty>
        )}
        {body.keys.length > 0 && found.length === 0 && <Empty>No key has “{text}” in it.</Empty>}
        {found.length > 0 && (
          <Rows
            label="Keys"
            columns="minmax(12rem,1fr) minmax(9rem,1.2fr) minmax(6rem,0.7fr) minmax(8rem,1fr) minmax(8rem,1fr) minmax(8rem,1fr)"
            items={found}
            id={({ id }) => id}
            head={
              <>
                <Cell head>Key</Cell>
                <Cell head>Consumer</Cell>
                <Cell head>Tier</Cell>
                <Cell head>Last used</Cell>
                <Cell head>Ends</Cell>
                <Cell head>Issued</Cell>
              </>
            }
            row={(key) => (
              <>
                <Cell>
                  <a href={href(["keys"], { id: key.id, find: text })}>{key.id}</a>
                </Cell>
                <Cell label="Consumer">{key.consumer}</Cell>
                <Cell label="Tier">{key.tier ?? <span class="hint">none</span>}</Cell>
                <Cell label="Last used">
                  {key.last_used ? <WhenWritten text={key.last_used} /> : <span class="hint">never</span>}
                </Cell>
                <Cell label="Ends">
                  <Ends of={key} />
                </Cell>
                <Cell label="Issued">
                  <WhenWritten text={key.created} />
                </Cell>
              </>
            )}
          />
        )}
        <Curl method="GET" path={ADDRESS} />
      </Panel>
      {mayConfigure(who) && <Issue tiers={names} told={told} />}
      <Tiers tiers={tiers} keys={body.keys} />
    </>
  );
}

function Ends({ of }: { of: Key }) {
  if (of.expires === undefined) return <span class="hint">never</span>;
  if (isOver(of)) return <Badge kind="warn">ended</Badge>;
  return <WhenWritten text={of.expires} />;
}

/** The text of a key that was issued just now. */
function Text({ issued, close }: { issued: Issued; close: () => void }) {
  const [isCopied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(issued.key).then(() => setCopied(true));
  return (
    <section class="panel" role="status" aria-label="The key">
      <p>
        The key of <b>{issued.consumer}</b>, for its owner. It is shown now and never again.
      </p>
      <pre class="said" tabIndex={0}>
        {issued.key}
      </pre>
      <p class="actions">
        {navigator.clipboard && (
          <button type="button" onClick={() => void copy().catch(() => setCopied(false))}>
            {isCopied ? "Copied" : "Copy"}
          </button>
        )}
        <button type="button" onClick={close}>
          It is kept elsewhere
        </button>
      </p>
    </section>
  );
}

interface TierField {
  tiers: string[];
  value: string;
  error: string | undefined;
  change: (tier: string) => void;
}

function TierField({ tiers, value, error, change }: TierField) {
  const all = value === "" || tiers.includes(value) ? tiers : [value, ...tiers];
  return (
    <Field
      label="Tier"
      hint={tiers.length === 0 ? "no policy has tiers" : "whose numbers hold"}
      error={error}
    >
      {(attributes) => (
        <select {...attributes} value={value} onInput={(event) => change(event.currentTarget.value)}>
          <option value="">none</option>
          {all.map((tier) => (
            <option key={tier}>{tier}</option>
          ))}
        </select>
      )}
    </Field>
  );
}

/** The checker's word on a field. */
function mistake(error: unknown, name: string): string | undefined {
  if (!(error instanceof RequestError)) return undefined;
  const found = error.errors.find(({ pointer }) => pointer === `/${name}` || pointer.startsWith(`/${name}/`));
  return found && `${found.detail}; accepted: ${found.accepted}`;
}

const FIELDS = ["consumer", "tier", "routes", "scopes", "lifetime_seconds", "overlap_seconds"];

/** A failure that no field shows. */
function Failure({ what, error }: { what: string; error: unknown }) {
  if (error === undefined || FIELDS.some((name) => mistake(error, name))) return null;
  return <Problem what={what} error={error} />;
}

/** A number of units as one of seconds; what is no number is sent as it is, so that the server says what is wrong. */
const seconds = (text: string, unit: number) =>
  Number.isNaN(Number(text)) ? text : Math.round(Number(text) * unit);

/** The names in a text, which commas or blanks part. */
const namesIn = (text: string) => text.split(/[\s,]+/).filter((name) => name !== "");

interface NamesField {
  label: string;
  hint: string;
  value: string;
  error: string | undefined;
  change: (text: string) => void;
}

/** A list of names, as a line of text. */
function NamesField({ label, hint, value, error, change }: NamesField) {
  return (
    <Field label={label} hint={hint} error={error}>
      {(attributes) => (
        <input
          {...attributes}
          autocomplete="off"
          spellcheck={false}
          value={value}
          onInput={(event) => change(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

const ROUTES_HINT = "with commas between them; empty: all that ask for keys";
const SCOPES_HINT = "with commas between them; empty: none";

function Issue({ tiers, told }: { tiers: string[]; told: (key: Issued) => void }) {
  const [consumer, setConsumer] = useState("");
  const [tier, setTier] = useState("");
  const [routes, setRoutes] = useState("");
  const [scopes, setScopes] = useState("");
  const [days, setDays] = useState("");
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  const body = {
    consumer,
    ...(tier === "" ? {} : { tier }),
    ...(namesIn(routes).length === 0 ? {} : { routes: namesIn(routes) }),
    ...(namesIn(scopes).length === 0 ? {} : { scopes: namesIn(scopes) }),
    ...(days === "" ? {} : { lifetime_seconds: seconds(days, DAY) }),
  };
  const issue = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      told((await ask<Issued>("POST", ADDRESS, { body })).body);
      setError(undefined);
      setConsumer("");
    } catch (error) {
      setError(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Panel title="Issue a key">
      <form class="edit" onSubmit={(event) => void issue(event)}>
        <Field label="Consumer" hint="who uses it" error={mistake(error, "consumer")}>
          {(attributes) => (
            <input
              {...attributes}
              required
              autocomplete="off"
              spellcheck={false}
              value={consumer}
              onInput={(event) => setConsumer(event.currentTarget.value)}
            />
          )}
        </Field>
        <TierField tiers={tiers} value={tier} error={mistake(error, "tier")} change={setTier} />
        <NamesField
          label="Opens routes"
          hint={ROUTES_HINT}
          value={routes}
          error={mistake(error, "routes")}
          change={setRoutes}
        />
        <NamesField
          label="Has scopes"
          hint={SCOPES_HINT}
          value={scopes}
          error={mistake(error, "scopes")}
          change={setScopes}
        />
        <Field label="Good for, in days" hint="empty: for ever" error={mistake(error, "lifetime_seconds")}>
          {(attributes) => <NumberInput {...attributes} value={days} change={setDays} />}
        </Field>
        <Failure what="It is not issued." error={error} />
        <p class="actions">
          <button class="primary" type="submit" disabled={isBusy}>
            Issue
          </button>
        </p>
        <Curl method="POST" path={ADDRESS} body={body} />
      </form>
    </Panel>
  );
}

/** A key that is looked at: what is known of it, and what can be done with it. */
function OneKey(props: { id: string; tiers: string[]; told: (key: Issued) => void }) {
  const address = path(`${ADDRESS}/{}`, props.id);
  const { body, error, again } = useAsked<Key>(address, PERIOD);
  const who = useValue(session);
  const close = <a href={href(["keys"])}>All keys</a>;
  if (error !== undefined && !body)
    return (
      <>
        <Problem what={`There is no key ${props.id}.`} error={error} />
        <p>{close}</p>
      </>
    );
  if (!body) return <Empty>Asking …</Empty>;
  const facts: [string, preact.ComponentChild][] = [
    ["Consumer", body.consumer],
    ["Begins with", <code>{body.masked}</code>],
    ["Tier", body.tier ?? "none: the general numbers of policies hold"],
    ["Routes", body.routes?.join(", ") ?? "all that ask for keys"],
    ["Scopes", body.scopes?.join(", ") ?? "none"],
    ["Issued", <WhenWritten text={body.created} />],
    ["Ends", <Ends of={body} />],
    ["Last used", body.last_used ? <WhenWritten text={body.last_used} /> : "never"],
  ];
  if (body.old_secret_until)
    facts.push(["Old secret", ["good until ", <WhenWritten key="until" text={body.old_secret_until} />]]);
  return (
    <Panel title={`Key ${body.id}`} actions={close} isChosen>
      <dl class="facts">
        {facts.map(([name, value]) => [<dt key={name}>{name}</dt>, <dd key={`${name} value`}>{value}</dd>])}
      </dl>
      <p>
        <a href={href(["gateway", "analytics"], { by: "route", key: body.id })}>Its requests</a>
      </p>
      {mayConfigure(who) && <Change of={body} address={address} {...props} again={again} />}
    </Panel>
  );
}

type Act = "tier" | "routes" | "scopes" | "rotation" | "revocation";

const VERBS: Record<Act, { opens: string; does: string; failed: string }> = {
  tier: { opens: "Move to a tier …", does: "Move", failed: "Its tier is as before." },
  routes: { opens: "Set its routes …", does: "Set the routes", failed: "Its routes are as before." },
  scopes: { opens: "Set its scopes …", does: "Set the scopes", failed: "Its scopes are as before." },
  rotation: { opens: "New secret …", does: "Give it a new secret", failed: "It has no new secret." },
  revocation: { opens: "Revoke …", does: "Revoke", failed: "It is not revoked." },
};

function Change(props: {
  of: Key;
  address: string;
  tiers: string[];
  told: (key: Issued) => void;
  again: () => void;
}) {
  const { of: key, address } = props;
  // The version that is changed is the one that was looked at when it began.
  const [act, setAct] = useState<{ what: Act; ifMatch: string }>();
  const [tier, setTier] = useState(key.tier ?? "");
  // The names of routes, or of scopes, whichever is set.
  const [names, setNames] = useState("");
  const [hours, setHours] = useState("24");
  const [error, setError] = useState<unknown>();
  const [isBusy, setBusy] = useState(false);
  if (!act) {
    return (
      <p class="actions">
        {(Object.keys(VERBS) as Act[]).map((what) => (
          <button
            type="button"
            key={what}
            onClick={() => {
              setAct({ what, ifMatch: key.etag });
              setTier(key.tier ?? "");
              setNames(((what === "routes" ? key.routes : key.scopes) ?? []).join(", "));
              setError(undefined);
            }}
          >
            {VERBS[what].opens}
          </button>
        ))}
      </p>
    );
  }
  const { what, ifMatch } = act;
  const list = namesIn(names);
  const [method, to, body] = {
    tier: ["PATCH", address, { tier: tier === "" ? null : tier }] as const,
    routes: ["PATCH", address, { routes: list.length === 0 ? null : list }] as const,
    scopes: ["PATCH", address, { scopes: list }] as const,
    rotation: ["POST", `${address}/rotation`, { overlap_seconds: seconds(hours, 3600) }] as const,
    revocation: ["DELETE", address, undefined] as const,
  }[what];
  const go = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const reply = await ask<Issued>(method, to, { body, ifMatch });
      setAct(undefined);
      if (what === "rotation") props.told(reply.body);
      if (what === "revocation") choose(["keys"], {});
      else props.again();
    } catch (error) {
      setError(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form class="edit review" aria-label={VERBS[what].does} onSubmit={(event) => void go(event)}>
      {what === "tier" && (
        <TierField tiers={props.tiers} value={tier} error={mistake(error, "tier")} change={setTier} />
      )}
      {what === "tier" && <p class="hint">What it has used stays used.</p>}
      {(what === "routes" || what === "scopes") && (
        <NamesField
          label={what === "routes" ? "Routes" : "Scopes"}
          hint={what === "routes" ? ROUTES_HINT : SCOPES_HINT}
          value={names}
          error={mistake(error, what)}
          change={setNames}
        />
      )}
      {what === "routes" && (
        <p class="hint">Requests with it on other routes are answered 403 from then on.</p>
      )}
      {what === "rotation" && (
        <Field
          label="Old secret is good for, in hours"
          hint="0: it ends at once"
          error={mistake(error, "overlap_seconds")}
        >
          {(attributes) => <NumberInput {...attributes} value={hours} change={setHours} />}
        </Field>
      )}
      {what === "revocation" && (
        <p>
          Requests with it are refused from then on, at every node, and nothing brings it back: {key.consumer}{" "}
          needs another one.
        </p>
      )}
      <Failure what={VERBS[what].failed} error={error} />
      <p class="actions">
        <button type="submit" class={what === "revocation" ? "danger" : "primary"} disabled={isBusy}>
          {VERBS[what].does}
        </button>
        <button type="button" onClick={() => setAct(undefined)}>
          Back
        </button>
      </p>
      <Curl method={method} path={to} body={body} ifMatch={ifMatch} />
    </form>
  );
}

/** A tier's numbers under a policy. */
interface Tier {
  tier: string;
  policy: string;
  numbers: Document;
}

function tiersOf(list: PolicyList | undefined): Tier[] {
  const all = (list?.policies ?? []).flatMap(({ policy }) =>
    Object.entries((policy.tiers ?? {}) as Record<string, Document>).map(([tier, numbers]) => ({
      tier,
      policy: policy.name,
      numbers,
    })),
  );
  return all.sort((a, b) => (a.tier === b.tier ? 0 : a.tier < b.tier ? -1 : 1));
}

/** Most rows of tiers that are drawn. */
const MOST_TIERS = 200;

function Tiers({ tiers, keys }: { tiers: Tier[]; keys: Key[] }) {
  const users = new Map<string, number>();
  for (const { tier } of keys) if (tier !== undefined) users.set(tier, (users.get(tier) ?? 0) + 1);
  return (
    <Panel title="Tiers">
      {tiers.length === 0 ? (
        <Empty>
          No policy has tiers. <code>tiers.pro = {"{ limit = 1000 }"}</code> of a policy gives keys of the
          tier pro these numbers.
        </Empty>
      ) : (
        <Scroll label="Tiers">
          <table>
            <thead>
              <tr>
                <th scope="col">Tier</th>
                <th scope="col">Policy</th>
                <th scope="col">Numbers</th>
                <th scope="col" class="number">
                  Keys
                </th>
              </tr>
            </thead>
            <tbody>
              {tiers.slice(0, MOST_TIERS).map(({ tier, policy, numbers }) => (
                <tr key={`${tier} ${policy}`}>
                  <th scope="row">{tier}</th>
                  <td>
                    <a href={href(["policies", policy])}>{policy}</a>
                  </td>
                  <td>{quota(numbers)}</td>
                  <td class="number">{count(users.get(tier) ?? 0)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {tiers.length > MOST_TIERS && <p class="hint">These are the first {count(MOST_TIERS)}.</p>}
    </Panel>
  );
}
