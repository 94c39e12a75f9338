// Each setting with its value and the layer it came from, and what is configured and not in force.

import { CERTIFICATE_SOON, type Certificate, certificates } from "../certificates";
import { count, counted, wait } from "../format";
import { readings, useReadings } from "../metrics";
import { useValue } from "../observable";
import { useAsked } from "../parts/asked";
import { Badge, Curl, Empty, Field, Panel, Problem } from "../parts/basics";
import { Cell, Rows } from "../parts/rows";
import { choose, href } from "../router";

interface Setting {
  path: string;
  value: string;
  origin: string;
}

interface NotInForce {
  set_aside: { kind: string; name: string; mistakes: string[] }[];
  altered: { kind: string; name: string; revision: number }[];
  hidden: { name: string; stored_revision: number }[];
}

/** A certificate as the server lists it, with where it comes from. */
interface Shown {
  names: string[];
  listeners: string[];
  origin: string;
  file?: string;
  directory?: string;
  trouble?: string;
}

/** How often it is asked where certificates come from, in milliseconds. */
const ORIGINS_PERIOD = 60_000;

/** Where a certificate comes from, and why the last order of it failed. */
function originOf({ name, server }: Certificate, listed: Shown[]): string {
  if (name === undefined) return "";
  const origin = server === undefined ? "acme" : "file";
  const found = listed.find(
    (it) =>
      it.origin === origin &&
      it.names.includes(name) &&
      (server === undefined || it.listeners.includes(server)),
  );
  const place = found?.file ?? found?.directory;
  return `${place ? `, from ${place}` : ""}${found?.trouble ? `: ${found.trouble}` : ""}`;
}

/** Most certificates that are listed. */
const MOST_CERTIFICATES = 30;

/** For how long a certificate is good. */
function Left({ certificate: { left, isRefused } }: { certificate: Certificate }) {
  return (
    <Badge kind={left <= 0 ? "bad" : left < CERTIFICATE_SOON || isRefused ? "warn" : "good"}>
      {left <= 0 ? "none that is good" : `good for ${wait(1000 * left)}`}
    </Badge>
  );
}

/** The certificates that listeners show, and those that are had by ACME. */
function Certificates() {
  useReadings();
  const now = useValue(readings).at(-1);
  const rows = now ? certificates(now) : [];
  const asked = rows.length > 0 ? "/v1/certificates" : undefined;
  const listed = useAsked<{ certificates: Shown[] }>(asked, ORIGINS_PERIOD).body?.certificates ?? [];
  const more = rows.length - MOST_CERTIFICATES;
  if (rows.length === 0) return null;
  return (
    <Panel title={counted(rows.length, "certificate")} wide>
      <ul class="plain">
        {rows.slice(0, MOST_CERTIFICATES).map((certificate) => (
          <li key={certificate.of}>
            <Left certificate={certificate} /> {certificate.of}
            {originOf(certificate, listed)}
            {certificate.isRefused &&
              ": its files as they are now were refused, and the ones before are in force"}
          </li>
        ))}
      </ul>
      {more > 0 && <p class="hint">{count(more)} more are good for longer than these.</p>}
    </Panel>
  );
}

export function ConfigurationView(props: { query: URLSearchParams }) {
  const { body, error, again } = useAsked<{ settings: Setting[] }>("/v1/settings");
  const aside = useAsked<NotInForce>("/v1/set-aside").body;
  const text = props.query.get("find") ?? "";
  if (error !== undefined && !body)
    return <Problem what="The settings cannot be read." error={error} retry={again} />;
  if (!body) return <Empty>Asking …</Empty>;
  const wanted = text.toLowerCase();
  const found = body.settings.filter(({ path, value, origin }) =>
    `${path} ${value} ${origin}`.toLowerCase().includes(wanted),
  );
  const wrong = aside ? aside.set_aside.length + aside.altered.length + aside.hidden.length : 0;
  return (
    <>
      {aside && wrong > 0 && (
        <Panel title="Not in force, or not as it was put" wide>
          <ul class="plain">
            {aside.set_aside.map((it) => (
              <li key={`${it.kind} ${it.name}`}>
                <Badge kind="bad">set aside</Badge> {it.kind} <b>{it.name}</b>: {it.mistakes.join("; ")}. Put
                it again, or delete it.
              </li>
            ))}
            {aside.altered.map((it) => (
              <li key={`${it.kind} ${it.name}`}>
                <Badge kind="bad">altered</Badge> {it.kind} <b>{it.name}</b> is not what was put at revision{" "}
                {it.revision}. Put it again.
              </li>
            ))}
            {aside.hidden.map((it) => (
              <li key={it.name}>
                <Badge kind="warn">hidden</Badge> the file's policy{" "}
                <a href={href(["policies", it.name])}>{it.name}</a>, by the one that was stored at revision{" "}
                {it.stored_revision}. Deleting that puts the file's in force.
              </li>
            ))}
          </ul>
        </Panel>
      )}
      <Certificates />
      <form class="search" role="search" onSubmit={(event) => event.preventDefault()}>
        <Field label="Find" hint="Any part of a setting, its value or where it came from.">
          {(attributes) => (
            <input
              {...attributes}
              type="search"
              value={text}
              onInput={(event) => choose(["configuration"], { find: event.currentTarget.value })}
            />
          )}
        </Field>
      </form>
      <Panel
        title={`${count(found.length)} of ${count(body.settings.length)} settings, as the process started with them`}
        wide
      >
        {found.length === 0 ? (
          <Empty>No setting has “{text}” in it.</Empty>
        ) : (
          <Rows
            label="Settings"
            columns="minmax(13rem,1fr) minmax(10rem,1.2fr) minmax(12rem,1.2fr)"
            items={found}
            id={({ path }) => path}
            head={
              <>
                <Cell head>Setting</Cell>
                <Cell head>Value</Cell>
                <Cell head>From</Cell>
              </>
            }
            row={({ path, value, origin }) => (
              <>
                <Cell>
                  <code>{path}</code>
                </Cell>
                <Cell label="Value">{value || "–"}</Cell>
                <Cell label="From">{origin === "default" ? <span class="hint">default</span> : origin}</Cell>
              </>
            )}
          />
        )}
      </Panel>
      <p class="hint">
        Policies, routes and clients' limits have pages of their own; <code>docs/configuration.md</code> says
        what each setting does.
      </p>
      <Curl method="GET" path="/v1/settings" />
    </>
  );
}
