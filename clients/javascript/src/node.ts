/** What Express, Fastify and a plain Node server have in common: Node's request and response. */

import type { Denial, Known, Settlement } from "./middleware.js";

/** The part of Node's IncomingMessage that is read here, and of what Express and Connect add to it. */
export interface NodeRequest {
  method?: string | undefined;
  url?: string | undefined;
  headers: Record<string, string | string[] | undefined>;
  socket: { remoteAddress?: string | undefined };
  /** Express: the prefix that is mounted, and the path behind it; the address, by `trust proxy`. */
  baseUrl?: string | undefined;
  path?: string | undefined;
  ip?: string | undefined;
  /** Express and Connect: what `url` was before a prefix was taken off. */
  originalUrl?: string | undefined;
}

/** The part of Node's ServerResponse that is used here. */
export interface NodeResponse {
  statusCode: number;
  getHeader(name: string): unknown;
  setHeader(name: string, value: string): unknown;
  end(body?: string): unknown;
  once(event: "close", listener: () => void): unknown;
}

/**
 * The path of a request in lower case, since Express and Connect route without regard to case; its method; the address,
 * as the framework or the connection states it.
 */
export const NODE_DEFAULTS: Known<NodeRequest> = {
  address: (request) => request.ip ?? request.socket.remoteAddress,
  attributes: (request) => ({
    path: escaped(lower(routed(request))),
    method: request.method ?? "GET",
  }),
  header,
  method: (request) => request.method,
  trust: "set Express' `trust proxy`",
};

/** The path by which a request is routed, as it was sent: with the prefix that is mounted, without the query. */
export function path(request: NodeRequest): string {
  return escaped(routed(request));
}

function routed({ baseUrl, path, originalUrl, url }: NodeRequest): string {
  // What Express routes by: `url.parse` reads some targets as no other reader does.
  if (typeof baseUrl === "string" && typeof path === "string") return baseUrl + path;
  return pathOf((originalUrl ?? url ?? "/").trimEnd());
}

const ORIGIN = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i;

/** The path of a request's target: without the query and the fragment, and of the absolute form without the authority. */
export function pathOf(target: string): string {
  const rest = target.replace(ORIGIN, "");
  return rest.split(/[?#]/, 1)[0] || "/";
}

/** In lower case, letters that are escaped, too. */
export function lower(path: string): string {
  const letter = (_: string, digits: string) => String.fromCharCode(Number.parseInt(digits, 16));
  return path.replace(/%(4[1-9a-f]|5[0-9a])/gi, letter).toLowerCase();
}

/** With each byte outside ASCII escaped: Node has them as Latin-1. */
export function escaped(path: string): string {
  const others = path.replace(/[\u0100-\uffff]+/g, (text) =>
    encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\ufffd")),
  );
  return others.replace(/[\u0080-\u00ff]/g, (byte) => `%${byte.charCodeAt(0).toString(16)}`);
}

/** The first value of a header field, or nothing. */
export function header(request: { headers: NodeRequest["headers"] }, name: string): string {
  const value = request.headers[name.toLowerCase()];
  return (Array.isArray(value) ? value[0] : value) ?? "";
}

/** Answers a request that may not go ahead. What the application's CORS has said before stays. */
export function answer(response: NodeResponse, denied: Denial): void {
  response.statusCode = denied.status;
  for (const [name, value] of Object.entries(denied.headers)) {
    if (name.startsWith("access-control-") && response.getHeader(name)) continue;
    response.setHeader(name, value);
  }
  response.end(denied.body);
}

/** Refunds when the response has been sent, or its client has gone. */
export function endWith(
  response: NodeResponse,
  settlement: Settlement,
  said: (name: string) => unknown = (name) => response.getHeader(name),
): void {
  response.once("close", () => {
    settlement.answered(said("access-control-allow-methods"));
    void settlement.end();
  });
}
