"use strict";
/** OpenTelemetry for a client: `new Tidegate({ onEvent: metrics(meter), headers: traceContext(api) })`. */
Object.defineProperty(exports, "__esModule", { value: true });
exports.metrics = metrics;
exports.traceContext = traceContext;
/** Makes a hook that counts and times calls. No attribute's value becomes a label. */
function metrics(meter) {
    const calls = meter.createCounter("tidegate.client.calls", {
        unit: "{call}",
        description: "Calls, a batch's decisions each.",
    });
    const duration = meter.createHistogram("tidegate.client.duration", {
        unit: "s",
        description: "How long calls took.",
    });
    return ({ operation, outcome, source, failure, policy, count, durationMs }) => {
        const labels = { operation, outcome };
        if (source !== undefined)
            labels.source = source;
        if (failure !== undefined)
            labels.failure = failure;
        if (policy !== undefined)
            labels.policy = policy;
        calls.add(count, labels);
        duration.record(durationMs / 1000, labels);
    };
}
/** Makes a hook whose fields make a call part of the current trace, `traceparent` by default. */
function traceContext(api) {
    return () => {
        const carrier = {};
        api.propagation.inject(api.context.active(), carrier);
        return carrier;
    };
}
