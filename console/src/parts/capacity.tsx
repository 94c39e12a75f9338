// The accepted capacity report: what is kept of it, and a form that accepts one.

import { useState } from "preact/hooks";
import { ask, mayConfigure, session } from "../api";
import { percent, perSecond } from "../format";
import { readings, useReadings } from "../metrics";
import { useValue } from "../observable";
import type { Report } from "../report";
import { useAsked } from "./asked";
import { Curl, Field, Panel, Problem, WhenWritten } from "./basics";
import { Review } from "./review";

/** Where it is. */
export const CAPACITY = "/v1/capacity";

export interface CapacityNow {
  accepted: {
    server: string;
    per_second: number;
    is_knee: boolean;
    cause: string;
    cause_summary: string;
    sentence: string;
    target: string;
    started: string;
    version: string;
  } | null;
  requests_per_second: number | null;
  used: number | null;
}

/** How often the load is asked for, in milliseconds. */
const PERIOD = 2_000;

/** The report that was accepted, if one was. */
export function Accepted() {
  const { body, etag, error, again } = useAsked<CapacityNow>(CAPACITY, PERIOD);
  const who = useValue(session);
  // As it was when the question came up: who confirms means that one.
  const [forgotten, setForgotten] = useState<{ accepted: unknown; etag: string }>();
  if (error !== undefined && !body) return <Problem what="The accepted report is not known." error={error} />;
  if (!body?.accepted) return null;
  const { accepted, used, requests_per_second } = body;
  return (
    <Panel title={`Capacity of ${accepted.server}`} wide>
      <p>
        {used === null ? (
          "The load is being measured."
        ) : (
          <>
            Now at <b>{percent(used)}</b> of the {accepted.is_knee ? "knee" : "capacity"}:{" "}
            {perSecond(requests_per_second)} of {perSecond(accepted.per_second)} requests per second.
          </>
        )}{" "}
        Cause then: {accepted.cause} ({accepted.cause_summary}).
      </p>
      <p class="hint">
        {accepted.sentence} Measured at {accepted.target}, <WhenWritten text={accepted.started} />.
      </p>
      {forgotten && (
        <Review
          what="The load is then compared with nothing."
          method="DELETE"
          address={CAPACITY}
          part="accepted"
          before={forgotten.accepted}
          after={null}
          etag={forgotten.etag}
          verb="Forget"
          done={() => {
            setForgotten(undefined);
            again();
          }}
        />
      )}
      {mayConfigure(who) && !forgotten && (
        <p class="actions">
          <button type="button" onClick={() => setForgotten({ accepted, etag: etag ?? '"0"' })}>
            Forget it
          </button>
        </p>
      )}
    </Panel>
  );
}

/** Accepts a report, so that the load of one of the process's servers is shown beside it. */
export function Accept({ report }: { report: Report }) {
  useReadings();
  const now = useValue(readings).at(-1);
  const who = useValue(session);
  const [server, setServer] = useState("api");
  const [failure, setFailure] = useState<unknown>();
  const [isDone, setDone] = useState(false);
  if (!mayConfigure(who)) return null;
  const counted = ["tidegate_http_requests_in_flight", "tidegate_resp_commands_in_flight"];
  const servers = counted.flatMap((family) => now?.families.get(family) ?? []);
  const names = [...new Set(["api", ...servers.map(({ labels }) => labels.server ?? "")])].filter(Boolean);
  const path = `${CAPACITY}?${new URLSearchParams({ server })}`;
  const accept = async () => {
    try {
      await ask("POST", path, { body: report.whole });
      setFailure(undefined);
      setDone(true);
    } catch (error) {
      setFailure(error);
      setDone(false);
    }
  };
  return (
    <>
      <form
        class="search"
        onSubmit={(event) => {
          event.preventDefault();
          void accept();
        }}
      >
        <Field label="Whose load to compare" hint="The overview says how near to this it is.">
          {(attributes) => (
            <select {...attributes} value={server} onInput={(event) => setServer(event.currentTarget.value)}>
              {names.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          )}
        </Field>
        <button type="submit">Accept as its capacity</button>
      </form>
      {failure !== undefined && <Problem what="It is not accepted." error={failure} />}
      {isDone && <p role="status">Accepted.</p>}
      <Curl method="POST" path={path} file={report.file} />
    </>
  );
}
