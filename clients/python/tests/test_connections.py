"""What reaches the server, by its own metrics: how many connections and requests calls take."""

from __future__ import annotations

import asyncio
import concurrent.futures
import subprocess
from collections.abc import Iterator

import pytest

from support import TOKEN, Server, server, until
from tidegate import AsyncClient, Client, Request

WHO = {"client_id": "a", "resource": "ten"}


@pytest.fixture
def own() -> Iterator[Server]:
    with server() as started:
        yield started


def metric(own: Server, name: str, has: str) -> int:
    """The sum of the lines of the server's metrics page that begin with a name and have some text."""
    page = subprocess.run(
        ["curl", "-s", f"{own.url}/metrics"], capture_output=True, text=True, check=True
    ).stdout
    lines = [line for line in page.splitlines() if line.startswith(name) and has in line]
    return sum(int(line.split()[-1]) for line in lines)


@pytest.mark.parametrize("at_once", [1, 16])
def test_connections_are_kept(own: Server, at_once: int) -> None:
    client = Client(own.url, token=TOKEN, deadline_ms=60_000)

    def ask() -> None:
        for _ in range(100):
            assert client.allow(WHO, peek=True).source == "server"

    with client, concurrent.futures.ThreadPoolExecutor(at_once) as threads:
        for asked in [threads.submit(ask) for _ in range(at_once)]:
            asked.result()
    # One more reads the metrics.
    assert 1 <= metric(own, "tidegate_connections_accepted_total", '"api"') - 1 <= at_once


@pytest.mark.parametrize("at_once", [1, 16])
def test_connections_are_kept_async(own: Server, at_once: int) -> None:
    async def ask(client: AsyncClient) -> None:
        for _ in range(100):
            assert (await client.allow(WHO, peek=True)).source == "server"

    async def all_at_once() -> None:
        client = AsyncClient(own.url, token=TOKEN, deadline_ms=60_000)
        await asyncio.gather(*(ask(client) for _ in range(at_once)))
        await client.close()

    asyncio.run(all_at_once())
    assert 1 <= metric(own, "tidegate_connections_accepted_total", '"api"') - 1 <= at_once


def test_an_async_client_and_its_permits_end_with_their_blocks(own: Server) -> None:
    async def ask() -> None:
        slots = {"client_id": "scope", "resource": "slots"}
        async with AsyncClient(own.url, token=TOKEN, deadline_ms=60_000) as client:
            for _ in range(5):  # More than the limit of 2: each has to be back before the next.
                async with await client.acquire(slots) as permit:
                    assert permit.held
                    assert permit.decision.source == "server"
                assert not permit.held
            with pytest.raises(KeyError):
                async with await client.acquire(slots) as permit:
                    raise KeyError
            assert not permit.held
            assert metric(own, "tidegate_connections_open", '"api"') == 2  # One reads the metrics.
        await asyncio.to_thread(until, lambda: metric(own, "tidegate_connections_open", '"api"') == 1)

    asyncio.run(ask())


def test_batching_sends_fewer_requests(own: Server) -> None:
    async def ask() -> None:
        client = AsyncClient(own.url, token=TOKEN, deadline_ms=10_000, batch=True)
        found = await asyncio.gather(*(client.allow(WHO, peek=True) for _ in range(200)))
        assert all(decision.source == "server" for decision in found)
        await client.close()

    asyncio.run(ask())
    assert 1 <= metric(own, "tidegate_http_requests_total", '"/v1/decisions"') <= 3


def test_batching_sends_fewer_requests_of_threads(own: Server) -> None:
    def ask(_: int) -> str:
        return client.allow(WHO, peek=True).source

    with (
        Client(own.url, token=TOKEN, deadline_ms=60_000, batch=True) as client,
        concurrent.futures.ThreadPoolExecutor(32) as threads,
    ):
        assert client._turns is not None
        turns = client._turns
        own.freeze()
        found = threads.map(ask, range(32))
        # One is on its way alone; the others wait for it, and go together.
        until(lambda: len(turns._waiting) == 31)
        own.thaw()
        assert set(found) == {"server"}
    assert metric(own, "tidegate_http_requests_total", '"/v1/decisions"') == 2


def test_more_than_a_thousand_requests_are_asked_in_parts(own: Server) -> None:
    with Client(own.url, token=TOKEN, deadline_ms=10_000) as client:
        found = client.batch([Request({"client_id": str(n), "resource": "ten"}) for n in range(2_500)])
    assert len(found) == 2_500
    assert {(decision.remaining, decision.source) for decision in found} == {(9, "server")}
    assert metric(own, "tidegate_http_requests_total", '"/v1/decisions"') == 3
