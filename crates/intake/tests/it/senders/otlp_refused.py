"""Calls by OpenTelemetry's own stubs that a receiver of metrics refuses, and how each ends: otlp_refused.py ADDRESS."""

import sys

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_stubs
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_stubs
from opentelemetry.proto.metrics.v1 import metrics_pb2

channel = grpc.insecure_channel(sys.argv[1])


def refused(call, request):
    try:
        call(request, timeout=60)
    except grpc.RpcError as error:
        return error.code().name, error.details(), dict(error.trailing_metadata())
    raise AssertionError("it succeeded")


code, details, _ = refused(traces_stubs.TraceServiceStub(channel).Export, traces.ExportTraceServiceRequest())
assert (code, details) == ("UNIMPLEMENTED", "there is nothing at this path"), (code, details)

point = metrics_pb2.NumberDataPoint(time_unix_nano=1_795_420_800_000_000_000, as_double=2)
metric = metrics_pb2.Metric(name="jobs", gauge=metrics_pb2.Gauge(data_points=[point]))
resource = metrics_pb2.ResourceMetrics(scope_metrics=[metrics_pb2.ScopeMetrics(metrics=[metric])])
request = metrics.ExportMetricsServiceRequest(resource_metrics=[resource])
code, details, metadata = refused(metrics_stubs.MetricsServiceStub(channel).Export, request)
assert (code, int(metadata["retry-after"]) > 0) == ("UNAVAILABLE", True), (code, details, metadata)
print("sent")
