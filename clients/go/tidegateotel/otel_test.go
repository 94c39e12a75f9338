package tidegateotel_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

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
