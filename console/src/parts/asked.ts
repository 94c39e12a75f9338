// What a view asks the server for.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ask, type Reply, session } from "../api";
import { connection, generation } from "../events";
import { useValue } from "../observable";

export interface Asked<T> {
  /** What was answered last; it stays while a newer one is under way or fails. */
  body: T | undefined;
  etag: string | undefined;
  error: unknown;
  again: () => void;
}

/** How what is at a path is got. It must be the same function each time. */
type Get<T> = (path: string, signal: AbortSignal) => Promise<Reply<T>>;

/** Documents of a page: as many as are read without a task of the page being held up. */
const PAGE = 500;
/** How often a list is begun anew because it changed between two of its pages. */
const TRIES = 5;

/** Gets a list in pages, since reading ten thousand documents at once would hold up the page. */
export async function inPages<T extends { revision: number; next?: string }>(
  path: string,
  field: keyof T,
  signal: AbortSignal,
): Promise<Reply<T>> {
  for (let tries = 1; ; tries += 1) {
    const pages: T[] = [];
    let etag: string | undefined;
    for (let after: string | undefined = ""; after !== undefined; ) {
      const query = new URLSearchParams({ limit: String(PAGE), ...(after === "" ? {} : { after }) });
      const reply: Reply<T> = await ask<T>("GET", `${path}?${query}`, { signal });
      // One that is of another revision fits to none before it.
      if (pages[0] && pages[0].revision !== reply.body.revision && tries < TRIES) break;
      pages.push(reply.body);
      etag = reply.etag;
      after = reply.body.next;
      if (after !== undefined) continue;
      const all = pages.flatMap((page) => page[field] as unknown[]);
      return { body: { ...reply.body, [field]: all } as T, etag };
    }
  }
}

/**
 * Asks for `path`, and again when the configuration changes, when the connection is back, and every `every`
 * milliseconds while the page is looked at. `undefined`: nothing is asked for.
 *
 * A question that is under way is answered before it is asked again, and once more is enough for whatever changed in
 * between: otherwise a long list would never be there while changes come faster than it does.
 */
export function useAsked<T>(
  path: string | undefined,
  every?: number,
  get: Get<T> = (path, signal) => ask<T>("GET", path, { signal }),
): Asked<T> {
  const [answer, setAnswer] = useState<{ path: string; body: T; etag: string | undefined }>();
  const [error, setError] = useState<unknown>();
  const [times, setTimes] = useState(0);
  const inForce = useValue(generation);
  const isOpen = useValue(connection) === "open";
  const isIn = useValue(session).state === "in";
  const again = useCallback(() => setTimes((times) => times + 1), []);
  const last = useRef<string | undefined>(undefined);
  const question = useRef<{ isUnderWay: boolean; isAskedAgain: boolean; put: () => void }>(undefined);
  // A connection that was lost takes what was asked over it along.
  useEffect(() => {
    if (path === undefined || !isIn) return;
    if (last.current !== path) setError(undefined);
    last.current = path;
    const stop = new AbortController();
    const put = async () => {
      own.isUnderWay = true;
      do {
        own.isAskedAgain = false;
        try {
          const { body, etag } = await get(path, stop.signal);
          if (stop.signal.aborted) return;
          setAnswer({ path, body, etag });
          setError(undefined);
        } catch (error) {
          if (stop.signal.aborted) return;
          setError(error);
        }
      } while (own.isAskedAgain);
      own.isUnderWay = false;
    };
    const own = { isUnderWay: false, isAskedAgain: false, put: () => void put() };
    question.current = own;
    own.put();
    return () => {
      stop.abort();
      question.current = undefined;
    };
  }, [path, isOpen, isIn]);
  const asked = useRef({ times, inForce });
  useEffect(() => {
    if (asked.current.times === times && asked.current.inForce === inForce) return;
    asked.current = { times, inForce };
    if (question.current?.isUnderWay) question.current.isAskedAgain = true;
    else question.current?.put();
  }, [times, inForce]);
  useEffect(() => {
    if (every === undefined) return;
    const timer = setInterval(() => {
      // A slow server is not asked twice.
      if (!document.hidden && !question.current?.isUnderWay) again();
    }, every);
    return () => clearInterval(timer);
  }, [every, again]);
  const current = answer?.path === path ? answer : undefined;
  return { body: current?.body, etag: current?.etag, error, again };
}
