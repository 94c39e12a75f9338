/** OpenTelemetry for a client: `new Tidegate({ onEvent: metrics(meter), headers: traceContext(api) })`. */
import type { Event } from "./types.js";
/** The part of OpenTelemetry's Meter that is used here. */
export interface MeterLike {
    createCounter(name: string, options: {
        unit: string;
        description: string;
    }): {
        add(value: number, attributes: Record<string, string>): void;
    };
    createHistogram(name: string, options: {
        unit: string;
        description: string;
    }): {
        record(value: number, attributes: Record<string, string>): void;
    };
}
/** Makes a hook that counts and times calls. No attribute's value becomes a label. */
export declare function metrics(meter: MeterLike): (event: Event) => void;
/** The parts of `@opentelemetry/api` that are used here. */
export interface ApiLike<Context> {
    context: {
        active(): Context;
    };
    propagation: {
        inject(context: Context, carrier: Record<string, string>): void;
    };
}
/** Makes a hook whose fields make a call part of the current trace, `traceparent` by default. */
export declare function traceContext<Context>(api: ApiLike<Context>): () => Record<string, string>;
