// Command otlpsender sends three metrics with OpenTelemetry's own SDK: otlpsender http|grpc ENDPOINT.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("otlpsender http|grpc ENDPOINT")
	}
	if err := send(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
	fmt.Println("sent")
}

func exporter(ctx context.Context, protocol, endpoint string) (sdk.Exporter, error) {
	if protocol == "http" {
		gzip := otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression)
		return otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(endpoint+"/v1/metrics"), gzip)
	}
	gzip := otlpmetricgrpc.WithCompressor("gzip")
	return otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpointURL(endpoint), gzip)
}

func send(ctx context.Context, protocol, endpoint string) error {
	to, err := exporter(ctx, protocol, endpoint)
	if err != nil {
		return err
	}
	reader := sdk.NewPeriodicReader(to, sdk.WithInterval(time.Hour))
	shop := resource.NewSchemaless(attribute.String("service.name", "shop"))
	provider := sdk.NewMeterProvider(sdk.WithReader(reader), sdk.WithResource(shop))
	meter := provider.Meter("tests")
	orders, err := meter.Int64Counter("orders")
	if err != nil {
		return err
	}
	orders.Add(ctx, 3, metric.WithAttributes(attribute.String("kind", "book")))
	jobs, err := meter.Int64UpDownCounter("jobs")
	if err != nil {
		return err
	}
	jobs.Add(ctx, -2)
	latency, err := meter.Float64Histogram("latency", metric.WithExplicitBucketBoundaries(1, 10))
	if err != nil {
		return err
	}
	latency.Record(ctx, 5)
	if err := provider.ForceFlush(ctx); err != nil {
		return err
	}
	return provider.Shutdown(ctx)
}
