"""The other side: what responses ask for, and that the wrappers do it."""

from __future__ import annotations

import asyncio
import email.utils
import pathlib
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import requests

from support import CONFORMANCE, faulty, server
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
    with faulty("denied_then_ok") as own:
        began = time.monotonic()
        assert ask(own.url, "GET") == (200, "2")
        assert time.monotonic() - began >= WAIT


@pytest.mark.parametrize("ask", WRAPPERS)
def test_an_unsafe_request_is_never_repeated(ask: Callable[[str, str], tuple[int, str]]) -> None:
    with faulty("denied_then_ok") as own:
        assert ask(own.url, "POST") == (429, "1")


@pytest.mark.parametrize("ask", WRAPPERS)
def test_a_wait_beyond_the_bound_is_not_waited_for(ask: Callable[[str, str], tuple[int, str]]) -> None:
    with faulty("denied_for_long") as own:
        assert ask(own.url, "GET") == (429, "1")


def test_it_slows_down_before_the_denial() -> None:
    with requests.Session() as session, httpx.Client(transport=PacedTransport()) as client:
        session.mount("http://", PacedAdapter())
        for ask in (session.get, client.get):
            with faulty("spent") as own:
                # The wait is counted from the first answer, before the next look at a clock.
                began = time.monotonic()
                ask(own.url)
                ask(own.url)
                assert time.monotonic() - began >= WAIT


def departures(case: dict[str, Any], seed: int) -> list[float]:
    pacer = Pacer(max_wait=case.get("max_wait_s", 60), seed=seed)
    for response in case["responses"]:
        pacer.after("one", response["status"], response["fields"], 1_000.0)
    return [pacer.before("one", 1_000.0) for _ in case["at_least_s"]]


@pytest.mark.parametrize("case", CONFORMANCE["departures"], ids=lambda case: case["what"])
def test_departures(case: dict[str, Any]) -> None:
    least, most = case["at_least_s"], case["at_most_s"]
    found = [departures(case, seed) for seed in range(20)]
    for waits in found:
        for low, wait, high in zip(least, waits, most, strict=True):
            assert low - 1e-6 <= wait <= high + 1e-6, waits
    assert (len({waits[0] for waits in found}) > 1) == (least[0] != most[0])


def test_origins_are_bounded() -> None:
    pacer = Pacer(seed=1)
    pacer.after("one", 429, {"retry-after": "30"})
    for number in range(1_000):
        pacer.after(f"other {number}", 200, {})
    assert pacer.before("one") == 0


def thirty_by_requests(url: str) -> list[int]:
    with requests.Session() as session:
        session.mount("http://", PacedAdapter())
        return [session.get(url).status_code for _ in range(30)]


def thirty_by_httpx(url: str) -> list[int]:
    with httpx.Client(transport=PacedTransport()) as client:
        return [client.get(url).status_code for _ in range(30)]


@pytest.mark.parametrize("ask", [thirty_by_requests, thirty_by_httpx])
def test_it_keeps_within_a_limit_of_the_real_server(
    ask: Callable[[str], list[int]], tmp_path: pathlib.Path
) -> None:
    config = tmp_path / "tidegate.toml"
    config.write_text(CONFORMANCE["paced"]["config"])
    with server(config) as own:
        began = time.monotonic()
        assert ask(f"{own.url}/v1/check") == [204] * 30
        assert time.monotonic() - began >= 1
