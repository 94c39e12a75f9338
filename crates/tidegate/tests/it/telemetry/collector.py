"""A collector of OpenTelemetry's own messages: takes OTLP over HTTP, and writes each span and point as a line of JSON.

  collector.py PORT [TOKEN]     PORT 0: any. With a TOKEN, who does not send it as `authorization: Bearer` is answered 401.

What comes is read by the classes of opentelemetry-proto, as protobuf or, from a collector that passes it on, as JSON.
"""

import base64
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.trace.v1.trace_pb2 import Span

token = sys.argv[2] if len(sys.argv) > 2 else None
writing = threading.Lock()


def write(line):
    with writing:
        print(json.dumps(line), flush=True)


def attributes(pairs):
    kinds = (pair.value.WhichOneof("value") for pair in pairs)
    return {pair.key: getattr(pair.value, kind) for pair, kind in zip(pairs, kinds)}


def spans(request):
    for of_resource in request.resource_spans:
        for scoped in of_resource.scope_spans:
            for span in scoped.spans:
                write({
                    "span": span.span_id.hex(),
                    "trace": span.trace_id.hex(),
                    "parent": span.parent_span_id.hex(),
                    "name": span.name,
                    "kind": Span.SpanKind.Name(span.kind),
                    "flags": span.flags,
                    "from": span.start_time_unix_nano,
                    "to": span.end_time_unix_nano,
                    "status": span.status.code,
                    "attributes": attributes(span.attributes),
                    "resource": attributes(of_resource.resource.attributes),
                    "scope": scoped.scope.name,
                })


def points(request):
    for of_resource in request.resource_metrics:
        for scoped in of_resource.scope_metrics:
            for metric in scoped.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind)
                for point in data.data_points:
                    line = {
                        "metric": metric.name,
                        "description": metric.description,
                        "kind": kind,
                        "attributes": attributes(point.attributes),
                        "resource": attributes(of_resource.resource.attributes),
                        "since": point.start_time_unix_nano,
                        "at": point.time_unix_nano,
                    }
                    if kind == "histogram":
                        line |= {"count": point.count, "sum": point.sum}
                        line |= {"counts": list(point.bucket_counts), "bounds": list(point.explicit_bounds)}
                    else:
                        line["value"] = point.as_double
                    if kind != "gauge":
                        line["temporality"] = data.aggregation_temporality
                    if kind == "sum":
                        line["monotonic"] = data.is_monotonic
                    write(line)


KINDS = {
    "/v1/traces": (traces.ExportTraceServiceRequest, traces.ExportTraceServiceResponse, spans),
    "/v1/metrics": (metrics.ExportMetricsServiceRequest, metrics.ExportMetricsServiceResponse, points),
}


class Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if token and self.headers.get("authorization") != f"Bearer {token}":
            write({"unauthorized": self.path})
            return self.answer(401, b"")
        request, response, take = KINDS[self.path]
        read = request()
        if self.headers["content-type"] == "application/json":
            read = json_format.Parse(hex_as_base64(body), read, ignore_unknown_fields=True)
        else:
            read.ParseFromString(body)
        take(read)
        self.answer(200, response().SerializeToString())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def hex_as_base64(body):
    """OTLP's JSON has identifiers in hexadecimal, where protobuf's own JSON has base64."""

    def walked(value, name=None):
        if isinstance(value, list):
            return [walked(each) for each in value]
        if isinstance(value, dict):
            return {key: walked(each, key) for key, each in value.items()}
        if name in ("traceId", "spanId", "parentSpanId"):
            return base64.b64encode(bytes.fromhex(value)).decode()
        return value

    return json.dumps(walked(json.loads(body)))


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


server = Server(("127.0.0.1", int(sys.argv[1])), Collector)
write({"listening": server.server_address[1]})
server.serve_forever()
