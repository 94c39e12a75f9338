/**
 * A call's place among the connections, and one deadline for all of it: waiting for a place, connecting, the reply.
 *
 * `by-node.ts` sends it where the platform is Node, else `by-fetch.ts`. Neither follows redirects, which would carry
 * the token away, and neither sends anything twice.
 */
import type { Settings } from "./options.js";
import type { Failure } from "./types.js";
/** Longest body that is read. */
export declare const MAX_BODY: number;
/** The server gave no answer. Never leaves the client, but for `Unavailable`. */
export declare class Failed extends Error {
    readonly failure: Failure;
    /** False where every connection was in use, which says nothing about the server. */
    readonly ofServer: boolean;
    constructor(failure: Failure, 
    /** False where every connection was in use, which says nothing about the server. */
    ofServer?: boolean);
}
/** What is asked. */
export interface Asked {
    method: string;
    path: string;
    body?: string;
    /** Whether several callers share it: then it is in nobody's trace. */
    shared?: boolean;
}
/** What is sent. */
export interface Sent {
    method: string;
    path: string;
    headers: Record<string, string>;
    body: string | undefined;
}
/** A whole response. */
export interface Reply {
    status: number;
    /** The value of a header field, by its name in lower case. */
    field: (name: string) => string | undefined;
    body: string;
}
/** What sends requests. */
export interface Sender {
    /** Sends one, and says once what came of it, when it is over. What it returns ends the request early. */
    send: (request: Sent, over: (outcome: Reply | Failure) => void) => () => void;
    /** Gives the connections back that are kept. */
    close: () => void;
}
export declare class Transport {
    #private;
    readonly settings: Settings;
    /** Calls that found every connection in use until their deadline. */
    full: number;
    constructor(settings: Settings);
    /** Sends a request and reads its reply; `deadline` is a time of `performance.now()`. */
    call({ method, path, body, shared }: Asked, deadline: number): Promise<Reply>;
    /** Gives the connections back. */
    close(): void;
}
