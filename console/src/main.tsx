// The console: a frame with the views, each under an address of its own.

import "uplot/dist/uPlot.min.css";
import "./style.css";
import "./screens.css";
import { render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { readSession, session, signIn, signOut } from "./api";
import { connection, follow } from "./events";
import { useValue } from "./observable";
import { Curl, Field, Problem } from "./parts/basics";
import { followAddress, href, route } from "./router";
import { nextTheme, theme } from "./theme";
import { Analytics } from "./views/analytics";
import { Audit } from "./views/audit";
import { Clients } from "./views/clients";
import { ConfigurationView } from "./views/configuration";
import { Edge } from "./views/edge";
import { Gateway } from "./views/gateway";
import { Intake } from "./views/intake";
import { Keys } from "./views/keys";
import { Overview } from "./views/overview";
import { Playground } from "./views/playground";
import { Policies } from "./views/policies";
import { PolicyPage } from "./views/policy";
import { Saturation } from "./views/saturation";
import { TracePage } from "./views/traces";
import { Warnings } from "./views/warnings";

interface View {
  /** The first segment of its address; "" is where one begins. */
  name: string;
  title: string;
  draw: (path: string[], query: URLSearchParams) => preact.ComponentChild;
}

const VIEWS: View[] = [
  { name: "", title: "Overview", draw: (_, query) => <Overview query={query} /> },
  { name: "clients", title: "Clients", draw: (_, query) => <Clients query={query} /> },
  {
    name: "policies",
    title: "Policies",
    draw: ([name], query) =>
      name === undefined ? <Policies query={query} /> : <PolicyPage name={name} key={name} />,
  },
  { name: "playground", title: "Playground", draw: (_, query) => <Playground query={query} /> },
  {
    name: "gateway",
    title: "Gateway",
    draw: ([part, id], query) => {
      if (part === "traces" && id !== undefined) return <TracePage id={id} key={id} />;
      if (part === "analytics") return <Analytics query={query} />;
      return <Gateway query={query} key={query.toString()} />;
    },
  },
  { name: "keys", title: "Keys", draw: (_, query) => <Keys query={query} /> },
  { name: "edge", title: "Edge", draw: (_, query) => <Edge query={query} key={query.toString()} /> },
  { name: "intake", title: "Intake", draw: (_, query) => <Intake query={query} key={query.toString()} /> },
  { name: "audit", title: "Audit", draw: (_, query) => <Audit query={query} /> },
  { name: "logs", title: "Logs", draw: (_, query) => <Warnings query={query} /> },
  { name: "configuration", title: "Configuration", draw: (_, query) => <ConfigurationView query={query} /> },
  { name: "saturation", title: "Saturation", draw: (_, query) => <Saturation query={query} /> },
];

function Frame() {
  const { path, query } = useValue(route);
  const who = useValue(session);
  const [first = "", ...rest] = path;
  const view = VIEWS.find(({ name }) => name === first);
  const main = useRef<HTMLElement>(null);
  const title = view?.title ?? "Not found";
  const current = useRef<HTMLAnchorElement>(null);
  const isFirst = useRef(true);
  // Another view begins at its top, for every reader; before it is seen, so that nobody types elsewhere already.
  useLayoutEffect(() => {
    document.title = rest.length > 0 ? `${rest[0]} · ${title} · Tidegate` : `${title} · Tidegate`;
    if (isFirst.current) isFirst.current = false;
    else main.current?.focus();
    scrollTo(0, 0);
  }, [first, rest[0]]);
  // On a narrow screen the names of the views are a line that scrolls.
  useEffect(
    () => current.current?.scrollIntoView({ block: "nearest", inline: "center" }),
    [first, who.state],
  );
  if (who.state === "out") return <SignIn why={who.why} />;
  return (
    <>
      <button type="button" class="skip" onClick={() => main.current?.focus()}>
        To the content
      </button>
      <header class="top">
        <a class="brand" href={href([])}>
          <img src="console.svg" alt="" width="22" height="22" />
          Tidegate
        </a>
        <nav aria-label="Views">
          {VIEWS.map(({ name, title }) => (
            <a
              key={name}
              href={href(name ? [name] : [])}
              {...(name === first ? { "aria-current": "page", ref: current } : {})}
            >
              {title}
            </a>
          ))}
        </nav>
        <Corner />
      </header>
      <Lost />
      <main ref={main} tabIndex={-1} id="main">
        <h1>{title}</h1>
        {who.state === "in" && view ? view.draw(rest, query) : <Nothing known={view !== undefined} />}
      </main>
    </>
  );
}

function Nothing(props: { known: boolean }) {
  if (props.known) return <p class="empty">Asking the server …</p>;
  return (
    <p class="empty">
      There is no such view. <a href={href([])}>Begin at the overview.</a>
    </p>
  );
}

function Corner() {
  const who = useValue(session);
  const chosen = useValue(theme);
  return (
    <div class="corner">
      {who.state === "in" && who.name !== "local" && (
        <>
          <span class="who" title={`may: ${who.scopes.join(", ")}`}>
            {who.name}
            {!who.scopes.includes("configure") && " (read only)"}
          </span>
          <button type="button" onClick={() => void signOut()}>
            Sign out
          </button>
        </>
      )}
      <button type="button" onClick={nextTheme} aria-label={`Colours: ${chosen}. Change them.`}>
        {{ system: "◐", light: "☼", dark: "☾" }[chosen]}
      </button>
    </div>
  );
}

/** Says that what is shown may be old. */
function Lost() {
  const state = useValue(connection);
  const who = useValue(session);
  if (state !== "lost" || who.state === "out") return <div role="status" class="lost" hidden />;
  return (
    <div role="status" class="lost">
      The connection to the server is lost. What is shown may be old; it is tried again by itself.
    </div>
  );
}

function SignIn(props: { why: string }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await signIn(token.trim());
    } catch (error) {
      setError(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <main class="sign-in">
      <h1>Tidegate</h1>
      {props.why && <p role="status">{props.why}</p>}
      <form onSubmit={(event) => void submit(event)}>
        <Field label="Token" hint="One with the scope read; to change something, configure, too.">
          {(attributes) => (
            <input
              {...attributes}
              type="password"
              autocomplete="current-password"
              required
              value={token}
              onInput={(event) => setToken(event.currentTarget.value)}
            />
          )}
        </Field>
        {error !== undefined && <Problem what="You are not signed in." error={error} />}
        <button class="primary" type="submit" disabled={busy}>
          Sign in
        </button>
      </form>
      <p class="hint">The browser keeps a session of 12 hours, and not the token.</p>
      <Curl method="POST" path="/v1/session" withToken />
    </main>
  );
}

followAddress();
follow();
void readSession();
// Without an answer the page says so, and asks until there is one.
setInterval(() => {
  if (session.value.state === "unknown" && !document.hidden) void readSession();
}, 2_000);
const app = document.getElementById("app");
if (app) render(<Frame />, app);
