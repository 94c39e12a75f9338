"""What conformance.json cannot say: fault 75 with many callers, threads, forks, TLS, hooks, types."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import ssl
import subprocess
import threading
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

import tidegate
from support import CLIENTS, PATIENCE, ROOT, TOKEN, Server, faulty, nothing, server, until
from tidegate import AsyncClient, Client, Decision, Event, Part, Request, _types
from tidegate._fallback import Breaker, Denials, LocalLimiter
from tidegate._http import BrokenReply, Reader
from tidegate._middleware import fields
from tidegate.otel import metrics, trace_context

WHO = {"client_id": "u", "resource": "ten"}
DEADLINE_MS = 50.0


@pytest.fixture
def own() -> Iterator[Server]:
    with server() as started:
        yield started


def all_end(callers: int, call: Callable[[], Decision]) -> None:
    """Each of several threads calls three times. The server gives no answer, and each call ends by its mode.

    How much later than its deadline is measured in regression/clients.
    """
    found: list[Decision] = []
    threads = [
        threading.Thread(target=lambda: found.extend(call() for _ in range(3)), daemon=True)
        for _ in range(callers)
    ]
    for thread in threads:
        thread.start()
    until(lambda: not any(thread.is_alive() for thread in threads))
    assert [decision.degraded for decision in found] == ["open"] * callers * 3


@pytest.mark.parametrize(
    "fault", ["drip", "slow", "full", "garbage", "error_500", "endless", "endless_header"]
)
def test_fault_75_each_call_of_a_faulty_server_ends_by_its_mode(fault: str) -> None:
    with faulty(fault) as own, Client(own.url, deadline_ms=DEADLINE_MS, breaker_failures=1_000_000) as client:
        all_end(8, lambda: client.allow(WHO))


def test_fault_75_each_call_of_a_frozen_server_ends_by_its_mode(own: Server) -> None:
    options: dict[str, Any] = {"token": TOKEN, "breaker_failures": 1_000_000}
    with Client(own.url, **options) as client:
        until(lambda: client.allow(WHO, peek=True).source == "server")
        own.freeze()
        all_end(8, lambda: client.allow(WHO))

    async def together() -> None:
        async with AsyncClient(own.url, **options) as other:
            for _ in range(3):
                found = await asyncio.gather(*(other.allow(WHO) for _ in range(8)))
                assert [decision.failure for decision in found] == ["timeout"] * 8

    asyncio.run(asyncio.wait_for(together(), PATIENCE))


def test_more_threads_than_connections_wait_within_their_deadline(own: Server) -> None:
    client = Client(own.url, token=TOKEN, max_connections=2, breaker_failures=1_000_000)
    own.freeze()
    all_end(8, lambda: client.allow(WHO))
    holding = [threading.Thread(target=lambda: client.allow(WHO, deadline_ms=1_000)) for _ in range(2)]
    for thread in holding:
        thread.start()
    until(lambda: client.allow(WHO).failure == "timeout" and client.stats().connections_full > 0)
    for thread in holding:
        thread.join()
    own.thaw()
    until(lambda: client.allow(WHO, peek=True).source == "server")


def test_calls_of_async_tasks_can_be_cancelled(own: Server) -> None:
    async def cancel() -> None:
        client = AsyncClient(own.url, token=TOKEN, deadline_ms=60_000)
        task = asyncio.create_task(client.allow(WHO))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        own.thaw()
        assert (await client.allow(WHO)).source == "server"
        await client.close()

    own.freeze()
    asyncio.run(cancel())


def test_one_async_client_serves_one_event_loop_after_another(own: Server) -> None:
    client = AsyncClient(own.url, token=TOKEN, deadline_ms=5000, batch=True)
    for _ in range(3):
        assert asyncio.run(client.allow(WHO)).source == "server"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_makes_connections_of_its_own(own: Server) -> None:
    client = Client(own.url, token=TOKEN, deadline_ms=5000)
    assert client.allow(WHO, peek=True).source == "server"
    parents = set(client._pool._idle)
    child = os.fork()
    if child == 0:
        good = client.allow(WHO, peek=True).source == "server" and not parents & set(client._pool._idle)
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert client.allow(WHO, peek=True).source == "server"
    assert set(client._pool._idle) == parents


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_waits_for_no_thread_of_its_parent(own: Server) -> None:
    fallback = tidegate.Fallback(limit=2, window_seconds=3_600)
    client = Client(own.url, token=TOKEN, deadline_ms=5000, batch=True, fallback=fallback)
    turns, local = client._turns, client._core._local
    assert turns is not None
    assert local is not None
    # As another thread holds them in the middle of a batch.
    turns._busy = True
    core = client._core
    held = [turns._lock, local._lock, core.denials._lock, core.breaker._lock, client._pool._lock]
    for lock in held:
        lock.acquire()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        good = client.allow(WHO, peek=True).source == "server"
        good = good and local.decide(Request(WHO), 0.0).allowed
        denied = Decision(False, retry_after_ms=10_000)
        client._core.denials.keep(Request(WHO), denied, 1.0, 1.1)
        client._core.breaker.failed(1.0)
        os._exit(0 if good else 1)
    for lock in held:
        lock.release()
    assert os.waitpid(child, 0)[1] == 0


def test_tls(tmp_path: pathlib.Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
        ],
        check=True,
        capture_output=True,
    )
    config = tmp_path / "tidegate.toml"
    tls = f'[http]\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n'
    config.write_text(tls + (CLIENTS / "conformance.toml").read_text().replace('on_no_match = "allow"\n', ""))
    trusted = ssl.create_default_context(cafile=str(certificate))
    with server(config) as own:
        url = f"https://localhost:{own.port}"
        with Client(url, token=TOKEN, deadline_ms=10_000, tls=trusted) as client:
            assert [client.allow(WHO).source for _ in range(3)] == ["server"] * 3
        with Client(url, token=TOKEN, deadline_ms=10_000) as stranger:
            assert stranger.allow(WHO).failure == "connection"

        async def ask() -> None:
            client = AsyncClient(url, token=TOKEN, deadline_ms=10_000, tls=trusted)
            assert (await client.allow(WHO)).source == "server"
            await client.close()

        asyncio.run(ask())


def test_a_name_that_is_none_and_a_hook_that_throws() -> None:
    seen: list[Event] = []

    def hook(event: Event) -> None:
        seen.append(event)
        raise RuntimeError

    client = Client("http://no-such-host.invalid:4000", deadline_ms=10_000, on_event=hook)
    assert client.allow(WHO).failure == "connection"
    assert [(event.operation, event.outcome, event.failure) for event in seen] == [
        ("allow", "allowed", "connection")
    ]
    assert "'u'" not in repr(seen)


def test_opentelemetry_counts_calls(own: Server) -> None:
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("tests")
    with Client(own.url, token=TOKEN, deadline_ms=10_000, on_event=metrics(meter)) as client:
        client.allow(WHO)
        client.refund(WHO)
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        (metric.name, str(dict(point.attributes or {})))
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    }
    allowed = {"operation": "allow", "outcome": "allowed", "source": "server", "policy": "ten"}
    done = {"operation": "refund", "outcome": "done", "source": "server"}
    names = ("tidegate.client.calls", "tidegate.client.duration")
    assert found == {(name, str(labels)) for name in names for labels in (allowed, done)}


def test_calls_are_part_of_the_current_trace(tmp_path: pathlib.Path) -> None:
    log = tmp_path / "log"
    traces = [f"{number:032x}" for number in range(1, 6)]

    def logged(trace: str) -> bool:
        return f"trace={trace}" in log.read_text()

    def within(trace: str) -> contextlib.AbstractContextManager[object]:
        span = SpanContext(int(trace, 16), 7, is_remote=False, trace_flags=TraceFlags(1))
        return use_span(NonRecordingSpan(span))

    with server(log=log) as own:
        options: dict[str, Any] = {"token": TOKEN, "deadline_ms": 10_000, "headers": trace_context}
        with Client(own.url, **options) as client:
            calls: list[Callable[[dict[str, str]], object]] = [client.allow, client.refund, client.explain]
            for trace, call in zip(traces, calls, strict=False):
                with within(trace):
                    call(WHO)
        with Client(own.url, batch=True, **options) as client, within(traces[3]):
            # It may share its request with others, so it is in nobody's trace.
            assert client.allow(WHO).source == "server"

        async def ask() -> None:
            client = AsyncClient(own.url, **options)
            with within(traces[4]):
                await client.allow(WHO)
            await client.close()

        asyncio.run(ask())
        until(lambda: logged(traces[4]))
    assert [logged(trace) for trace in traces] == [True, True, True, False, True]


@pytest.mark.parametrize(
    "hook",
    [
        lambda: 1 / 0,
        lambda: None,
        lambda: {"x": "a\r\nb: c"},
        lambda: {"x y": "a"},
        lambda: {"x": 1},
        lambda: {"Host": "elsewhere", "content-length": "7", "Authorization": "Bearer none"},
    ],
)
def test_fields_that_make_no_sense_are_left_out(hook: Any, own: Server) -> None:
    with Client(own.url, token=TOKEN, deadline_ms=10_000, headers=hook) as client:
        assert client.allow(WHO).source == "server"


def test_every_call_ends_when_nobody_listens() -> None:
    with nothing() as url, Client(url, deadline_ms=5000) as client:
        assert client.refund(WHO).failure == "connection"
        with client.acquire(WHO) as permit:
            assert permit
            assert not permit.held
            assert permit.renew() is None


def test_the_reader_takes_bytes_in_any_pieces() -> None:
    whole = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    whole += b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
    for size in range(1, len(whole) + 1):
        reader = Reader()
        found = None
        for start in range(0, len(whole), size):
            found = found or reader.feed(whole[start : start + size])
        assert found is not None
        assert found.body == b"abcde"
    until_the_end = Reader()
    assert until_the_end.feed(b"HTTP/1.0 200 OK\r\n\r\nabc") is None
    ended = until_the_end.end()
    assert ended is not None
    assert (ended.body, ended.keep) == (b"abc", False)


@pytest.mark.parametrize(
    "broken",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: +3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length : 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nratelimit: a\nset-cookie: b\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_the_reader_refuses_what_is_doubtful(broken: bytes) -> None:
    with pytest.raises(BrokenReply):
        Reader().feed(broken)


# Which class of the client is which schema of the API.
MODELS = {
    "DecisionReply": _types.Decision,
    "PartReply": _types.Part,
    "RefundReply": _types.Refunded,
    "Renewed": _types.Renewed,
    "Explanation": _types.Explanation,
    "PolicyExplanation": _types.PolicyExplanation,
    "LeaseExplanation": _types.Lease,
    "RequestLimitsExplanation": _types.RequestLimits,
    "Problem": _types.Problem,
    "FieldError": _types.FieldError,
    "DecisionBody": _types.Request,
    "LimitsBody": _types.Limits,
}
OWN_FIELDS = {
    "DecisionReply": {"source", "failure", "rate_limit_policy", "rate_limit"},
    "RefundReply": {"failure"},
}


def kind_of(schema: dict[str, Any]) -> str:
    """A schema as Python writes the type."""
    if "$ref" in schema:
        return str(MODELS[schema["$ref"].rsplit("/", 1)[1]].__name__)
    names = {"boolean": "bool", "integer": "int", "string": "str"}
    if schema["type"] == "array":
        return f"list[{kind_of(schema['items'])}]"
    if schema["type"] == "object":
        values = schema.get("additionalProperties", {})
        return "Attributes" if values.get("type") == "string" else "dict[str, Any]"
    return names[schema["type"]]


@pytest.mark.parametrize("name", MODELS)
def test_the_types_are_those_of_the_openapi_document(name: str) -> None:
    schema = json.loads((ROOT / "docs/openapi.json").read_text())["components"]["schemas"][name]
    own = OWN_FIELDS.get(name, set())
    found = {it.name: str(it.type).removesuffix(" | None") for it in dataclasses.fields(MODELS[name])}
    wanted = {field.replace("-", "_"): kind_of(value) for field, value in schema["properties"].items()}
    assert {field: kind for field, kind in found.items() if field not in own} == wanted
    required = {field.replace("-", "_") for field in schema["required"]}
    optional = {it.name for it in dataclasses.fields(MODELS[name]) if str(it.type).endswith(" | None")}
    has_default = {"cost", "peek"} if name == "DecisionBody" else set()
    assert set(wanted) - optional - has_default == required


def referred(part: Any, schemas: dict[str, Any], found: set[str]) -> set[str]:
    """The schemas with fields that a part of the document refers to, directly or through others."""
    if isinstance(part, dict):
        name = part.get("$ref", "").rsplit("/", 1)[-1]
        if name and name not in found:
            found.add(name)
            referred(schemas[name], schemas, found)
    for inner in part.values() if isinstance(part, dict) else part:
        if isinstance(inner, (dict, list)):
            referred(inner, schemas, found)
    return {name for name in found if "properties" in schemas[name]}


def test_the_operations_are_those_of_the_openapi_document() -> None:
    document = json.loads((ROOT / "docs/openapi.json").read_text())
    found: set[str] = set()
    for name, own in json.loads((CLIENTS / "conformance.json").read_text())["api"].items():
        method, path = name.split()
        operation = document["paths"][path][method]
        stated = {parameter["name"] for parameter in operation.get("parameters", [])}
        assert stated == {*own["parameters"], *own.get("not_offered", [])}, name
        found |= referred(operation, document["components"]["schemas"], set())
    assert found == set(MODELS)


@pytest.mark.parametrize(
    "wrong", ['"limit":-1', '"limit":1.5', '"limit":true', '"policies":{}', '"policy":7']
)
def test_a_field_of_another_type_is_no_decision(wrong: str) -> None:
    document = json.loads(f'{{"allowed":true,"policies":[],{wrong}}}')
    with pytest.raises(_types.NotAsDocumented):
        _types.read(_types.Decision, document)


def test_stats_say_when_a_bound_was_reached() -> None:
    fallback = tidegate.Fallback(limit=2, window_seconds=3_600, keys=3)
    with nothing() as url:
        client = Client(url, on_failure="local", fallback=fallback, breaker_failures=4, deadline_ms=5_000)
        for number in range(5):
            client.allow({"client_id": str(number)})
        assert client.stats() == tidegate.Stats(0, 0, 2, True)
    denials = Denials(2, 60_000)
    for number in range(3):
        denied = tidegate.Decision(False, retry_after_ms=10_000)
        denials.keep(Request({"client_id": str(number)}), denied, 1.0, 1.0)
    assert denials.evicted == 1


def test_the_local_limiter_gives_nothing_for_negative_costs() -> None:
    limiter = LocalLimiter(tidegate.Fallback(limit=2, window_seconds=3_600))
    assert limiter.decide(Request(WHO, 2), 0.0).allowed
    assert limiter.decide(Request(WHO, -5), 0.0).remaining == 0
    assert not limiter.decide(Request(WHO, 1), 0.0).allowed


def test_the_version_is_the_binarys() -> None:
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    project = tomllib.loads((CLIENTS / "python/pyproject.toml").read_text())["project"]["version"]
    assert project == cargo == tidegate.__version__


def test_what_readers_copy_names_this_version() -> None:
    for page in ("java/README.md", "java/example/pom.xml"):
        text = (CLIENTS / page).read_text()
        found = re.findall(r"<groupId>io.github.tidegate</groupId>\s*<artifactId>.*\s*<version>(.*?)</", text)
        assert set(found) == {tidegate.__version__}, page
    for module in ("tidegategrpc", "tidegateotel", "internal/migration"):
        needed = (CLIENTS / "go" / module / "go.mod").read_text()
        assert f"tidegate/clients/go v{tidegate.__version__}\n" in needed, module


def test_packages_bring_the_licence_and_their_types() -> None:
    package = pathlib.Path(tidegate.__file__).parent
    beside = package.parent / f"tidegate-{tidegate.__version__}.dist-info/licenses/LICENSE"
    text = (ROOT / "LICENSE").read_text()
    assert beside.read_text() == text
    assert (CLIENTS / "javascript/LICENSE").read_text() == text
    assert (package / "py.typed").is_file()


def test_a_denial_that_was_asked_for_before_a_refund_is_not_kept() -> None:
    denials = Denials(10, 60_000)
    request = Request(WHO)
    denied = tidegate.Decision(False, retry_after_ms=10_000)
    denials.keep(request, denied, 1.0, 1.1)
    assert denials.find(request, 2.0) is not None
    denials.forget(WHO, 3.0)
    assert denials.find(request, 3.1) is None
    # Its reply overtook the refund's.
    denials.keep(request, denied, 2.9, 3.2)
    assert denials.find(request, 3.3) is None
    denials.keep(request, denied, 3.3, 3.4)
    assert denials.find(request, 3.5) is not None


def test_a_cached_denial_states_what_is_left_of_its_wait() -> None:
    denials = Denials(10, 60_000)
    request = Request({"client_id": "a"})
    part = Part("three", "enforce", False, 3, 0, retry_after_ms=1_200_000, reset_ms=3_600_000)
    denied = Decision(
        False,
        policies=[part],
        retry_after_ms=1_200_000,
        reset_ms=3_600_000,
        rate_limit_policy='"three";q=3;w=3600',
        rate_limit='"three";r=0;t=1200',
    )
    denials.keep(request, denied, 1.0, 2.0)
    found = denials.find(request, 32.5)
    assert found is not None
    assert (found.retry_after_ms, found.retry_after, found.reset_ms) == (1_169_500, 1_170, 3_569_500)
    assert found.policies[0].retry_after_ms == 1_169_500
    assert fields(found) == [("ratelimit-policy", '"three";q=3;w=3600'), ("ratelimit", '"three";r=0;t=1170')]
    assert denials.find(request, 62.0) is None


def test_a_call_that_was_under_way_when_the_breaker_opened_does_not_prolong_that() -> None:
    breaker = Breaker(2, 1_000)
    for now in (0.0, 0.001, 0.9):
        breaker.failed(now)
    assert not breaker.admits(1.0)
    assert breaker.admits(1.001)
    assert not breaker.admits(1.002)
    breaker.failed(1.003)
    assert not breaker.admits(2.002)
    assert breaker.admits(2.003)
    breaker.answered()
    assert breaker.admits(2.004)
    assert not breaker.is_open
