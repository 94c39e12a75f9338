// What a view asks the server for.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { ask, session } from "../api";
import { connection, revision } from "../events";
import { useValue } from "../observable";

export interface Asked<T> {
  /** What was answered last; it stays while a newer one is under way or fails. */
  body: T | undefined;
  etag: string | undefined;
  error: unknown;
  again: () => void;
}

/**
 * Asks for `path`, and again when the configuration changes, when the connection is back, and every `every`
 * milliseconds while the page is looked at. `undefined`: nothing is asked for.
 */
export function useAsked<T>(path: string | undefined, every?: number): Asked<T> {
  const [answer, setAnswer] = useState<{ path: string; body: T; etag: string | undefined }>();
  const [error, setError] = useState<unknown>();
  const [times, setTimes] = useState(0);
  const inForce = useValue(revision);
  const isOpen = useValue(connection) === "open";
  const isIn = useValue(session).state === "in";
  const again = useCallback(() => setTimes((times) => times + 1), []);
  const last = useRef<string | undefined>(undefined);
  const isWaiting = useRef(false);
  // The others say when to ask again.
  useEffect(() => {
    if (path === undefined || !isIn) return;
    if (last.current !== path) setError(undefined);
    last.current = path;
    const stop = new AbortController();
    isWaiting.current = true;
    ask<T>("GET", path, { signal: stop.signal }).then(
      ({ body, etag }) => {
        isWaiting.current = false;
        setAnswer({ path, body, etag });
        setError(undefined);
      },
      (error) => {
        if (stop.signal.aborted) return;
        isWaiting.current = false;
        setError(error);
      },
    );
    return () => stop.abort();
  }, [path, times, inForce, isOpen, isIn]);
  useEffect(() => {
    if (every === undefined) return;
    const timer = setInterval(() => {
      // A slow server is not asked twice.
      if (!document.hidden && !isWaiting.current) again();
    }, every);
    return () => clearInterval(timer);
  }, [every, again]);
  const current = answer?.path === path ? answer : undefined;
  return { body: current?.body, etag: current?.etag, error, again };
}
