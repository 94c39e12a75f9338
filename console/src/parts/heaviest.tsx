// The clients that somebody on call looks for first: those that are denied, and those that soon will be.

import { written } from "../attributes";
import { ago, count, counted, percent } from "../format";
import { href } from "../router";
import { useAsked } from "./asked";
import { Badge, Empty, Meter, Panel, Problem } from "./basics";

/** How often they are asked for, in milliseconds. */
const PERIOD = 2_000;

interface Denied {
  client_id: string;
  denied: number;
  error: number;
  /** Absent: no policy applied to it. */
  policy?: string;
  /** What the policy looks at beside the client. Absent: too long, no text, or a credential. */
  attributes?: Record<string, string>;
  seen_ms_ago: number;
  /** Absent: not counted. */
  last_minute?: { allowed: number; denied: number };
}

const LIST = "/v1/denied-clients";

/** The link to a client asks about the request that was denied last: its name alone may be allowed. */
const linkOf = ({ client_id, attributes }: Denied) =>
  href(["clients"], { id: client_id, with: written(attributes ?? {}) });

interface Near {
  client_id: string;
  policy: string;
  mode: string;
  limit: number;
  remaining: number;
}

export function MostDenied(props: { most: number }) {
  const { body, error } = useAsked<Denied[]>(LIST, PERIOD);
  return (
    <Panel title="Most denied clients">
      {error !== undefined && !body && <Problem what="They are not known." error={error} />}
      {body?.length === 0 && <Empty>No client was denied since the process began.</Empty>}
      <ol class="clients">
        {body?.slice(0, props.most).map((client) => (
          <li key={client.client_id}>
            <span>
              <a href={linkOf(client)}>{client.client_id}</a>{" "}
              {client.policy !== undefined && <span class="hint">by {client.policy}</span>}
            </span>
            <span
              class="number"
              title={client.error > 0 ? `at most; up to ${count(client.error)} fewer` : "denials"}
            >
              {count(client.denied)}
            </span>
          </li>
        ))}
      </ol>
    </Panel>
  );
}

/** How a client fares, if it is among those that are denied most: of the last minute, and not as one question finds it. */
export function Fares(props: { id: string; more: string }) {
  const { body } = useAsked<Denied[]>(LIST, PERIOD);
  const client = body?.find(({ client_id }) => client_id === props.id);
  if (!client) return null;
  const { attributes, last_minute: minute, policy } = client;
  const asked = (minute?.allowed ?? 0) + (minute?.denied ?? 0);
  const last = attributes && written(attributes);
  return (
    <p>
      {minute && asked > 0 && (
        <>
          In the last minute {percent(minute.denied / asked)} of its {counted(asked, "request")} were denied.{" "}
        </>
      )}
      {minute && asked === 0 && <>It has asked for nothing in the last minute. </>}
      {counted(client.denied, "denial")} since the process began, the last one {ago(client.seen_ms_ago)}
      {policy === undefined ? ", since no policy applied to it" : ` by ${policy}`}
      {last && last !== props.more && (
        <>
          {" "}
          of a request with <code>{last}</code>: <a href={linkOf(client)}>ask about that one</a>
        </>
      )}
      .
    </p>
  );
}

/** Those under policies in shadow come last: nobody is denied there. */
export function Nearest(props: { most: number }) {
  const { body, error } = useAsked<Near[]>("/v1/nearest-clients", PERIOD);
  const isShadow = ({ mode }: Near) => mode === "shadow";
  const sorted = [...(body?.filter((near) => !isShadow(near)) ?? []), ...(body?.filter(isShadow) ?? [])];
  return (
    <Panel title="Nearest to a limit">
      {error !== undefined && !body && <Problem what="They are not known." error={error} />}
      {body?.length === 0 && <Empty>No client has used half of a limit.</Empty>}
      <ol class="clients">
        {sorted.slice(0, props.most).map((near) => (
          <li key={`${near.policy} ${near.client_id}`}>
            <span>
              <a href={href(["clients"], { id: near.client_id })}>{near.client_id}</a>{" "}
              <span class="hint">
                under <a href={href(["policies", near.policy])}>{near.policy}</a>
              </span>{" "}
              {isShadow(near) && <Badge kind="plain">shadow</Badge>}
            </span>
            <span class="number">
              {count(near.limit - near.remaining)} of {count(near.limit)}
              <Meter
                used={near.limit - near.remaining}
                limit={near.limit}
                label={`${near.client_id} under ${near.policy}`}
              />
            </span>
          </li>
        ))}
      </ol>
    </Panel>
  );
}
