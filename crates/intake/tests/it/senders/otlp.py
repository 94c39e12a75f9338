"""Sends three metrics with OpenTelemetry's own SDK: otlp.py http|grpc ENDPOINT."""

import sys

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

protocol, endpoint = sys.argv[1:]
if protocol == "http":
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    exporter = OTLPMetricExporter(endpoint=f"{endpoint}/v1/metrics", compression=Compression.Gzip)
else:
    import grpc
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

    exporter = OTLPMetricExporter(endpoint=endpoint, insecure=True, compression=grpc.Compression.Gzip)

reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
provider = MeterProvider(metric_readers=[reader], resource=Resource.create({"service.name": "shop"}))
meter = provider.get_meter("tests")
meter.create_counter("orders").add(3, {"kind": "book"})
meter.create_up_down_counter("jobs").add(-2)
meter.create_histogram("latency", explicit_bucket_boundaries_advisory=[1, 10]).record(5)
assert provider.force_flush()
provider.shutdown()
print("sent")
