"""Each target of clients/targets.json, as a socket sends it, through each framework.

With a limit of 0 no handler is reached, whatever form of its path is sent.
"""

from __future__ import annotations

import json
import pathlib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.core.asgi import get_asgi_application
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.test.utils import override_settings
from django.urls import include, path, re_path
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from flask import Flask
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request as StarRequest
from starlette.routing import Mount, Route
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from support import CLIENTS, server, text
from test_middleware import _set_django_up, serving_asgi, serving_wsgi
from tidegate import AsyncClient, Client, asgi, wsgi

TARGETS = json.loads((CLIENTS / "targets.json").read_text())
REACHED = "the handler"
METHODS = ["GET", "OPTIONS", "CONNECT"]

Limited = Callable[[Any], Any]


def starlette(limited: Limited, *, mounted: bool) -> Any:
    async def pay(_: StarRequest) -> PlainTextResponse:
        return PlainTextResponse(REACHED)

    handler = Route("/pay", pay, methods=METHODS)
    inner = [Middleware(limited)] if mounted else []
    app = Starlette(routes=[handler, Mount("/api", routes=[handler], middleware=inner)])
    return app if mounted else limited(app)


def fastapi(limited: Limited, *, mounted: bool) -> Any:
    app, api = FastAPI(), FastAPI()
    for one in (app, api):
        one.api_route("/pay", methods=METHODS, response_class=PlainTextResponse)(lambda: REACHED)
    if mounted:
        api.add_middleware(limited)
    app.mount("/api", api)
    return app if mounted else limited(app)


def flask(limited: Limited, *, mounted: bool) -> Any:
    app, api = Flask("shop"), Flask("api")
    for one in (app, api):
        one.add_url_rule("/pay", "pay", lambda: REACHED, methods=METHODS, provide_automatic_options=False)
    whole = DispatcherMiddleware(app, {"/api": limited(api) if mounted else api})
    return whole if mounted else limited(whole)


def _django_pay(_: HttpRequest) -> HttpResponse:
    return HttpResponse(REACHED)


# The first is as it was before Django 2.
HANDLERS = [re_path("^pay$", _django_pay), path("pay", _django_pay)]
urlpatterns = [*HANDLERS, path("api/", include(HANDLERS))]


def django_asgi(limited: Limited, *, mounted: bool) -> Any:
    return limited(get_asgi_application())


def django_wsgi(limited: Limited, *, mounted: bool) -> Any:
    return limited(get_wsgi_application())


FRAMEWORKS: dict[str, tuple[Callable[..., Any], bool]] = {
    "starlette": (starlette, True),
    "fastapi": (fastapi, True),
    "django-asgi": (django_asgi, True),
    "flask": (flask, False),
    "django-wsgi": (django_wsgi, False),
}


@contextmanager
def serving(framework: str, url: str, *, mounted: bool) -> Iterator[int]:
    make, is_asgi = FRAMEWORKS[framework]
    name = "mounted" if mounted else "root"

    def for_asgi(app: Any) -> Any:
        return asgi.TidegateMiddleware(
            app,
            AsyncClient(url, deadline_ms=20_000),
            key=lambda _: name,
            skip=lambda scope: bool(asgi.header(scope, "x-skip")),
        )

    def for_wsgi(app: Any) -> Any:
        return wsgi.TidegateMiddleware(
            app,
            Client(url, deadline_ms=20_000),
            key=lambda _: name,
            skip=lambda environ: bool(wsgi.header(environ, "x-skip")),
        )

    _set_django_up()
    with override_settings(ROOT_URLCONF=__name__):
        if is_asgi:
            with serving_asgi(make(for_asgi, mounted=mounted)) as port:
                yield port
        else:
            with serving_wsgi(make(for_wsgi, mounted=mounted)) as port:
                yield port


def written(target: str, prefix: str) -> str:
    """A target with its parts written out, below a prefix."""
    whole = target.replace("{p}", prefix).replace("{P}", prefix.upper())
    for name, part in TARGETS["parts"].items():
        whole = whole.replace(name, text(part))
    return whole


def send(port: int, target: str, how: dict[str, Any], *, skip: bool) -> tuple[int, bool, bool]:
    """The status of a response, whether it is a problem document, and whether a handler made it."""
    sent = {"host": "x.example", "connection": "close", **how.get("headers", {})}
    if skip:
        sent["x-skip"] = "1"
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as opened:
        opened.sendall(f"{how.get('method', 'GET')} {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1"))
        try:
            while piece := opened.recv(65_536):
                received += piece
        except ConnectionResetError:
            pass  # A server may reset what it refuses.
    status = received.split(b" ", 2)[1:2]
    return (
        int(status[0]) if status else 0,
        b"application/problem+json" in received,
        REACHED.encode() in received,
    )


def counted(port: int, target: str, how: dict[str, Any]) -> bool:
    """Expects that no handler is reached uncounted; whether one is reached."""
    free, limited = send(port, target, how, skip=True), send(port, target, how, skip=False)
    shown = f"{target[:60]!r}: {free} and {limited}"
    assert not limited[2], f"reached, and not counted: {shown}"
    assert not limited[1] or limited[0] == 429, f"not its user's mistake: {shown}"
    assert not free[2] or limited[0] == 429, shown
    return free[2]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_target_reaches_a_handler_uncounted(framework: str, tmp_path: pathlib.Path) -> None:
    config = tmp_path / "tidegate.toml"
    config.write_text(TARGETS["config"])
    with (
        server(config) as own,
        serving(framework, own.url, mounted=False) as root,
        serving(framework, own.url, mounted=True) as mounted,
    ):
        reaching = []
        for one in TARGETS["targets"]:
            target, below = written(one["target"], ""), written(one["target"], "/api")
            if counted(root, target, one):
                reaching.append(one)
            counted(root, below, one)
            if below != target:
                counted(mounted, below, one)
        assert reaching == [one for one in TARGETS["targets"] if framework in one["reached"]]
