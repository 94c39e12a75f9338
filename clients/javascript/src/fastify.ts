/** For Fastify: `app.register(tidegate, { client, key })`. */

import { fields, Guard, type MiddlewareOptions, Settlement } from "./middleware.js";
import { endWith, escaped, header, lower, type NodeRequest, type NodeResponse, pathOf } from "./node.js";

export { header };

/** The part of Fastify's request that is read here. */
export interface FastifyLikeRequest {
  raw: NodeRequest;
  headers: NodeRequest["headers"];
  ip: string;
}

interface FastifyLikeReply {
  raw: NodeResponse;
  getHeader(name: string): unknown;
  header(name: string, value: string): unknown;
  code(status: number): unknown;
  send(body: Uint8Array): unknown;
}

/** The options of Fastify by which its router reads a path. */
interface RouterOptions {
  caseSensitive?: boolean;
  useSemicolonDelimiter?: boolean;
}

interface FastifyLike {
  initialConfig: RouterOptions & { routerOptions?: RouterOptions };
  addHook(
    name: "onRequest",
    // biome-ignore lint/suspicious/noExplicitAny: Fastify's own types are wider than what is used of them.
    hook: (request: any, reply: any) => Promise<unknown>,
  ): unknown;
}

const settlements = new WeakMap<object, Settlement>();

/** Asks before each request of the whole application. `key` and the others are given Fastify's request. */
export async function tidegate(
  app: FastifyLike,
  options: MiddlewareOptions<FastifyLikeRequest>,
): Promise<void> {
  const router = { ...app.initialConfig, ...app.initialConfig.routerOptions };
  const guard = new Guard<FastifyLikeRequest>(options, {
    address: (request) => request.ip,
    attributes: (request) => ({
      path: escaped(routed(request.raw.url ?? "/", router)),
      method: request.raw.method ?? "GET",
    }),
    header,
    method: (request) => request.raw.method,
    trust: "set Fastify's `trustProxy`",
  });
  app.addHook("onRequest", async (request: FastifyLikeRequest, reply: FastifyLikeReply) => {
    const found = await guard.ask(request);
    if (found === undefined) return undefined;
    if (found instanceof Settlement) {
      settlements.set(request, found);
      endWith(reply.raw, found, (name) => reply.getHeader(name));
      for (const [name, value] of Object.entries(fields(found.decision))) reply.header(name, value);
      return undefined;
    }
    reply.code(found.status);
    for (const [name, value] of Object.entries(found.headers)) {
      // What the application's CORS has said before stays.
      if (!(name.startsWith("access-control-") && reply.getHeader(name))) reply.header(name, value);
    }
    // As bytes: Fastify would add a charset to the type of a text.
    return reply.send(new TextEncoder().encode(found.body));
  });
}

/** The path of a target as Fastify's router reads it. */
function routed(target: string, { caseSensitive, useSemicolonDelimiter }: RouterOptions): string {
  // Of the absolute form all before the third slash, also where that stands in a query.
  let path = pathOf(target.replace(/^https?:\/\/.*?\//i, "/"));
  if (useSemicolonDelimiter) path = path.split(";", 1)[0] || "/";
  return caseSensitive === false ? lower(path) : path;
}

// The hook is for the application, not for a scope that registering would make.
Object.assign(tidegate, { [Symbol.for("skip-override")]: true });

/** What a request has reserved; nothing if it was not asked for. */
export function settlementOf(request: object): Settlement | undefined {
  return settlements.get(request);
}
