"""The Python client against `http.client` (sync) and httpx (asyncio). Prints rows of a table; see run.sh."""

from __future__ import annotations

import asyncio
import http.client
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import httpx
from tidegate import AsyncClient, Client

WHO = {"client_id": "user123", "resource": "api"}
HEADERS = {"content-type": "application/json"}
ROUNDS, CALLS = 7, 480
LONG_MS = 60_000
Round = Callable[[int], Awaitable[None]]


def bare(url: str) -> Callable[[], object]:
    """A call as an application writes it by hand."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def call() -> object:
        connection.request("POST", "/v1/decisions", json.dumps({"attributes": WHO}), HEADERS)
        return json.loads(connection.getresponse().read())["allowed"]

    return call


async def each(call: Callable[[], Awaitable[object]], at_once: int, count: int) -> None:
    """Makes so many calls, so many at once."""

    async def worker() -> None:
        for _ in range(count // at_once):
            await call()

    await asyncio.gather(*(worker() for _ in range(at_once)))


async def compare(name: str, at_once: int, subjects: list[Round]) -> None:
    """Rounds in turns, each beginning with the other: the first is the client's, the second the bare one's."""
    rates: list[list[float]] = [[], []]
    cpu: list[list[float]] = [[], []]
    for number in range(ROUNDS + 1):
        order = (0, 1) if number % 2 else (1, 0)
        for which in order:
            began, used = time.perf_counter(), time.process_time()
            await subjects[which](CALLS)
            rates[which].append(CALLS / (time.perf_counter() - began))
            cpu[which].append((time.process_time() - used) / CALLS * 1e6)
    # The first round warms up.
    rate, bare_rate = (statistics.median(found[1:]) for found in rates)
    micros, bare_micros = (statistics.median(found[1:]) for found in cpu)
    print(f"| {name} | {at_once} | {rate:,.0f} | {rate / bare_rate:.2f} | {micros:.0f} | {micros / bare_micros:.2f} |")


def sync_round(call: Callable[[], object]) -> Round:
    async def run(count: int) -> None:
        for _ in range(count):
            call()

    return run


async def speed(url: str) -> None:
    client = Client(url, deadline_ms=LONG_MS)
    assert client.allow(WHO).source == "server"
    subjects = [sync_round(lambda: client.allow(WHO)), sync_round(bare(url))]
    await compare("Python, sync, beside http.client", 1, subjects)
    for batch in (False, True):
        for at_once in (1, 16):
            mine = AsyncClient(url, deadline_ms=LONG_MS, batch=batch)
            async with httpx.AsyncClient() as other:

                async def ask(other: httpx.AsyncClient = other) -> object:
                    return (await other.post(f"{url}/v1/decisions", json={"attributes": WHO})).json()["allowed"]

                async def allow(mine: AsyncClient = mine) -> object:
                    return await mine.allow(WHO)

                async def ours(count: int, at_once: int = at_once, allow: Callable[[], Awaitable[object]] = allow) -> None:
                    await each(allow, at_once, count)

                async def theirs(count: int, at_once: int = at_once, ask: Callable[[], Awaitable[object]] = ask) -> None:
                    await each(ask, at_once, count)

                if at_once == 1 and batch:
                    continue
                name = f"Python, asyncio{', batching' if batch else ''}, beside httpx"
                await compare(name, at_once, [ours, theirs])
            await mine.close()


async def frozen(url: str) -> None:
    client = Client(url, breaker_failures=1_000_000)
    took = []
    for _ in range(100):
        began = time.perf_counter()
        client.allow(WHO)
        took.append((time.perf_counter() - began) * 1000)
    show("Python, sync", 1, took)
    mine, took = AsyncClient(url, breaker_failures=1_000_000), []

    async def timed() -> None:
        began = time.perf_counter()
        await mine.allow(WHO)
        took.append((time.perf_counter() - began) * 1000)

    await each(timed, 16, 1_600)
    show("Python, asyncio", 16, took)


def show(name: str, at_once: int, took: list[float]) -> None:
    took.sort()
    print(f"| {name} | {at_once} | {took[len(took) // 2]:.1f} | {took[len(took) * 99 // 100]:.1f} | {took[-1]:.1f} |")


asyncio.run({"speed": speed, "frozen": frozen}[sys.argv[2]](sys.argv[1]))
