// Who changed what, when; the newest first.

import { revision } from "../events";
import { count } from "../format";
import { useValue } from "../observable";
import { useAsked } from "../parts/asked";
import { Curl, Empty, Panel, Problem } from "../parts/basics";
import { Changes, type Entry } from "../parts/changes";
import { href } from "../router";

const PAGE = 100;

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
      <Panel
        title={entries.length === 0 ? "No changes" : `Revisions ${count(after + 1)} to ${count(last ?? 0)}`}
        wide
      >
        {entries.length === 0 ? (
          <Empty>
            Nothing was changed through the API. A change of the file is in the log of the process; give a{" "}
            <a href={href(["clients"])}>client</a> its own limit, and it is here.
          </Empty>
        ) : (
          <Changes entries={entries} />
        )}
        <p class="actions">
          {after > 0 && <a href={href(["audit"], { to: String(after) })}>Older</a>}
          {asked > 0 && <a href={href(["audit"])}>Newest</a>}
        </p>
      </Panel>
      <Curl method="GET" path={address} />
    </>
  );
}
