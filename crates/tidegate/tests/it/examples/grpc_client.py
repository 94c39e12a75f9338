"""A client of gRPC that knows nothing of the service but its address: health, reflection, a call."""

import os
import threading

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICE = "envoy.service.ratelimit.v3.RateLimitService"
METHOD = "/" + SERVICE + "/ShouldRateLimit"

channel = grpc.insecure_channel("127.0.0.1:" + os.environ["TIDEGATE_PORT"])

health = health_pb2_grpc.HealthStub(channel)
check = health.Check(health_pb2.HealthCheckRequest(service=SERVICE))
print("health", health_pb2.HealthCheckResponse.ServingStatus.Name(check.status))
watch = health.Watch(health_pb2.HealthCheckRequest())
print("watch", health_pb2.HealthCheckResponse.ServingStatus.Name(next(watch).status))
try:
    health.Check(health_pb2.HealthCheckRequest(service="other"))
except grpc.RpcError as error:
    print("other", error.code().name, error.details())

database = ProtoReflectionDescriptorDatabase(channel)
print("services", *sorted(database.get_services()))
pool = DescriptorPool(database)
for service in database.get_services():
    for method in pool.FindServiceByName(service).methods:
        print("method", method.full_name, method.input_type.name, method.output_type.name)
method = pool.FindServiceByName(SERVICE).FindMethodByName("ShouldRateLimit")
Request, Response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)

request = Request(domain="shop", hits_addend=1)
descriptor = request.descriptors.add(limit={"requests_per_unit": 5, "unit": "DAY"}, hits_addend={"value": 2})
descriptor.entries.add(key="client", value="a")
ask = channel.unary_unary(METHOD, request_serializer=Request.SerializeToString, response_deserializer=Response.FromString)
for _ in range(3):
    answer = MessageToDict(ask(request), preserving_proto_field_name=True)
    for status in answer["statuses"]:
        status.pop("duration_until_reset")
    print(answer)
try:
    ask(Request())
except grpc.RpcError as error:
    print("empty", error.code().name, error.details())

# A conversation that the client does not end.
silent = threading.Event()


def questions():
    yield reflection_pb2.ServerReflectionRequest(list_services="")
    silent.wait()


conversation = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(questions())
print("conversation", len(next(conversation).list_services_response.service))

# The watch goes on until the service is told to stop.
print("ready", flush=True)
changes = []
try:
    for change in watch:
        changes.append(health_pb2.HealthCheckResponse.ServingStatus.Name(change.status))
except grpc.RpcError as error:
    print("changes", *changes, error.code().name)
try:
    next(conversation)
except grpc.RpcError as error:
    print("conversation", error.code().name)
silent.set()
