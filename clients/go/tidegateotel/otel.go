// Package tidegateotel tells OpenTelemetry what a client does: tidegate.client.calls, a counter, and
// tidegate.client.duration, a histogram in seconds, with operation, outcome, source, failure and policy. It adds
// the trace context to requests.
//
//	client, err := tidegate.New(tidegateotel.Observe())
package tidegateotel

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"

	tidegate "github.com/tidegate/tidegate/clients/go"
)

// Observe is a change of a client's options, for [tidegate.New]. It uses the global meter provider and
// propagator; a hook that was set before is called too.
func Observe() func(*tidegate.Options) {
	return func(options *tidegate.Options) {
		meter := otel.Meter("github.com/tidegate/tidegate/clients/go")
		// Instruments that cannot be made do nothing, and the global error handler is told.
		calls, err := meter.Int64Counter("tidegate.client.calls", metric.WithUnit("{call}"))
		if err != nil {
			otel.Handle(err)
		}
		durations, err := meter.Float64Histogram("tidegate.client.duration", metric.WithUnit("s"),
			metric.WithExplicitBucketBoundaries(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5))
		if err != nil {
			otel.Handle(err)
		}
		before := options.OnEvent
		options.OnEvent = func(ctx context.Context, event tidegate.Event) {
			known := metric.WithAttributeSet(attributes(&event))
			calls.Add(ctx, 1, known)
			durations.Record(ctx, event.Duration.Seconds(), known)
			if before != nil {
				before(ctx, event)
			}
		}
		options.Propagate = func(ctx context.Context, header http.Header) {
			otel.GetTextMapPropagator().Inject(ctx, propagation.HeaderCarrier(header))
		}
	}
}

func attributes(event *tidegate.Event) attribute.Set {
	known := []attribute.KeyValue{
		attribute.String("operation", event.Operation), attribute.String("outcome", event.Outcome),
	}
	for name, value := range map[string]string{
		"source": string(event.Source), "failure": string(event.Failure), "policy": event.Policy,
	} {
		if value != "" {
			known = append(known, attribute.String(name, value))
		}
	}
	return attribute.NewSet(known...)
}
