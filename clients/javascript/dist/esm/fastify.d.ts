/** For Fastify: `app.register(tidegate, { client, key })`. */
import { type MiddlewareOptions, Settlement } from "./middleware.js";
import { header, type NodeRequest } from "./node.js";
export { header };
/** The part of Fastify's request that is read here. */
export interface FastifyLikeRequest {
    raw: NodeRequest;
    headers: NodeRequest["headers"];
    ip: string;
}
/** The options of Fastify by which its router reads a path. */
interface RouterOptions {
    caseSensitive?: boolean;
    useSemicolonDelimiter?: boolean;
}
interface FastifyLike {
    initialConfig: RouterOptions & {
        routerOptions?: RouterOptions;
    };
    addHook(name: "onRequest", hook: (request: any, reply: any) => Promise<unknown>): unknown;
}
/** Asks before each request of the whole application. `key` and the others are given Fastify's request. */
export declare function tidegate(app: FastifyLike, options: MiddlewareOptions<FastifyLikeRequest>): Promise<void>;
/** What a request has reserved; nothing if it was not asked for. */
export declare function settlementOf(request: object): Settlement | undefined;
