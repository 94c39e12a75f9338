/**
 * Requests by Node's own HTTP client, which cost a third of those by its `fetch`: see decision 0292.
 *
 * Nothing of Node is imported, so a bundle for browsers takes this file along and never runs it.
 */
import { type Sender } from "./transport.js";
/** Sends to this URL and paths below it, over kept connections. Nothing where the platform is not Node. */
export declare function byNode(text: string, maxConnections: number): Sender | undefined;
