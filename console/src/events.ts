// What changes on the server, by `/v1/events`.
//
// A stream ends when the server stops, when the token is taken away, and while the page is not looked at: a hidden tab
// costs the server nothing. What a new stream begins with says what is so, so that nothing is lost in between.

import { readSession, session } from "./api";
import { Observable } from "./observable";

/** A breaker of an upstream or of the counters' store. */
export interface Breaker {
  of: string;
  name: string;
  state: string;
}

export type Connection = "connecting" | "open" | "lost";

export const connection = new Observable<Connection>("connecting");
/** The revision in force; views read again what they show when it is another. */
export const revision = new Observable<number | undefined>(undefined);
export const breakers = new Observable<ReadonlyMap<string, Breaker>>(new Map());

/** Longest time between two attempts to connect, in milliseconds. */
const LONGEST_WAIT = 5_000;

let stream: EventSource | undefined;
let timer: number | undefined;
let wait = 500;

function close(): void {
  stream?.close();
  stream = undefined;
  clearTimeout(timer);
}

function open(): void {
  close();
  if (document.hidden || session.value.state !== "in") return;
  stream = new EventSource("/v1/events");
  stream.addEventListener("open", () => {
    wait = 500;
    connection.set("open");
  });
  stream.addEventListener("configuration", (event) => revision.set(JSON.parse(event.data).revision));
  stream.addEventListener("breaker", (event) => {
    const breaker: Breaker = JSON.parse(event.data);
    const all = new Map(breakers.value);
    const key = `${breaker.of} ${breaker.name}`;
    if (breaker.state === "gone") all.delete(key);
    else all.set(key, breaker);
    breakers.set(all);
  });
  stream.addEventListener("error", () => {
    close();
    connection.set("lost");
    timer = setTimeout(async () => {
      // The stream does not say why it ended; this does.
      await readSession();
      open();
    }, wait);
    wait = Math.min(2 * wait, LONGEST_WAIT);
  });
}

/** Follows the events for as long as the page is looked at. */
export function follow(): void {
  document.addEventListener("visibilitychange", open);
  session.subscribe(open);
  open();
}
