/** Asks Tidegate, a rate-limit service, and is never the reason of an outage. */
export { Permit, Tidegate } from "./client.js";
export { InvalidRequest, Unavailable, } from "./types.js";
/** This package's version, which is the binary's. */
export const VERSION = "0.1.0";
