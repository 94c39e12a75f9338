/** What Express, Fastify and a plain Node server have in common: Node's request and response. */

import type { Denial, MiddlewareOptions, Settlement } from "./middleware.js";

/** The part of Node's IncomingMessage that is read here. */
export interface NodeRequest {
  method?: string | undefined;
  url?: string | undefined;
  headers: Record<string, string | string[] | undefined>;
  socket: { remoteAddress?: string | undefined };
}

/** The part of Node's ServerResponse that is used here. */
export interface NodeResponse {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(body?: string): unknown;
  once(event: "close", listener: () => void): unknown;
}

/** The peer's address, as the connection states it; path and method. */
export const NODE_DEFAULTS: Required<Pick<MiddlewareOptions<NodeRequest>, "key" | "attributes">> = {
  key: (request) => request.socket.remoteAddress ?? "",
  attributes: (request) => ({
    path: (request.url ?? "/").split("?", 1)[0] ?? "/",
    method: request.method ?? "GET",
  }),
};

/** The first value of a header field, or nothing. */
export function header(request: { headers: NodeRequest["headers"] }, name: string): string {
  const value = request.headers[name.toLowerCase()];
  return (Array.isArray(value) ? value[0] : value) ?? "";
}

/** Answers a request that may not go ahead. */
export function answer(response: NodeResponse, denied: Denial): void {
  response.statusCode = denied.status;
  for (const [name, value] of Object.entries(denied.headers)) response.setHeader(name, value);
  response.end(denied.body);
}

/** Refunds when the response has been sent, or its client has gone. */
export function endWith(response: NodeResponse, settlement: Settlement): void {
  response.once("close", () => void settlement.end());
}
