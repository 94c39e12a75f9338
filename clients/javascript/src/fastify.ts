/** For Fastify: `app.register(tidegate, { client, key })`. */

import { fields, Guard, type MiddlewareOptions, Settlement } from "./middleware.js";
import { endWith, NODE_DEFAULTS, type NodeRequest, type NodeResponse } from "./node.js";

export { header } from "./node.js";

/** The part of Fastify's request that is read here. */
export interface FastifyLikeRequest {
  raw: NodeRequest;
  headers: NodeRequest["headers"];
  ip: string;
}

interface FastifyLikeReply {
  raw: NodeResponse;
  header(name: string, value: string): unknown;
  code(status: number): unknown;
  send(body: Uint8Array): unknown;
}

interface FastifyLike {
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
  const guard = new Guard<FastifyLikeRequest>(options, {
    key: (request) => request.ip,
    attributes: (request) => NODE_DEFAULTS.attributes(request.raw),
  });
  app.addHook("onRequest", async (request: FastifyLikeRequest, reply: FastifyLikeReply) => {
    const found = await guard.ask(request);
    if (found === undefined) return undefined;
    if (found instanceof Settlement) {
      settlements.set(request, found);
      endWith(reply.raw, found);
      for (const [name, value] of Object.entries(fields(found.decision))) reply.header(name, value);
      return undefined;
    }
    reply.code(found.status);
    for (const [name, value] of Object.entries(found.headers)) reply.header(name, value);
    // As bytes: Fastify would add a charset to the type of a text.
    return reply.send(new TextEncoder().encode(found.body));
  });
}

// The hook is for the application, not for a scope that registering would make.
Object.assign(tidegate, { [Symbol.for("skip-override")]: true });

/** What a request has reserved; nothing if it was not asked for. */
export function settlementOf(request: object): Settlement | undefined {
  return settlements.get(request);
}
