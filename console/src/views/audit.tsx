// Who changed what, when; the newest first.

import { count } from "../format";
import { useAsked } from "../parts/asked";
import { Curl, Empty, Panel, Problem } from "../parts/basics";
import { Changes, changesUntil, type Entry, type ListedChanges, useLastChanges } from "../parts/changes";
import { href } from "../router";

const PAGE = 100;

const revisions = (first: number, last: number) =>
  first === last ? `Revision ${count(last)}` : `Revisions ${count(first)} to ${count(last)}`;

export function Audit({ query }: { query: URLSearchParams }) {
  const until = Number(query.get("to") ?? "");
  return until > 0 ? <Until until={until} query={query} /> : <Newest query={query} />;
}

function Newest({ query }: { query: URLSearchParams }) {
  const { body, error, again } = useLastChanges(PAGE);
  return <Page listed={body} error={error} again={again} query={query} />;
}

function Until({ until, query }: { until: number; query: URLSearchParams }) {
  const { body, error, again } = useAsked<Entry[]>(changesUntil(until, PAGE));
  const entries = body?.filter(({ revision }) => revision <= until);
  const listed = entries && { after: Math.max(until - PAGE, 0), until, entries };
  return <Page listed={listed} error={error} again={again} query={query} isPast />;
}

function Page(props: {
  listed: ListedChanges | undefined;
  error: unknown;
  again: () => void;
  query: URLSearchParams;
  /** Whether there may be newer ones. */
  isPast?: boolean;
}) {
  const { listed, error, again, query, isPast = false } = props;
  if (error !== undefined && !listed)
    return <Problem what="The changes cannot be read." error={error} retry={again} />;
  if (!listed) return <Empty>Asking …</Empty>;
  const { after, until } = listed;
  const entries = [...listed.entries].reverse();
  return (
    <>
      <Panel title={entries.length === 0 ? "No changes" : revisions(after + 1, until)} wide>
        {entries.length === 0 ? (
          <Empty>
            Nothing was changed. Give a <a href={href(["clients"])}>client</a> its own limit, and it is here.
          </Empty>
        ) : (
          <Changes entries={entries} chosen={query.get("revision")} />
        )}
        {(after > 0 || isPast) && (
          <p class="actions">
            {after > 0 && <a href={href(["audit"], { to: String(after) })}>Older</a>}
            {isPast && <a href={href(["audit"])}>Newest</a>}
          </p>
        )}
      </Panel>
      <Curl method="GET" path={changesUntil(until, PAGE)} />
    </>
  );
}
