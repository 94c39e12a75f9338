/**
 * One request by `fetch`, within a deadline for all of it: waiting for a place, connecting, the body.
 *
 * Redirects are not followed, since they would carry the token away, and a body has a bound.
 */

import type { Settings } from "./options.js";
import type { Failure } from "./types.js";

const MAX_BODY = 4 * 1024 * 1024;

/** The server gave no answer. Never leaves the client, but for `Unavailable`. */
export class Failed extends Error {
  constructor(readonly failure: Failure) {
    super(failure);
  }
}

/** A whole response. */
export interface Reply {
  status: number;
  headers: Headers;
  body: string;
}

export class Transport {
  #used = 0;
  /** Calls that found every connection in use until their deadline. */
  full = 0;
  readonly #waiting = new Set<() => void>();

  constructor(readonly settings: Settings) {}

  /** Sends a request and reads its reply; `deadline` is a time of `performance.now()`. */
  async call(method: string, path: string, body: string | undefined, deadline: number): Promise<Reply> {
    const abort = new AbortController();
    const left = deadline - performance.now();
    if (left <= 0) throw new Failed("timeout");
    const timer = setTimeout(() => abort.abort(), left);
    let entered = false;
    let phase: Failure = "connection";
    try {
      if (this.#used >= this.settings.maxConnections) await this.#place(abort.signal);
      // Those that waited all that time end at once, without the cost of a request.
      if (performance.now() >= deadline) throw new Failed("timeout");
      this.#used += 1;
      entered = true;
      const init: RequestInit = {
        method,
        headers: this.settings.headers,
        redirect: "manual",
        signal: abort.signal,
      };
      if (body !== undefined) init.body = body;
      const response = await this.settings.fetch(this.settings.url + path, init);
      phase = "reply";
      return { status: response.status, headers: response.headers, body: await text(response) };
    } catch {
      // What is left of a reply is not read.
      const late = abort.signal.aborted || performance.now() >= deadline;
      abort.abort();
      throw new Failed(late ? "timeout" : phase);
    } finally {
      clearTimeout(timer);
      if (entered) {
        this.#used -= 1;
        this.#next();
      }
    }
  }

  async #place(signal: AbortSignal): Promise<void> {
    while (this.#used >= this.settings.maxConnections) {
      await new Promise<void>((resolve, reject) => {
        const enter = () => {
          signal.removeEventListener("abort", leave);
          resolve();
        };
        const leave = () => {
          this.#waiting.delete(enter);
          this.full += 1;
          reject(new Failed("timeout"));
        };
        this.#waiting.add(enter);
        signal.addEventListener("abort", leave, { once: true });
      });
    }
  }

  #next(): void {
    const [enter] = this.#waiting;
    if (enter) {
      this.#waiting.delete(enter);
      enter();
    }
  }
}

async function text(response: Response): Promise<string> {
  const length = response.headers.get("content-length");
  if (length !== null && Number(length) <= MAX_BODY) return response.text();
  if (length !== null || !response.body) {
    if (length === null) return "";
    throw new Failed("reply");
  }
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let whole = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return whole + decoder.decode();
    whole += decoder.decode(value, { stream: true });
    if (whole.length > MAX_BODY) throw new Failed("reply");
  }
}
