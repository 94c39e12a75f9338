package tidegateotel_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	tidegate "github.com/tidegate/tidegate/clients/go"
	"github.com/tidegate/tidegate/clients/go/internal/testserver"
	"github.com/tidegate/tidegate/clients/go/tidegateotel"
)

func TestTellsCallsAndDurationsWithoutClients(t *testing.T) {
	reader := metric.NewManualReader()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	server := testserver.StartWith(t, "[[policy]]\nname = \"calls\"\nlimit = 1\nwindow_seconds = 3600\n")
	client, err := tidegate.New(tidegateotel.Observe(), func(options *tidegate.Options) {
		options.URL, options.Deadline = server.URL, 10*time.Second
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 3 {
		if _, err := client.Allow(context.Background(), tidegate.Attributes{"client_id": "secret"}); err != nil {
			t.Fatal(err)
		}
	}
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &collected); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	durations := uint64(0)
	for _, found := range collected.ScopeMetrics[0].Metrics {
		switch data := found.Data.(type) {
		case metricdata.Sum[int64]:
			for _, point := range data.DataPoints {
				outcome, _ := point.Attributes.Value("outcome")
				source, _ := point.Attributes.Value("source")
				policy, _ := point.Attributes.Value("policy")
				counts[outcome.AsString()+" "+source.AsString()+" "+policy.AsString()] += point.Value
				for _, label := range point.Attributes.ToSlice() {
					if label.Value.AsString() == "secret" {
						t.Errorf("a client is the label %s", label.Key)
					}
				}
			}
		case metricdata.Histogram[float64]:
			for _, point := range data.DataPoints {
				durations += point.Count
			}
		}
	}
	if counts["allowed server calls"] != 1 || counts["denied server calls"] != 1 || counts["denied cache calls"] != 1 || durations != 3 {
		t.Errorf("%v, %d durations", counts, durations)
	}
}

func TestCallsArePartOfTheCurrentTrace(t *testing.T) {
	otel.SetTextMapPropagator(propagation.TraceContext{})
	server, logged := testserver.StartLogging(t, filepath.Join(testserver.Clients(), "conformance.toml"))
	newClient := func(batch bool) *tidegate.Client {
		client, err := tidegate.New(tidegateotel.Observe(), func(options *tidegate.Options) {
			options.URL, options.Token, options.Deadline = server.URL, "conformance-token", 10*time.Second
			options.Batch = batch
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return client
	}
	client, together := newClient(false), newClient(true)
	attributes := tidegate.Attributes{"client_id": "traced", "resource": "ten"}
	calls := []func(context.Context) error{
		func(ctx context.Context) error { _, err := client.Allow(ctx, attributes); return err },
		func(ctx context.Context) error { _, err := client.Refund(ctx, attributes); return err },
		// It may share its request with others, so it is in nobody's trace.
		func(ctx context.Context) error { _, err := together.Allow(ctx, attributes); return err },
		func(ctx context.Context) error { _, err := client.Explain(ctx, attributes); return err },
	}
	line := func(number int) string { return fmt.Sprintf("trace=%032x", number+1) }
	for number, call := range calls {
		span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{15: byte(number + 1)}, SpanID: trace.SpanID{7: 7}})
		if err := call(trace.ContextWithSpanContext(context.Background(), span)); err != nil {
			t.Fatal(err)
		}
	}
	for began := time.Now(); !strings.Contains(logged(), line(3)) && time.Since(began) < 20*time.Second; {
		runtime.Gosched()
	}
	for number := range calls {
		if is := strings.Contains(logged(), line(number)); is != (number != 2) {
			t.Errorf("call %d is logged with its trace: %t", number, is)
		}
	}
}
