// Who changed what, when; the newest first.

import { revision } from "../events";
import { count } from "../format";
import { useValue } from "../observable";
import { useAsked } from "../parts/asked";
import { Curl, Empty, Panel, Problem } from "../parts/basics";
import { Changes, type Entry } from "../parts/changes";
import { href } from "../router";

const PAGE = 100;

const revisions = (first: number, last: number) =>
  first === last ? `Revision ${count(last)}` : `Revisions ${count(first)} to ${count(last)}`;

export function Audit(props: { query: URLSearchParams }) {
  const inForce = useValue(revision);
  const asked = Number(props.query.get("to") ?? "");
  const last = asked > 0 ? asked : inForce;
  const after = Math.max((last ?? 0) - PAGE, 0);
  const address = `/v1/audit?after=${after}&limit=${PAGE}`;
  const { body, error, again } = useAsked<Entry[]>(last === undefined ? undefined : address);
  if (error !== undefined && !body)
    return <Problem what="The changes cannot be read." error={error} retry={again} />;
  if (!body) return <Empty>Asking …</Empty>;
  const entries = [...body].reverse();
  return (
    <>
      <Panel title={entries.length === 0 ? "No changes" : revisions(after + 1, last ?? 0)} wide>
        {entries.length === 0 ? (
          <Empty>
            Nothing was changed. Give a <a href={href(["clients"])}>client</a> its own limit, and it is here.
          </Empty>
        ) : (
          <Changes entries={entries} chosen={props.query.get("revision")} />
        )}
        {(after > 0 || asked > 0) && (
          <p class="actions">
            {after > 0 && <a href={href(["audit"], { to: String(after) })}>Older</a>}
            {asked > 0 && <a href={href(["audit"])}>Newest</a>}
          </p>
        )}
      </Panel>
      <Curl method="GET" path={address} />
    </>
  );
}
