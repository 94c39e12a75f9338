// A run of the tester against this machine: what the machine allows of it first, then the run, then its report.

import { useState } from "preact/hooks";
import { ask, mayConfigure, session } from "../api";
import { bytes } from "../format";
import { useValue } from "../observable";
import { href } from "../router";
import { type Asked, useAsked } from "./asked";
import { Badge, Curl, Empty, Field, Panel, Problem, When } from "./basics";

export interface SaturationState {
  run: {
    state: "running" | "ending" | "ended";
    wanted: { target: string };
    began_unix_ms: number;
    said: string[];
    exit: number | null;
    report: string;
  } | null;
  reports: { name: string; bytes: number; at_unix_ms: number }[];
}

interface Preflight {
  blocked: boolean;
  findings: { severity: "ok" | "note" | "blocked"; text: string; remedy: string | null }[];
}

/** How often the run is looked at, in milliseconds. */
const PERIOD = 2_000;
const RUN = "/v1/saturation/run";
const KINDS = { ok: "good", note: "warn", blocked: "bad" } as const;

/** What each way to end means, by the tester's exit status. */
const ENDS: Record<string, string> = {
  "0": "It is done.",
  "1": "It ended early, or could not measure all of it.",
  "2": "The machine does not allow it.",
  "3": "A threshold was missed.",
};

/** The last run, and the reports in the server's data folder. */
export const useSaturation = () => useAsked<SaturationState>("/v1/saturation", PERIOD);

export function SaturationRun({ asked, opened }: { asked: Asked<SaturationState>; opened: string[] }) {
  const who = useValue(session);
  const run = asked.body?.run;
  if (asked.error !== undefined && !asked.body)
    return <Problem what="Runs and reports of this server are not known." error={asked.error} />;
  return (
    <>
      {mayConfigure(who) && (!run || run.state === "ended") && <Begin again={asked.again} />}
      {run && <Followed run={run} again={asked.again} mayEnd={mayConfigure(who)} />}
      <Reports reports={asked.body?.reports ?? []} opened={opened} />
    </>
  );
}

function Begin({ again }: { again: () => void }) {
  const [texts, setTexts] = useState<Record<string, string>>({
    target: "",
    max_connections: "256",
    step_seconds: "5",
    max_minutes: "5",
  });
  const [preflight, setPreflight] = useState<Preflight>();
  const [failure, setFailure] = useState<unknown>();
  const input = (field: string) => ({
    value: texts[field] ?? "",
    onInput: (event: { currentTarget: { value: string } }) => {
      setTexts({ ...texts, [field]: event.currentTarget.value });
      // What was found holds for what was asked.
      setPreflight(undefined);
    },
  });
  const body = {
    target: (texts.target ?? "").trim(),
    max_connections: Number(texts.max_connections),
    step_seconds: Number(texts.step_seconds),
    max_minutes: Number(texts.max_minutes),
  };
  const tried = async (what: () => Promise<void>) => {
    setFailure(undefined);
    try {
      await what();
    } catch (error) {
      setFailure(error);
    }
  };
  const wanted = new URLSearchParams(Object.entries(body).map(([name, value]) => [name, String(value)]));
  const preflightPath = `/v1/saturation/preflight?${wanted}`;
  const look = () =>
    tried(async () => {
      setPreflight((await ask<Preflight>("GET", preflightPath)).body);
    });
  const start = () =>
    tried(async () => {
      await ask("POST", RUN, { body });
      setPreflight(undefined);
      again();
    });
  return (
    <Panel title="Find where a service stops scaling" wide>
      <form
        class="search"
        onSubmit={(event) => {
          event.preventDefault();
          void (preflight && !preflight.blocked ? start() : look());
        }}
      >
        <Field label="Target" hint="On this server's machine: http://127.0.0.1:8080/">
          {(attributes) => (
            <input {...attributes} required autocomplete="off" spellcheck={false} {...input("target")} />
          )}
        </Field>
        <Field label="Most connections">
          {(attributes) => <input {...attributes} inputMode="numeric" {...input("max_connections")} />}
        </Field>
        <Field label="Seconds of a step">
          {(attributes) => <input {...attributes} inputMode="decimal" {...input("step_seconds")} />}
        </Field>
        <Field label="Most minutes">
          {(attributes) => <input {...attributes} inputMode="decimal" {...input("max_minutes")} />}
        </Field>
        <button class={preflight ? "primary" : ""} type="submit" disabled={preflight?.blocked === true}>
          {preflight ? "Start" : "Look first"}
        </button>
      </form>
      {failure !== undefined && <Problem what="It is not started." error={failure} />}
      {!preflight && <Curl method="GET" path={preflightPath} />}
      {preflight && (
        <>
          <p role="status">
            {preflight.blocked
              ? "This machine does not allow it."
              : "This machine allows it. The run puts as much load on the target as it can carry, and on all else here."}
          </p>
          <ul class="health">
            {preflight.findings.map(({ severity, text, remedy }) => (
              <li key={text}>
                <Badge kind={KINDS[severity]}>{severity}</Badge> {text}
                {remedy && (
                  <>
                    {" "}
                    Lift it with: <code>{remedy}</code>
                  </>
                )}
              </li>
            ))}
          </ul>
          <Curl method="POST" path={RUN} body={body} />
        </>
      )}
    </Panel>
  );
}

function Followed(props: { run: NonNullable<SaturationState["run"]>; again: () => void; mayEnd: boolean }) {
  const { run } = props;
  const [failure, setFailure] = useState<unknown>();
  const cancel = async () => {
    try {
      await ask("DELETE", RUN);
      setFailure(undefined);
    } catch (error) {
      setFailure(error);
    }
    props.again();
  };
  const how =
    run.state !== "ended"
      ? run.state === "ending"
        ? "It is told to end."
        : "It runs."
      : (ENDS[String(run.exit)] ?? "It was ended.");
  return (
    <Panel title={`Run against ${run.wanted.target}`} wide>
      <p role="status">
        {how} Begun <When ms={run.began_unix_ms} short />.
      </p>
      {failure !== undefined && <Problem what="It is not cancelled." error={failure} />}
      {run.said.length > 0 && (
        <pre class="said" tabIndex={0}>
          {run.said.join("\n")}
        </pre>
      )}
      {props.mayEnd && run.state === "running" && (
        <>
          <p class="actions">
            <button type="button" onClick={() => void cancel()}>
              Cancel
            </button>
          </p>
          <Curl method="DELETE" path={RUN} />
        </>
      )}
    </Panel>
  );
}

/** `opened`: the names of those that are shown; another one can be put beside the first. */
function Reports({ reports, opened }: { reports: SaturationState["reports"]; opened: string[] }) {
  const [first] = opened;
  return (
    <Panel title="Reports on this server" wide>
      {reports.length === 0 ? (
        <Empty>
          None. A run that is started here leaves one, and so does a file that is put into the folder{" "}
          <code>saturation</code> of the data folder.
        </Empty>
      ) : (
        <ul class="health">
          {reports.map((report) => (
            <li key={report.name}>
              <a href={href(["saturation"], { report: report.name })}>{report.name}</a>{" "}
              <span class="hint">
                <When ms={report.at_unix_ms} />, {bytes(report.bytes)}
              </span>{" "}
              {first !== undefined && !opened.includes(report.name) && (
                <a href={href(["saturation"], { report: first, with: report.name })}>compare with {first}</a>
              )}
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}
