"""Receives OTLP over HTTP with OpenTelemetry's own messages: says on which port, then prints each request as JSON."""

import http.server

from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        request = ExportMetricsServiceRequest()
        request.ParseFromString(body)
        request.DiscardUnknownFields()
        known = request.ByteSize() == len(body) and self.headers["content-type"] == "application/x-protobuf"
        print(MessageToJson(request, indent=None) if known else "unknown fields", flush=True)
        reply = ExportMetricsServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)


server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_port, flush=True)
server.serve_forever()
