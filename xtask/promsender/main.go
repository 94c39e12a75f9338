// Command promsender sends remote write 2.0 with Prometheus' own library: promsender URL.
//
// A counter with an exemplar, a gauge, and a native histogram, which a line cannot hold; then says what the other side has
// written.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
)

const millis = 1_795_420_800_000

func main() {
	if len(os.Args) != 2 {
		log.Fatal("promsender URL")
	}
	written, err := send(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("sent: %d samples, %d histograms, %d exemplars written\n", written.Samples, written.Histograms, written.Exemplars)
}

func send(url string) (remote.WriteResponseStats, error) {
	api, err := remote.NewAPI(url, remote.WithAPIPath("api/v1/write"))
	if err != nil {
		return remote.WriteResponseStats{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return api.Write(ctx, remote.WriteV2MessageType, request())
}

func request() *writev2.Request {
	symbols := writev2.NewSymbolTable()
	labels := func(pairs ...string) []uint32 { return symbols.SymbolizeLabels(pairs, nil) }
	metadata := func(kind writev2.Metadata_MetricType) *writev2.Metadata {
		return &writev2.Metadata{Type: kind, HelpRef: symbols.Symbolize("what it is")}
	}
	sample := func(value float64) []*writev2.Sample {
		return []*writev2.Sample{{Value: value, Timestamp: millis}}
	}
	series := []*writev2.TimeSeries{
		{
			LabelsRefs: labels("__name__", "orders_total", "kind", "book"),
			Samples:    sample(3),
			Exemplars:  []*writev2.Exemplar{{LabelsRefs: labels("trace_id", "a"), Value: 1, Timestamp: millis}},
			Metadata:   metadata(writev2.Metadata_METRIC_TYPE_COUNTER),
		},
		{
			LabelsRefs: labels("__name__", "jobs"),
			Samples:    sample(-2),
			Metadata:   metadata(writev2.Metadata_METRIC_TYPE_GAUGE),
		},
		{
			LabelsRefs: labels("__name__", "latency"),
			Histograms: []*writev2.Histogram{{Count: &writev2.Histogram_CountInt{CountInt: 1}, Sum: 5, Timestamp: millis}},
			Metadata:   metadata(writev2.Metadata_METRIC_TYPE_HISTOGRAM),
		},
	}
	return &writev2.Request{Symbols: symbols.Symbols(), Timeseries: series}
}
