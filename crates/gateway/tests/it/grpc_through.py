"""A gRPC server and clients that ask it through a gateway: `serve PORT`, `ask PORT`, `meet PORT`."""

import queue
import sys
import threading
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc


def unary(request, context):
    context.send_initial_metadata((("x-initial", "1"),))
    context.set_trailing_metadata((("x-trailing", "2"),))
    if request == b"fail":
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as asked")
    return request[::-1]


# More at once than the server allows on a connection, and fewer than its threads.
MEETING = threading.Barrier(6)
STREAMS_OF_A_CONNECTION = 4


def meet(request, context):
    MEETING.wait(60)
    return b""


def count(request, context):
    for number in range(int(request)):
        yield str(number).encode()


def total(requests, context):
    return str(sum(len(request) for request in requests)).encode()


def dialogue(requests, context):
    for request in requests:
        yield b"heard " + request


def serve(port):
    methods = {
        "Meet": grpc.unary_unary_rpc_method_handler(meet),
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Count": grpc.unary_stream_rpc_method_handler(count),
        "Total": grpc.stream_unary_rpc_method_handler(total),
        "Dialogue": grpc.stream_stream_rpc_method_handler(dialogue),
    }
    options = [("grpc.max_concurrent_streams", STREAMS_OF_A_CONNECTION)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8), options=options)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Service", methods),))
    status = health.HealthServicer()
    status.set("test.Service", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    assert server.add_insecure_port(f"127.0.0.1:{port}") == port
    server.start()
    print("ready", flush=True)
    # A line says what the health service is to answer from then on.
    for line in sys.stdin:
        answer = getattr(health_pb2.HealthCheckResponse, line.strip())
        status.set("test.Service", answer)
    server.wait_for_termination()


def ask(port):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        reply, call = channel.unary_unary("/test.Service/Unary").with_call(b"abc", timeout=60)
        initial, trailing = dict(call.initial_metadata()), dict(call.trailing_metadata())
        print("unary", reply.decode(), initial["x-initial"], trailing["x-trailing"])
        try:
            channel.unary_unary("/test.Service/Unary")(b"fail", timeout=60)
        except grpc.RpcError as error:
            print("failed", error.code().name, error.details())
        large = channel.unary_unary("/test.Service/Unary")(b"x" * 3_000_000, timeout=60)
        print("large", len(large))
        numbers = channel.unary_stream("/test.Service/Count")(b"1000", timeout=60)
        print("count", sum(int(number) for number in numbers))
        pieces = (b"x" * 50_000 for _ in range(100))
        print("total", channel.stream_unary("/test.Service/Total")(pieces, timeout=60).decode())
        said, heard = [], queue.Queue()

        def words():
            # Each word is said when the last one was answered.
            for word in [b"one", b"two", b"three"]:
                yield word
                heard.get(timeout=60)

        for answer in channel.stream_stream("/test.Service/Dialogue")(words(), timeout=60):
            said.append(answer.decode())
            heard.put(None)
        print("dialogue", ", ".join(said))
        try:
            channel.unary_unary("/test.Service/Missing")(b"", timeout=60)
        except grpc.RpcError as error:
            print("missing", error.code().name)
        stub = health_pb2_grpc.HealthStub(channel)
        print("health", stub.Check(health_pb2.HealthCheckRequest(service="test.Service"), timeout=60).status)


def meet_all(port):
    """Has several requests wait for one another, once it is known how many the server takes on a connection."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        channel.unary_unary("/test.Service/Unary")(b"abc", timeout=60)
        method = channel.unary_unary("/test.Service/Meet")
        calls = [method.future(b"", timeout=60) for _ in range(MEETING.parties)]
        print("met", len([call.result() for call in calls]))


command, port = sys.argv[1:]
{"serve": serve, "ask": ask, "meet": meet_all}[command](int(port))
