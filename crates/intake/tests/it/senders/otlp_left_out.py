"""Sends what no line can hold, with OpenTelemetry's own messages, and looks at the reply: otlp_left_out.py http|grpc ENDPOINT."""

import sys

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.metrics.v1 import metrics_pb2 as metrics

protocol, endpoint = sys.argv[1:]
now = 1_795_420_800_000_000_000
points = [
    metrics.NumberDataPoint(time_unix_nano=now, as_double=2),
    metrics.NumberDataPoint(time_unix_nano=now, as_double=float("nan")),
]
exponential = metrics.ExponentialHistogramDataPoint(time_unix_nano=now, count=1, sum=5)
scope = metrics.ScopeMetrics(
    metrics=[
        metrics.Metric(name="jobs", gauge=metrics.Gauge(data_points=points)),
        metrics.Metric(
            name="latency",
            exponential_histogram=metrics.ExponentialHistogram(data_points=[exponential], aggregation_temporality=2),
        ),
    ]
)
request = service.ExportMetricsServiceRequest(resource_metrics=[metrics.ResourceMetrics(scope_metrics=[scope])])
if protocol == "http":
    import requests

    reply = requests.post(
        f"{endpoint}/v1/metrics",
        data=request.SerializeToString(),
        headers={"content-type": "application/x-protobuf"},
        timeout=60,
    )
    assert reply.status_code == 200, reply
    answer = service.ExportMetricsServiceResponse.FromString(reply.content)
else:
    import grpc
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as stubs

    channel = grpc.insecure_channel(endpoint.removeprefix("http://"))
    answer = stubs.MetricsServiceStub(channel).Export(request, timeout=60)
partial = answer.partial_success
assert partial.rejected_data_points == 1, partial
assert "buckets" in partial.error_message, partial
print("sent:", partial.error_message)
