/** What Express, Fastify and a plain Node server have in common: Node's request and response. */
import type { Denial, Known, Settlement } from "./middleware.js";
/** The part of Node's IncomingMessage that is read here, and of what Express and Connect add to it. */
export interface NodeRequest {
    method?: string | undefined;
    url?: string | undefined;
    headers: Record<string, string | string[] | undefined>;
    socket: {
        remoteAddress?: string | undefined;
    };
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
export declare const NODE_DEFAULTS: Known<NodeRequest>;
/** The path by which a request is routed, as it was sent: with the prefix that is mounted, without the query. */
export declare function path(request: NodeRequest): string;
/** The path of a request's target: without the query and the fragment, and of the absolute form without the authority. */
export declare function pathOf(target: string): string;
/** In lower case, letters that are escaped, too. */
export declare function lower(path: string): string;
/** With each byte outside ASCII escaped: Node has them as Latin-1. */
export declare function escaped(path: string): string;
/** The first value of a header field, or nothing. */
export declare function header(request: {
    headers: NodeRequest["headers"];
}, name: string): string;
/** Answers a request that may not go ahead. What the application's CORS has said before stays. */
export declare function answer(response: NodeResponse, denied: Denial): void;
/** Refunds when the response has been sent, or its client has gone. */
export declare function endWith(response: NodeResponse, settlement: Settlement, said?: (name: string) => unknown): void;
