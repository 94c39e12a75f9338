"""Calls by a client of gRPC through a gateway to a server of this process, and how each ended: grpc_refused.py GATEWAY SERVER."""

import json
import sys
import threading
from concurrent import futures

import grpc

gateway, own = sys.argv[1:]
ENDED = threading.Event()
TOLD = ("ratelimit-policy", "retry-after", "www-authenticate")


def ask(request, context):
    if request == b"fail":
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as asked")
    if request == b"wait":
        ENDED.wait(60)
    return request


def total(requests, context):
    return str(sum(len(request) for request in requests)).encode()


class Everything(grpc.GenericRpcHandler):
    def service(self, call):
        if call.method.endswith("/Total"):
            return grpc.stream_unary_rpc_method_handler(total)
        return grpc.unary_unary_rpc_method_handler(ask)


server = grpc.server(futures.ThreadPoolExecutor(max_workers=8), handlers=[Everything()])
assert server.add_insecure_port(f"127.0.0.1:{own}") == int(own)
server.start()

# What clients are told to do in the field: UNAVAILABLE is asked again, twice.
retries = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "0.01s",
                "maxBackoff": "0.01s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
options = [("grpc.service_config", json.dumps(retries)), ("grpc.enable_retries", 1)]
channel = grpc.insecure_channel(f"127.0.0.1:{gateway}", options)


def say(name, call):
    try:
        print(name, "OK", call().decode())
    except grpc.RpcError as error:
        metadata = dict(error.trailing_metadata() or ()) | dict(error.initial_metadata() or ())
        told = [f"{field}={metadata[field]}" for field in TOLD if field in metadata]
        print(name, error.code().name, error.details(), *told, sep=" | ")


def unary(service, request=b"hello"):
    say(service, lambda: channel.unary_unary(f"/shop.{service}/Ask")(request, timeout=60))


for _ in range(3):
    unary("Few")
pieces = [b"x" * 1000] * 10
say("Few", lambda: channel.stream_unary("/shop.Few/Total")(iter(pieces), timeout=60))
unary("Keyed")
unary("Away")
unary("Closed")
unary("Late", b"wait")
unary("Small", b"x" * 1000)
unary("Open", b"fail")
unary("Nowhere")
ENDED.set()
channel.close()
server.stop(None).wait()
