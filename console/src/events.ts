// What changes on the server, by `/v1/events`.
//
// Changes can come faster than anybody reads: views are told of them at most four times a second, of all of them together.
//
// A stream ends when the server stops, when the token is taken away, and while the page is not looked at: a hidden tab
// costs the server nothing. A new stream says which event was the last, and is told what has changed since, so that
// nothing is lost in between.

import { addressOf, readSession, session } from "./api";
import { Observable } from "./observable";

/** A breaker of an upstream or of the counters' store. */
export interface Breaker {
  of: string;
  name: string;
  state: string;
}

export type Connection = "connecting" | "open" | "lost";

export const connection = new Observable<Connection>("connecting");
/** The revision in force. */
export const revision = new Observable<number | undefined>(undefined);
/** How often the configuration, or its revision, was another: views read again what they show. A reloaded file has the revision of
 * the one before it. */
export const generation = new Observable(0);
export const breakers = new Observable<ReadonlyMap<string, Breaker>>(new Map());

/** Longest time between two attempts to connect, in milliseconds. */
const LONGEST_WAIT = 5_000;

let stream: EventSource | undefined;
let timer: number | undefined;
let wait = 500;
/** The id of the last event that had one. */
let last = "";

interface Configuration {
  revision: number;
  /** All of it may be new; a server that does not know says nothing. */
  all?: boolean;
  changed: unknown[];
}

/** Least time between two changes that views are told of, in milliseconds. */
const TOGETHER = 250;

/** What views were not told of yet. */
let untold: { revision: number; isOther: boolean } | undefined;
let telling: number | undefined;

function tell(): void {
  telling = undefined;
  if (!untold) return;
  const { revision: next, isOther } = untold;
  untold = undefined;
  telling = setTimeout(tell, TOGETHER);
  revision.set(next);
  if (isOther) generation.set(generation.value + 1);
}

function close(): void {
  stream?.close();
  stream = undefined;
  clearTimeout(timer);
}

function open(): void {
  close();
  if (document.hidden || session.value.state !== "in") return;
  const after = last === "" ? "" : `?${new URLSearchParams({ after: last })}`;
  stream = new EventSource(addressOf(`/v1/events${after}`));
  stream.addEventListener("open", () => {
    wait = 500;
    connection.set("open");
    // The stream tells all that there are: what went while nobody listened is told by nothing.
    breakers.set(new Map());
  });
  stream.addEventListener("configuration", (event) => {
    const told: Configuration = JSON.parse(event.data);
    last = event.lastEventId;
    const known = untold?.revision ?? revision.value;
    const isOther = told.all !== false || told.changed.length > 0 || told.revision !== known;
    untold = { revision: told.revision, isOther: isOther || untold?.isOther === true };
    if (telling === undefined) tell();
  });
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
