"""The Python client against `http.client` (sync) and httpx (asyncio). Prints rows of a table; see run.sh."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
from tidegate import AsyncClient, Client

WHO = {"client_id": "user123", "resource": "api"}
HEADERS = {"content-type": "application/json"}
ROUNDS, CALLS, AT_ONCE = 7, 480, 16
LONG_MS = 60_000
# Seconds: what clients have without an option.
DEADLINE = 0.05
Round = Callable[[int], Awaitable[None]]


def bare(url: str) -> Callable[[], object]:
    """A call as an application writes it by hand, with a kept connection for each thread."""
    own = threading.local()

    def call() -> object:
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection(urlsplit(url).netloc)
        own.connection.request("POST", "/v1/decisions", json.dumps({"attributes": WHO}), HEADERS)
        return json.loads(own.connection.getresponse().read())["allowed"]

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


def in_threads(pool: ThreadPoolExecutor, at_once: int, call: Callable[[], object]) -> Round:
    """Rounds of calls by so many threads, each with its part of them."""

    async def run(count: int) -> None:
        def part(_: int) -> None:
            for _ in range(count // at_once):
                call()

        list(pool.map(part, range(at_once)))

    return run


def in_tasks(call: Callable[[], Awaitable[object]], at_once: int) -> Round:
    return lambda count: each(call, at_once, count)


async def speed_of_threads(url: str) -> None:
    plain, together = Client(url, deadline_ms=LONG_MS), Client(url, deadline_ms=LONG_MS, batch=True)
    assert plain.allow(WHO).source == together.allow(WHO).source == "server"
    with plain, together, ThreadPoolExecutor(AT_ONCE) as pool:
        for at_once, name, mine, beside, other in [
            (1, "", plain, "http.client", bare(url)),
            (AT_ONCE, "", plain, "http.client", bare(url)),
            (AT_ONCE, ", batching", together, "http.client", bare(url)),
            (AT_ONCE, ", batching", together, "the same without", lambda: plain.allow(WHO)),
        ]:
            ours = in_threads(pool, at_once, lambda mine=mine: mine.allow(WHO))  # type: ignore[misc]
            await compare(
                f"Python, sync{name}, beside {beside}", at_once, [ours, in_threads(pool, at_once, other)]
            )


async def speed_of_tasks(url: str) -> None:
    async with (
        AsyncClient(url, deadline_ms=LONG_MS) as plain,
        AsyncClient(url, deadline_ms=LONG_MS, batch=True) as together,
        httpx.AsyncClient() as other,
    ):

        async def ask() -> object:
            return (await other.post(f"{url}/v1/decisions", json={"attributes": WHO})).json()["allowed"]

        for at_once, name, mine, beside, hand in [
            (1, "", plain, "httpx", ask),
            (AT_ONCE, "", plain, "httpx", ask),
            (AT_ONCE, ", batching", together, "httpx", ask),
            (AT_ONCE, ", batching", together, "the same without", lambda: plain.allow(WHO)),
        ]:
            ours = in_tasks(lambda mine=mine: mine.allow(WHO), at_once)  # type: ignore[misc]
            await compare(f"Python, asyncio{name}, beside {beside}", at_once, [ours, in_tasks(hand, at_once)])


async def speed(url: str) -> None:
    await speed_of_threads(url)
    await speed_of_tasks(url)


async def late(url: str, server: int, faulty: list[str]) -> None:
    """How late calls of servers end that give no answer; `faulty` are `NAME=URL`.

    The first server stops in the middle of the calls, as it would in production.
    """
    client, mine = Client(url, breaker_failures=1_000_000), AsyncClient(url, breaker_failures=1_000_000)
    for _ in range(100):
        client.allow(WHO)
    await each(lambda: mine.allow(WHO), AT_ONCE, 100 * AT_ONCE)
    os.kill(server, signal.SIGSTOP)
    for at_once in (1, AT_ONCE):
        late_in_threads("Python, sync, frozen", client, at_once, 200)
    await late_in_tasks("Python, asyncio, frozen", mine, 200)
    await mine.close()
    for name, other in (fault.split("=", 1) for fault in faulty):
        with Client(other, breaker_failures=1_000_000) as threads:
            late_in_threads(f"Python, sync, {name}", threads, AT_ONCE, 50)
        async with AsyncClient(other, breaker_failures=1_000_000) as tasks:
            await late_in_tasks(f"Python, asyncio, {name}", tasks, 50)


def late_in_threads(name: str, client: Client, at_once: int, calls: int) -> None:
    """So many calls of each of several threads, while as many others sleep."""

    def timed(action: Callable[[], object]) -> list[float]:
        took = []
        for _ in range(calls):
            began = time.perf_counter()
            action()
            took.append((time.perf_counter() - began) * 1000)
        return took

    with ThreadPoolExecutor(2 * at_once) as pool:
        asked = [pool.submit(timed, lambda: client.allow(WHO)) for _ in range(at_once)]
        slept = [pool.submit(timed, lambda: time.sleep(DEADLINE)) for _ in range(at_once)]
        show(name, at_once, *([time for one in several for time in one.result()] for several in (asked, slept)))


async def late_in_tasks(name: str, client: AsyncClient, calls: int) -> None:
    """So many calls of each of several tasks, while as many others sleep."""

    async def timed(action: Callable[[], Awaitable[object]], took: list[float]) -> None:
        began = time.perf_counter()
        await action()
        took.append((time.perf_counter() - began) * 1000)

    asked: list[float] = []
    slept: list[float] = []
    await asyncio.gather(
        each(lambda: timed(lambda: client.allow(WHO), asked), AT_ONCE, calls * AT_ONCE),
        each(lambda: timed(lambda: asyncio.sleep(DEADLINE), slept), AT_ONCE, calls * AT_ONCE),
    )
    show(name, AT_ONCE, asked, slept)


def show(name: str, at_once: int, took: list[float], slept: list[float]) -> None:
    took.sort()
    slept.sort()
    p99, machine = (some[len(some) * 99 // 100] for some in (took, slept))
    print(
        f"| {name} | {at_once} | {took[len(took) // 2]:.1f} | {p99:.1f} | {took[-1]:.1f}"
        f" | {machine:.1f} | {p99 / machine:.2f} |"
    )


url, what = sys.argv[1:3]
asyncio.run(speed(url) if what == "speed" else late(url, int(sys.argv[3]), sys.argv[4:]))
