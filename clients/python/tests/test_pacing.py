"""The other side: what responses ask for, and that the wrappers do it."""

from __future__ import annotations

import asyncio
import email.utils
import itertools
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import requests

from support import CONFORMANCE, faulty
from tidegate.pacing import Pacer, items, wait_after
from tidegate.pacing_httpx import AsyncPacedTransport, PacedTransport
from tidegate.pacing_requests import PacedAdapter

# Retry-After is 1 s in the faults' replies.
WAIT = 1.0


@pytest.mark.parametrize("case", CONFORMANCE["waits"], ids=lambda case: case["what"])
def test_waits(case: dict[str, Any]) -> None:
    found = wait_after(case["status"], case["fields"], 0.0, case.get("max_wait_s", 1e9))
    assert found.seconds == pytest.approx(case["wait_s"])


def test_a_date_to_retry_after() -> None:
    fields = {"retry-after": email.utils.formatdate(1_000_007, usegmt=True)}
    assert wait_after(503, fields, 1_000_000.0, 60).seconds == pytest.approx(7)
    assert wait_after(503, fields, 2_000_000.0, 60).seconds == 0


def test_no_field_makes_the_parser_fail() -> None:
    pieces = ['"a"', ";", "r", "=", "0", "t", ",", " ", "\\", '"', "\x00", "é", "?1", ":", "@", "-", "9" * 20]
    seen = set()
    for first in pieces:
        for second in pieces:
            for third in pieces:
                seen.add(items(first + second + third) is None)
    assert seen == {True, False}


def with_requests(url: str, method: str) -> tuple[int, str]:
    with requests.Session() as session:
        session.mount("http://", PacedAdapter())
        response = session.request(method, url)
        return response.status_code, response.headers["x-number"]


def with_httpx(url: str, method: str) -> tuple[int, str]:
    with httpx.Client(transport=PacedTransport()) as client:
        response = client.request(method, url)
        return response.status_code, response.headers["x-number"]


def with_async_httpx(url: str, method: str) -> tuple[int, str]:
    async def ask() -> tuple[int, str]:
        async with httpx.AsyncClient(transport=AsyncPacedTransport()) as client:
            response = await client.request(method, url)
            return response.status_code, response.headers["x-number"]

    return asyncio.run(ask())


WRAPPERS = [with_requests, with_httpx, with_async_httpx]


@pytest.mark.parametrize("ask", WRAPPERS)
def test_a_safe_request_is_repeated_after_its_wait(ask: Callable[[str, str], tuple[int, str]]) -> None:
    with faulty("denied_then_ok") as url:
        began = time.monotonic()
        assert ask(url, "GET") == (200, "2")
        assert time.monotonic() - began >= WAIT


@pytest.mark.parametrize("ask", WRAPPERS)
def test_an_unsafe_request_is_never_repeated(ask: Callable[[str, str], tuple[int, str]]) -> None:
    with faulty("denied_then_ok") as url:
        assert ask(url, "POST") == (429, "1")


@pytest.mark.parametrize("ask", WRAPPERS)
def test_a_wait_beyond_the_bound_is_not_waited_for(ask: Callable[[str, str], tuple[int, str]]) -> None:
    with faulty("denied_for_long") as url:
        assert ask(url, "GET") == (429, "1")


def test_it_slows_down_before_the_denial() -> None:
    with faulty("spent") as url, httpx.Client(transport=PacedTransport()) as client:
        client.get(url)
        began = time.monotonic()
        client.get(url)
        assert time.monotonic() - began >= WAIT


def test_waiting_requests_are_spread_and_origins_are_bounded() -> None:
    pacer = Pacer(seed=1)
    low = {"ratelimit-policy": '"a";q=100;w=60', "ratelimit": '"a";r=9;t=100'}
    pacer.after("one", 200, low)
    waits = [pacer.before("one") for _ in range(5)]
    assert all(later - sooner > 8 for sooner, later in itertools.pairwise(waits)), waits
    for number in range(1_000):
        pacer.after(f"other {number}", 200, {})
    assert pacer.before("one") == 0


def test_a_later_response_does_not_take_a_denial_back() -> None:
    pacer = Pacer(seed=1)
    pacer.after("one", 429, {"retry-after": "30"})
    pacer.after("one", 200, {"ratelimit": '"a";r=50;t=1'})
    assert pacer.before("one") > 25
