/** OpenTelemetry for a client: `new Tidegate({ onEvent: metrics(meter), headers: traceContext(api) })`. */

import type { Event } from "./types.js";

/** The part of OpenTelemetry's Meter that is used here. */
export interface MeterLike {
  createCounter(
    name: string,
    options: { unit: string; description: string },
  ): { add(value: number, attributes: Record<string, string>): void };
  createHistogram(
    name: string,
    options: { unit: string; description: string },
  ): { record(value: number, attributes: Record<string, string>): void };
}

/** Makes a hook that counts and times calls. No attribute's value becomes a label. */
export function metrics(meter: MeterLike): (event: Event) => void {
  const calls = meter.createCounter("tidegate.client.calls", {
    unit: "{call}",
    description: "Calls, a batch's decisions each.",
  });
  const duration = meter.createHistogram("tidegate.client.duration", {
    unit: "s",
    description: "How long calls took.",
  });
  return ({ operation, outcome, source, failure, policy, count, durationMs }) => {
    const labels: Record<string, string> = { operation, outcome };
    if (source !== undefined) labels.source = source;
    if (failure !== undefined) labels.failure = failure;
    if (policy !== undefined) labels.policy = policy;
    calls.add(count, labels);
    duration.record(durationMs / 1000, labels);
  };
}

/** The parts of `@opentelemetry/api` that are used here. */
export interface ApiLike<Context> {
  context: { active(): Context };
  propagation: { inject(context: Context, carrier: Record<string, string>): void };
}

/** Makes a hook whose fields make a call part of the current trace, `traceparent` by default. */
export function traceContext<Context>(api: ApiLike<Context>): () => Record<string, string> {
  return () => {
    const carrier: Record<string, string> = {};
    api.propagation.inject(api.context.active(), carrier);
    return carrier;
  };
}
