"""The middlewares in the frameworks that people use, behind real HTTP servers."""

from __future__ import annotations

import asyncio
import http.client
import json
import pathlib
import socket
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
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as StarRequest
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocket
from werkzeug.middleware.proxy_fix import ProxyFix

from support import CONFORMANCE, TOKEN, Server, differs, server, text, until
from tidegate import AsyncClient, Client, Decision, Part, Request, asgi, wsgi
from tidegate._addresses import peer_name
from tidegate._middleware import bounded, denial, fields

CASES = CONFORMANCE["middleware"]
PIECES = 10


def parameter(query: str, name: str) -> str | None:
    return parse_qs(query).get(name, [None])[0]


def cost_of(query: str) -> int:
    return int(parameter(query, "cost") or 1)


def attributes_of(query: str) -> dict[str, str | None]:
    return {
        "resource": parameter(query, "resource") or CASES["attributes"]["resource"],
        "client_id": parameter(query, "tenant"),
    }


def for_asgi(app: Any, url: str) -> asgi.TidegateMiddleware:
    return asgi.TidegateMiddleware(
        app,
        AsyncClient(url, token=TOKEN, deadline_ms=2000),
        key=lambda scope: asgi.header(scope, "x-client") or None,
        attributes=lambda scope: attributes_of(scope["query_string"].decode()),
        cost=lambda scope: cost_of(scope["query_string"].decode()),
        skip=lambda scope: scope.get("path") == "/health",
    )


def for_wsgi(app: Any, url: str) -> wsgi.TidegateMiddleware:
    return wsgi.TidegateMiddleware(
        app,
        Client(url, token=TOKEN, deadline_ms=2000),
        key=lambda environ: environ.get("HTTP_X_CLIENT"),
        attributes=lambda environ: attributes_of(environ.get("QUERY_STRING", "")),
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


async def endless(settle: Callable[[int], None]) -> AsyncIterator[bytes]:
    settle(1)
    while True:
        yield b"piece\n"
        await asyncio.sleep(0.001)


def plain_endless(settle: Callable[[int], None]) -> Iterator[bytes]:
    settle(1)
    while True:
        yield b"piece\n"
        time.sleep(0.001)


def fastapi(url: str) -> Any:
    app = FastAPI()

    @app.get("/", response_class=PlainTextResponse)
    @app.get("/health", response_class=PlainTextResponse)
    async def home() -> str:
        return "ok"

    @app.get("/stream")
    async def stream(request: FastRequest) -> StreamingResponse:
        return StreamingResponse(pieces(request.scope["tidegate"].settle))

    @app.get("/endless")
    async def without_end(request: FastRequest) -> StreamingResponse:
        return StreamingResponse(endless(request.scope["tidegate"].settle))

    return for_asgi(app, url)


def starlette(url: str) -> Any:
    async def home(_: StarRequest) -> PlainTextResponse:
        return PlainTextResponse("ok")

    async def stream(request: StarRequest) -> StreamingResponse:
        return StreamingResponse(pieces(request.scope["tidegate"].settle))

    async def without_end(request: StarRequest) -> StreamingResponse:
        return StreamingResponse(endless(request.scope["tidegate"].settle))

    routes = [
        Route("/", home),
        Route("/health", home),
        Route("/stream", stream),
        Route("/endless", without_end),
    ]
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

    @app.get("/endless")
    def without_end() -> Response:
        return Response(plain_endless(flask_request.environ["tidegate"].settle))

    app.wsgi_app = for_wsgi(app.wsgi_app, url)  # type: ignore[method-assign]
    return app


def _django_home(_: HttpRequest) -> HttpResponse:
    return HttpResponse("ok")


def _django_stream(request: HttpRequest) -> StreamingHttpResponse:
    scope = getattr(request, "scope", None)
    if scope is not None:
        return StreamingHttpResponse(pieces(scope["tidegate"].settle))
    return StreamingHttpResponse(plain_pieces(request.META["tidegate"].settle))


def _django_endless(request: HttpRequest) -> StreamingHttpResponse:
    scope = getattr(request, "scope", None)
    if scope is not None:
        return StreamingHttpResponse(endless(scope["tidegate"].settle))
    return StreamingHttpResponse(plain_endless(request.META["tidegate"].settle))


urlpatterns = [
    path("", _django_home),
    path("health", _django_home),
    path("stream", _django_stream),
    path("endless", _django_endless),
]


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


def get(
    port: int, where: str, client: str | None, method: str = "GET", headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """A response: its fields, its status and its body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    own = {} if client is None else {"x-client": client}
    connection.request(method, where, headers={**(headers or {}), **own})
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
    client = text(step.get("client"))
    for _ in range(step.get("times", 1)):
        if step.get("until"):
            until(lambda: not differs(step["expect"], get(port, step["path"], client)))
        else:
            found = get(port, step["path"], client, headers=step.get("headers"))
            assert not differs(step["expect"], found), step


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_framework(framework: str) -> None:
    make, serving = FRAMEWORKS[framework]
    with server() as own, serving(make(own.url)) as port:
        for step in CASES["steps"]:
            take(own, port, step)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_client_that_goes_away_in_the_middle_settles_too(framework: str) -> None:
    make, serving = FRAMEWORKS[framework]
    with server() as own, serving(make(own.url)) as port, Client(own.url, token=TOKEN) as client:
        with socket.create_connection(("127.0.0.1", port)) as gone:
            gone.sendall(b"GET /endless?cost=3 HTTP/1.1\r\nhost: x\r\nx-client: gone\r\n\r\n")
            received = b""
            while b"piece\n" not in received:
                received += gone.recv(1024)
        # Of the three units that it reserved one was used.
        who = {"client_id": "gone", "resource": "three"}
        until(lambda: client.allow(who, 0, deadline_ms=10_000).remaining == 2)


@pytest.mark.parametrize("case", CONFORMANCE["paths"], ids=lambda case: case["what"])
def test_the_path_that_is_sent_of_a_request(case: dict[str, Any]) -> None:
    found: list[str] = []

    async def on_asgi(scope: Any, receive: Any, send: Any) -> None:
        found.append(asgi.path_and_method(scope)["path"])
        await PlainTextResponse("ok")(scope, receive, send)

    def on_wsgi(environ: Any, start_response: Any) -> list[bytes]:
        found.append(wsgi.path_and_method(environ)["path"])
        start_response("200 OK", [])
        return [b"ok"]

    with serving_asgi(on_asgi) as port:
        get(port, case["target"], None)
    with serving_wsgi(on_wsgi) as port:
        get(port, case["target"], None)
    assert found == [case["sent"], case.get("of_wsgi", case["sent"])]
    scope = {"path": "/a%b?c", "method": "GET"}
    assert asgi.path_and_method(scope)["path"] == "/a%25b%3Fc"


def test_a_websocket_is_asked_for_when_it_opens() -> None:
    async def echo(opened: WebSocket) -> None:
        await opened.accept()
        await opened.send_text("ok")
        await opened.close()

    with server() as own:
        app = for_asgi(Starlette(routes=[WebSocketRoute("/", echo)]), own.url)
        client = TestClient(app, headers={"x-client": "w1"})
        with client.websocket_connect("/?cost=3") as opened:
            assert opened.receive_text() == "ok"
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

    def four(port: int) -> float:
        began = time.monotonic()
        assert [get(port, "/", None)["status"] for _ in range(4)] == [200] * 4
        return time.monotonic() - began

    def by_asgi(key: str, **more: Any) -> float:
        app = Starlette(routes=[Route("/", lambda _: PlainTextResponse("ok"))])
        limits = AsyncClient(own.url, deadline_ms=10_000)
        with serving_asgi(asgi.TidegateMiddleware(app, limits, key=lambda _: key, **more)) as port:
            return four(port)

    def by_wsgi(key: str, **more: Any) -> float:
        app = Flask("shop")
        app.add_url_rule("/", view_func=lambda: "ok")
        with (
            Client(own.url, deadline_ms=10_000) as limits,
            serving_wsgi(wsgi.TidegateMiddleware(app.wsgi_app, limits, key=lambda _: key, **more)) as port,
        ):
            return four(port)

    def held_and_not(name: str, took: Callable[..., float]) -> None:
        # Ten a second leave the bucket: the fourth waits for three before it.
        assert took(f"{name} held") >= 0.3
        # Held back for a millisecond at most; a busy machine may take as long by itself.
        until(lambda: took(f"{name} {time.monotonic()}", max_delay_ms=1) < 0.3)

    with server(config) as own:
        held_and_not("asgi", by_asgi)
        held_and_not("wsgi", by_wsgi)
        two = [Request({"client_id": "two"})] * 2
        with Client(own.url, deadline_ms=10_000) as client:
            assert client.batch(two)[1].delay_ms is not None


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


def test_no_value_is_sent_that_json_cannot_carry() -> None:
    one, other = bounded("a\ud800"), bounded("a\ud801")
    assert one.startswith("a\ufffd~")
    assert one != other


@pytest.mark.parametrize("case", CONFORMANCE["addresses"], ids=lambda case: str(case["peer"]))
def test_a_peer_has_one_name(case: dict[str, Any]) -> None:
    assert peer_name(case["peer"]) == case["name"]
    assert asgi.peer({"client": (case["peer"], 1)}) == case["name"]
    assert wsgi.peer({"REMOTE_ADDR": case["peer"]}) == case["name"]


def test_a_proxy_that_is_not_trusted_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    proxied = {"x-forwarded-for": "2001:db8::1"}

    def asked(make: Callable[[str], Any], serving: Any, by: list[str]) -> list[str]:
        """The addresses that were counted by, and what was said."""
        with server() as own, serving(make(own.url)) as port:
            for address in by:
                get(port, "/", None, headers={"x-forwarded-for": address})
        return [record.getMessage() for record in caplog.records if record.name == "tidegate"]

    def plain_asgi(url: str) -> Any:
        app = Starlette(routes=[Route("/", lambda _: PlainTextResponse("ok"))])
        return asgi.TidegateMiddleware(app, AsyncClient(url, token=TOKEN))

    def plain_wsgi(url: str) -> Any:
        app = Flask("shop")
        app.add_url_rule("/", view_func=lambda: "ok")
        return wsgi.TidegateMiddleware(app.wsgi_app, Client(url, token=TOKEN))

    def fixed_wsgi(url: str) -> Any:
        return ProxyFix(plain_wsgi(url))

    # uvicorn trusts 127.0.0.1.
    assert asked(plain_asgi, serving_asgi, [proxied["x-forwarded-for"]]) == []
    assert asked(fixed_wsgi, serving_wsgi, [proxied["x-forwarded-for"]]) == []
    (said,) = asked(plain_wsgi, serving_wsgi, [proxied["x-forwarded-for"]] * 2)
    assert "127.0.0.1" in said
    assert "ProxyFix" in said


PREFLIGHT = {"origin": "http://shop.example", "access-control-request-method": "POST"}


def test_a_preflight_that_the_applications_cors_answers_is_given_back_and_no_other() -> None:
    def on_asgi(url: str) -> Any:
        async def handler(_: StarRequest) -> PlainTextResponse:
            return PlainTextResponse("ok")

        cors = Middleware(CORSMiddleware, allow_origins=["*"])
        plain = Route("/", handler, methods=["OPTIONS"])
        routes = [plain, Mount("/cors", routes=[plain], middleware=[cors])]
        return for_asgi(Starlette(routes=routes), url)

    def on_wsgi(url: str) -> Any:
        app = Flask("shop")
        allowed = {"access-control-allow-methods": "POST"}
        more: dict[str, Any] = {"methods": ["OPTIONS"], "provide_automatic_options": False}
        app.add_url_rule("/", "plain", lambda: "ok", **more)
        app.add_url_rule("/cors/", "cors", lambda: ("", allowed), **more)
        return for_wsgi(app.wsgi_app, url)

    frameworks: list[tuple[Callable[[str], Any], Any]] = [(on_asgi, serving_asgi), (on_wsgi, serving_wsgi)]
    for make, serving in frameworks:
        with server() as own, serving(make(own.url)) as port, Client(own.url, token=TOKEN) as client:
            for where, headers in [("/", PREFLIGHT), ("/cors/", {}), ("/cors/", PREFLIGHT)]:
                assert get(port, where, "c", "OPTIONS", headers)["status"] in (200, 400, 405), where
            # One of the three units is given back: neither a plain OPTIONS nor what no CORS answered is.
            who = {"client_id": "c", "resource": "three"}
            until(lambda: client.allow(who, 0, deadline_ms=10_000).remaining == 1)  # noqa: B023


def test_a_path_that_is_too_long_to_be_counted_is_answered_414() -> None:
    with server() as own, serving_wsgi(flask(own.url)) as port:
        assert get(port, "/" + "a" * 16_384, None)["status"] == 404
    app = Flask("shop")
    with server() as own:
        limited = wsgi.TidegateMiddleware(app.wsgi_app, Client(own.url, token=TOKEN))
        with serving_wsgi(limited) as port:
            assert get(port, "/" + "a" * 16_384, None)["status"] == 414
            assert get(port, "/" + "a" * 16_383, None)["status"] == 404
