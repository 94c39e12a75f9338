// What requests are answered, as the metrics page counts them: each once, however many policies it is under.

import { type Reading, type Series, total } from "./metrics";

/** `unmatched`: let through, since no policy applies. */
export const ANSWERS = ["allowed", "denied", "unmatched"] as const;
export type Answer = (typeof ANSWERS)[number];

/** Families of durations, by the label that says what was asked. */
export const DURATIONS = ["tidegate_http_request_duration_seconds", "tidegate_resp_command_duration_seconds"];

/** Where requests come in. */
export interface Door {
  name: string;
  /** The protocol of its answers. */
  protocol: string;
  /** Whether a duration is one of its requests'. */
  isTimed: (labels: Series["labels"]) => boolean;
  /** How many it had, where that is not how many were timed. */
  count?: (reading: Reading) => number;
  /** A family that there is if it is served; one for decisions always is. */
  family?: string;
}

const HTTP_ROUTES = ["/api/v1/ratelimit", "/v1/decisions", "/v1/check"];
const sum =
  (...families: string[]) =>
  (reading: Reading) =>
    families.reduce((sum, family) => sum + total(reading, family), 0);

/** Those that ask for decisions. */
const DECIDING: Door[] = [
  {
    name: "HTTP",
    protocol: "http",
    isTimed: (it) => HTTP_ROUTES.includes(it.route ?? ""),
  },
  {
    name: "gRPC",
    protocol: "grpc",
    isTimed: (it) => it.server === "grpc" && /RateLimit/i.test(it.route ?? ""),
  },
  {
    name: "RESP",
    protocol: "resp",
    isTimed: (it) => it.server === "resp" && /THROTTLE/i.test(it.command ?? ""),
  },
];

export const DOORS: Door[] = [
  ...DECIDING,
  {
    name: "Gateway, requests",
    protocol: "gateway",
    isTimed: (it) => it.server === "gateway",
    family: "tidegate_upstream_server_up",
  },
  {
    name: "Edge, connections",
    protocol: "edge",
    isTimed: () => false,
    count: sum("tidegate_edge_placed_total", "tidegate_edge_refused_total"),
    family: "tidegate_edge_placed_total",
  },
  {
    name: "Intake, batches",
    protocol: "intake",
    isTimed: (it) => it.server === "intake",
    count: sum("tidegate_intake_batches_total", "tidegate_intake_refused_total"),
    family: "tidegate_intake_batches_total",
  },
];

/** Whether a duration is a decision's. */
export const isDecision = ({ labels }: Series) => DECIDING.some(({ isTimed }) => isTimed(labels));

/** Requests that were answered so. */
export function answered(reading: Reading, ...answers: Answer[]): number {
  return answers.reduce(
    (sum, result) => sum + total(reading, "tidegate_requests_decided_total", { result }),
    0,
  );
}

/** Requests of a door. */
export function requestsOf(door: Door, reading: Reading): number {
  if (door.count) return door.count(reading);
  const timed = DURATIONS.flatMap((family) => reading.families.get(`${family}_count`) ?? []);
  return timed.reduce((sum, { labels, value }) => (door.isTimed(labels) ? sum + value : sum), 0);
}

/** Whether a reading is of a process that has the door. */
export function isServed(door: Door, reading: Reading): boolean {
  return (
    door.family === undefined ||
    (reading.families.get(door.family)?.length ?? 0) > 0 ||
    requestsOf(door, reading) > 0
  );
}
