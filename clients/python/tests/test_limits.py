"""The storage for `limits`, and the two libraries that stand on it."""

from __future__ import annotations

import logging
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from flask import Flask
from flask_limiter import Limiter as FlaskLimiter
from limits import parse
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter
from slowapi import Limiter as SlowLimiter
from slowapi import _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded

from support import TOKEN, Server, server
from tidegate import Client, Limits
from tidegate.limits_storage import TidegateStorage, policies

CONFIG = pathlib.Path(__file__).parent / "limits.toml"
LIMIT = parse("3/day")
OPTIONS: dict[str, Any] = {"deadline_ms": 5000}


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    with server(CONFIG) as started:
        yield started


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_TOKEN", TOKEN)


def uri(own: Server, resource: str = "limits") -> str:
    return f"tidegate://127.0.0.1:{own.port}?resource={resource}"


def test_the_policies_that_it_writes_are_those_of_the_file() -> None:
    text = CONFIG.read_text()
    assert policies("3/day") in text
    assert policies("3/day", resource="moving", strategy="moving-window") in text


def test_fixed_windows(own: Server) -> None:
    storage = storage_from_string(uri(own), deadline_ms=5000)
    assert isinstance(storage, TidegateStorage)
    limiter = FixedWindowRateLimiter(storage)
    assert storage.check()
    assert limiter.get_window_stats(LIMIT, "f1").remaining == 3
    assert [limiter.hit(LIMIT, "f1") for _ in range(4)] == [True, True, True, False]
    assert not limiter.test(LIMIT, "f1")
    assert limiter.test(LIMIT, "f2", cost=3)
    stats = limiter.get_window_stats(LIMIT, "f1")
    assert stats.remaining == 0
    assert time.time() < stats.reset_time <= time.time() + 86_400 + 1
    limiter.clear(LIMIT, "f1")
    assert limiter.hit(LIMIT, "f1", cost=3)


def test_moving_windows(own: Server) -> None:
    storage = TidegateStorage(uri(own, "moving"), deadline_ms=5000)
    limiter = MovingWindowRateLimiter(storage)
    assert [limiter.hit(LIMIT, "m1") for _ in range(4)] == [True, True, True, False]
    assert limiter.get_window_stats(LIMIT, "m1").remaining == 0
    assert not limiter.test(LIMIT, "m1")


def test_a_limit_without_a_policy_holds_from_the_first_request(
    own: Server, caplog: pytest.LogCaptureFixture
) -> None:
    two = parse("2/day")
    for kind in (FixedWindowRateLimiter, MovingWindowRateLimiter):
        resource = kind.__name__
        limiter = kind(TidegateStorage(uri(own, resource), deadline_ms=5000))
        with caplog.at_level(logging.WARNING, "tidegate"):
            assert [limiter.hit(two, "n1") for _ in range(3)] == [True, True, False], resource
            assert limiter.get_window_stats(two, "n1").remaining == 0
            limiter.clear(two, "n1")
            assert limiter.hit(two, "n1", cost=2), resource
            assert not limiter.hit(two, "n1"), resource
    assert not caplog.records


def test_a_policy_decides_where_there_is_one(own: Server) -> None:
    # The file's policy for `3/day` has three, whatever number comes with the request.
    client = Client(f"http://127.0.0.1:{own.port}", deadline_ms=5000)
    attributes = {"client_id": "p1", "resource": "limits", "limit": "3/86400"}
    many = Limits(1_000, 86_400)
    assert [client.allow(attributes, limits=many).allowed for _ in range(4)] == [True, True, True, False]


def test_a_limit_that_no_server_takes_is_said_once(own: Server, caplog: pytest.LogCaptureFixture) -> None:
    limiter = FixedWindowRateLimiter(TidegateStorage(uri(own), deadline_ms=5000))
    with caplog.at_level(logging.WARNING, "tidegate"):
        assert all(limiter.hit(parse("7/year"), "n1") for _ in range(9))
    assert len(caplog.records) == 1
    assert "limit=7/31104000" in caplog.text


def test_slowapi(own: Server) -> None:
    limiter = SlowLimiter(key_func=lambda: "s1", storage_uri=uri(own), storage_options=OPTIONS)
    app = FastAPI()
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)  # type: ignore[arg-type]

    @app.get("/")
    @limiter.limit("3/day")
    async def home(request: Request) -> str:
        return "ok"

    client = TestClient(app)
    assert [client.get("/").status_code for _ in range(4)] == [200, 200, 200, 429]


def test_flask_limiter(own: Server) -> None:
    app = Flask("shop")
    limiter = FlaskLimiter(lambda: "k1", app=app, storage_uri=uri(own), storage_options=OPTIONS)

    @app.get("/")
    @limiter.limit("3/day")
    def home() -> str:
        return "ok"

    client = app.test_client()
    assert [client.get("/").status_code for _ in range(4)] == [200, 200, 200, 429]
