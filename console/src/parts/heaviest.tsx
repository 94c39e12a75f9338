// The clients that somebody on call looks for first: those that are denied, and those that soon will be.

import { count } from "../format";
import { href } from "../router";
import { useAsked } from "./asked";
import { Badge, Empty, Meter, Panel, Problem } from "./basics";

/** How often they are asked for, in milliseconds. */
const PERIOD = 2_000;

interface Denied {
  client_id: string;
  denied: number;
  error: number;
}

interface Near {
  client_id: string;
  policy: string;
  mode: string;
  limit: number;
  remaining: number;
}

export function MostDenied(props: { most: number }) {
  const { body, error } = useAsked<Denied[]>("/v1/denied-clients", PERIOD);
  return (
    <Panel title="Most denied clients">
      {error !== undefined && !body && <Problem what="They are not known." error={error} />}
      {body?.length === 0 && <Empty>No client was denied since the process began.</Empty>}
      <ol class="clients">
        {body?.slice(0, props.most).map((client) => (
          <li key={client.client_id}>
            <a href={href(["clients"], { id: client.client_id })}>{client.client_id}</a>
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
