// Requests to the admin API: the same that curl makes.

import { Observable } from "./observable";

/** A mistake in what was sent; `pointer` is where, as a JSON pointer. */
export interface FieldError {
  pointer: string;
  detail: string;
  accepted: string;
}

/** Why a request failed, in the server's words. Status 0: there was no answer. */
export class RequestError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly errors: FieldError[] = [],
  ) {
    super(message);
  }
}

/** A reply. `etag` names the version of the document, for `ifMatch`. */
export interface Reply<T> {
  body: T;
  etag: string | undefined;
}

/** What goes along with a request. */
export interface Sent {
  body?: unknown;
  /** Refuse the change (412) unless the document is still this version. */
  ifMatch?: string | undefined;
  /** A token, which only signing in sends. */
  token?: string;
  /** Statuses of failures that are answers, too. */
  answers?: number[];
  signal?: AbortSignal;
}

/** Who asks. `out`: the server wants a token first. */
export type Session =
  | { state: "unknown" }
  | { state: "out"; why: string }
  | { state: "in"; name: string; scopes: string[] };

export const session = new Observable<Session>({ state: "unknown" });

/** Whether the reader may change the configuration. */
export function mayConfigure(who: Session): boolean {
  return who.state === "in" && who.scopes.includes("configure");
}

/** The address of a path of the server: below that of the page, which a proxy may have under a path of its own. */
export function addressOf(path: string): string {
  return new URL(path.replace(/^\//, "./"), document.baseURI).href;
}

/** Longest wait for a reply, in milliseconds. */
const PATIENCE = 15_000;

/** Asks the server. */
export async function ask<T>(method: string, path: string, sent: Sent = {}): Promise<Reply<T>> {
  const headers: Record<string, string> = {};
  if (sent.body !== undefined) headers["content-type"] = "application/json";
  if (sent.ifMatch !== undefined) headers["if-match"] = sent.ifMatch;
  if (sent.token !== undefined) headers.authorization = `Bearer ${sent.token}`;
  const signals = [AbortSignal.timeout(PATIENCE), ...(sent.signal ? [sent.signal] : [])];
  let response: Response;
  let text: string;
  try {
    response = await fetch(addressOf(path), {
      method,
      headers,
      body: sent.body === undefined ? null : JSON.stringify(sent.body),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      signal: AbortSignal.any(signals),
    });
    text = await response.text();
  } catch (error) {
    if (sent.signal?.aborted) throw error;
    const late = error instanceof DOMException && error.name === "TimeoutError";
    const what = late
      ? `The server did not answer within ${PATIENCE / 1000} s.`
      : "The server cannot be reached.";
    // What was asked is asked again by who shows it; whether something was done nobody knows.
    const next =
      method === "GET" ? "; this page asks again by itself" : " and what is so now, then try again";
    throw new RequestError(0, `${what} See that it runs${next}.`);
  }
  const kind = response.headers.get("content-type") ?? "";
  const body = /^application\/(problem\+)?json/.test(kind) && text !== "" ? JSON.parse(text) : text;
  if (response.ok || sent.answers?.includes(response.status))
    return { body: body as T, etag: response.headers.get("etag") ?? undefined };
  const problem = typeof body === "object" && body !== null ? body : {};
  const message =
    typeof problem.detail === "string" ? problem.detail : `The server answered ${response.status}.`;
  if (response.status === 401 && session.value.state === "in") {
    session.set({ state: "out", why: "The session is over, or its token was taken away. Sign in again." });
  }
  throw new RequestError(response.status, message, Array.isArray(problem.errors) ? problem.errors : []);
}

/** Reads who asks. */
export async function readSession(): Promise<void> {
  try {
    const { body } = await ask<{ name: string; scopes: string[] }>("GET", "/v1/session");
    const same =
      session.value.state === "in" && JSON.stringify(session.value.scopes) === JSON.stringify(body.scopes);
    if (!same) session.set({ state: "in", ...body });
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    if (error.status === 401 && session.value.state !== "out") session.set({ state: "out", why: "" });
  }
}

/** Begins a session of the token. */
export async function signIn(token: string): Promise<void> {
  const { body } = await ask<{ name: string; scopes: string[] }>("POST", "/v1/session", { token });
  session.set({ state: "in", ...body });
}

/** Ends it. */
export async function signOut(): Promise<void> {
  await ask("DELETE", "/v1/session");
  session.set({ state: "out", why: "" });
  await readSession();
}

/** The path of a template's segments, each as it is sent. */
export function path(template: string, ...names: string[]): string {
  return names.reduce((text, name) => text.replace("{}", encodeURIComponent(name)), template);
}
