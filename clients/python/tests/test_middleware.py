"""The middlewares in the frameworks that people use, behind real HTTP servers."""

from __future__ import annotations

import http.client
import json
import pathlib
import socketserver
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import django
import pytest
import uvicorn
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path
from fastapi import FastAPI
from fastapi import Request as FastRequest
from fastapi.responses import PlainTextResponse, StreamingResponse
from flask import Flask, Response
from flask import request as flask_request
from starlette.applications import Starlette
from starlette.requests import Request as StarRequest
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocket

from support import CONFORMANCE, TOKEN, Server, differs, server, text, until
from tidegate import AsyncClient, Client, Decision, Part, asgi, wsgi
from tidegate._middleware import bounded, denial, fields

CASES = CONFORMANCE["middleware"]
PIECES = 10


def cost_of(query: str) -> int:
    return int(parse_qs(query).get("cost", ["1"])[0])


def for_asgi(app: Any, url: str) -> asgi.TidegateMiddleware:
    return asgi.TidegateMiddleware(
        app,
        AsyncClient(url, token=TOKEN, deadline_ms=2000),
        key=lambda scope: asgi.header(scope, "x-client"),
        attributes=lambda _: CASES["attributes"],
        cost=lambda scope: cost_of(scope["query_string"].decode()),
        skip=lambda scope: scope.get("path") == "/health",
    )


def for_wsgi(app: Any, url: str) -> wsgi.TidegateMiddleware:
    return wsgi.TidegateMiddleware(
        app,
        Client(url, token=TOKEN, deadline_ms=2000),
        key=lambda environ: wsgi.header(environ, "x-client"),
        attributes=lambda _: CASES["attributes"],
        cost=lambda environ: cost_of(environ.get("QUERY_STRING", "")),
        skip=lambda environ: environ["PATH_INFO"] == "/health",
    )


async def pieces(settle: Callable[[int], None]) -> AsyncIterator[bytes]:
    for _ in range(PIECES):
        yield b"piece\n"
    settle(1)


def plain_pieces(settle: Callable[[int], None]) -> Iterator[bytes]:
    for _ in range(PIECES):
        yield b"piece\n"
    settle(1)


def fastapi(url: str) -> Any:
    app = FastAPI()

    @app.get("/", response_class=PlainTextResponse)
    @app.get("/health", response_class=PlainTextResponse)
    async def home() -> str:
        return "ok"

    @app.get("/stream")
    async def stream(request: FastRequest) -> StreamingResponse:
        return StreamingResponse(pieces(request.scope["tidegate"].settle))

    return for_asgi(app, url)


def starlette(url: str) -> Any:
    async def home(_: StarRequest) -> PlainTextResponse:
        return PlainTextResponse("ok")

    async def stream(request: StarRequest) -> StreamingResponse:
        return StreamingResponse(pieces(request.scope["tidegate"].settle))

    routes = [Route("/", home), Route("/health", home), Route("/stream", stream)]
    return for_asgi(Starlette(routes=routes), url)


def flask(url: str) -> Any:
    app = Flask("shop")

    @app.get("/")
    @app.get("/health")
    def home() -> str:
        return "ok"

    @app.get("/stream")
    def stream() -> Response:
        return Response(plain_pieces(flask_request.environ["tidegate"].settle))

    app.wsgi_app = for_wsgi(app.wsgi_app, url)  # type: ignore[method-assign]
    return app


def _django_home(_: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


def _django_stream(request: HttpRequest) -> StreamingHttpResponse:
    scope = getattr(request, "scope", None)
    if scope is not None:
        return StreamingHttpResponse(pieces(scope["tidegate"].settle))
    return StreamingHttpResponse(plain_pieces(request.META["tidegate"].settle))


urlpatterns = [path("", _django_home), path("health", _django_home), path("stream", _django_stream)]


def _set_django_up() -> None:
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="for tests")  # noqa: S106
        django.setup()


def django_asgi(url: str) -> Any:
    _set_django_up()
    return for_asgi(get_asgi_application(), url)


def django_wsgi(url: str) -> Any:
    _set_django_up()
    return for_wsgi(get_wsgi_application(), url)


class Threading(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving_wsgi(app: Any) -> Iterator[int]:
    with Threading(("127.0.0.1", 0), Quiet) as server:
        server.set_app(app)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@contextmanager
def serving_asgi(app: Any) -> Iterator[int]:
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="off")
    runner = uvicorn.Server(config)
    thread = threading.Thread(target=runner.run, daemon=True)
    thread.start()
    until(lambda: runner.started)
    yield cast(int, runner.servers[0].sockets[0].getsockname()[1])
    runner.should_exit = True
    thread.join()


FRAMEWORKS = {
    "fastapi": (fastapi, serving_asgi),
    "starlette": (starlette, serving_asgi),
    "django-asgi": (django_asgi, serving_asgi),
    "flask": (flask, serving_wsgi),
    "django-wsgi": (django_wsgi, serving_wsgi),
}


def get(port: int, where: str, client: str) -> dict[str, Any]:
    """A response: its fields, its status and its body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", where, headers={"x-client": client})
    response = connection.getresponse()
    found: dict[str, Any] = {name.lower(): value for name, value in response.getheaders()}
    body = response.read().decode()
    connection.close()
    found |= {"status": response.status, "body": body}
    if found.get("content-type") == "application/problem+json":
        found["problem"] = json.loads(body)
    return found


def take(own: Server, port: int, step: dict[str, Any]) -> None:
    if "do" in step:
        getattr(own, step["do"])()
        return
    client = text(step["client"])
    for _ in range(step.get("times", 1)):
        if step.get("until"):
            until(lambda: not differs(step["expect"], get(port, step["path"], client)))
        else:
            assert not differs(step["expect"], get(port, step["path"], client)), step


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_framework(framework: str) -> None:
    make, serving = FRAMEWORKS[framework]
    with server() as own, serving(make(own.url)) as port:
        for step in CASES["steps"]:
            take(own, port, step)


def test_a_websocket_is_asked_for_when_it_opens() -> None:
    async def echo(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("ok")
        await socket.close()

    with server() as own:
        app = for_asgi(Starlette(routes=[WebSocketRoute("/", echo)]), own.url)
        client = TestClient(app, headers={"x-client": "w1"})
        with client.websocket_connect("/?cost=3") as socket:
            assert socket.receive_text() == "ok"
        with pytest.raises(WebSocketDenialResponse) as denied, client.websocket_connect("/"):
            pass
        assert denied.value.status_code == 429
        assert denied.value.json()["violated-policies"] == ["three"]


LEAKY = """
[[policy]]
name = "leaky"
algorithm = "leaky_bucket"
limit = 100
window_seconds = 10
burst = 10
key = ["client_id"]
"""


def test_a_leaky_bucket_holds_requests_back(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "tidegate.toml"
    config.write_text(LEAKY)

    def took(max_delay_ms: float, key: str) -> float:
        app = Starlette(routes=[Route("/", lambda _: PlainTextResponse("ok"))])
        limits = AsyncClient(own.url, deadline_ms=10_000)
        guarded = asgi.TidegateMiddleware(app, limits, key=lambda _: key, max_delay_ms=max_delay_ms)
        with TestClient(guarded) as client:
            began = time.monotonic()
            assert [client.get("/").status_code for _ in range(4)] == [200] * 4
            return time.monotonic() - began

    with server(config) as own:
        # Ten a second leave the bucket: the fourth waits for three before it.
        assert took(1_000, "held") >= 0.3
        decision = Client(own.url, deadline_ms=10_000).allow({"client_id": "held"})
        assert decision.delay_ms is not None


@pytest.mark.parametrize("case", CONFORMANCE["denials"], ids=lambda case: case["what"])
def test_responses(case: dict[str, Any]) -> None:
    given = dict(case["decision"])
    parts = [Part(**part) for part in given.pop("policies")]
    decision = Decision(**given, policies=parts)
    if decision.allowed:
        assert not differs(case["fields"], dict(fields(decision)))
        return
    status, sent, body = denial(decision)
    assert status == case["status"]
    assert not differs(case["fields"], dict(sent))
    assert not differs(case["problem"], json.loads(body))
    assert dict(sent)["content-length"] == str(len(body))


@pytest.mark.parametrize("case", CONFORMANCE["bounded"], ids=lambda case: str(case["value"])[:40])
def test_long_values(case: dict[str, Any]) -> None:
    sent = bounded(text(case["value"]))
    assert sent == text(case["sent"])
    assert len(sent.encode()) <= 512
