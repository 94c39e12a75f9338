// Which view: the part of the address after `#`, so that every view and what is chosen in it has an address.

import { Observable } from "./observable";

export interface Route {
  /** The segments of `#/policies/default`, decoded. */
  path: string[];
  query: URLSearchParams;
}

function read(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const decode = (text: string) => {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  };
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

export const route = new Observable<Route>(read());

/** The address of a view. */
export function href(path: string[], query: Record<string, string> = {}): string {
  const text = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "")).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text && `?${text}`}`;
}

/** Goes to a view. */
export function go(path: string[], query: Record<string, string> = {}): void {
  location.hash = href(path, query);
}

/** Changes what is chosen in a view; the way back does not lead through each letter that was typed. */
export function choose(path: string[], query: Record<string, string>): void {
  history.replaceState(null, "", href(path, query));
  route.set(read());
}

export function followAddress(): void {
  addEventListener("hashchange", () => route.set(read()));
}
