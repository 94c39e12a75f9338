"""The cases of conformance.json, for the sync and the async client, against the real server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from support import CONFORMANCE, Faulty, Server, differs, faulty, nothing, server, text, until
from tidegate import (
    AsyncClient,
    AsyncPermit,
    Client,
    Event,
    Fallback,
    InvalidRequest,
    Limits,
    Permit,
    Request,
    Unavailable,
)

CASES = CONFORMANCE["cases"]
DONE: dict[str, Any] = {}


class Asker(Protocol):
    """A client of either kind: makes a call of conformance.json and says what came of it."""

    def call(self, step: dict[str, Any]) -> Any: ...
    def at_once(self, steps: list[dict[str, Any]], then: Callable[[], object]) -> list[Any]: ...
    def close(self) -> None: ...


def plain(result: Any) -> Any:
    """A result as conformance.json writes it."""
    if result is None:
        return DONE
    if isinstance(result, Permit | AsyncPermit):
        return dataclasses.asdict(result.decision) | {"held": result.held}
    if isinstance(result, list):
        return [plain(item) for item in result]
    return dataclasses.asdict(result)


def limits(step: dict[str, Any]) -> Limits | None:
    return Limits(**step["limits"]) if "limits" in step else None


def arguments(step: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {name: step[name] for name in ("cost", "peek", "deadline_ms") if name in step}
    if "limits" in step:
        found["limits"] = limits(step)
    if "attributes" in step:
        found["attributes"] = text(step["attributes"])
    if "requests" in step:
        found["requests"] = [
            Request(text(item["attributes"]), item.get("cost", 1), item.get("peek", False), limits(item))
            for item in step["requests"]
        ]
    return found


def error(raised: Exception) -> dict[str, Any]:
    if isinstance(raised, InvalidRequest):
        return {"error": "invalid_request", "status": raised.problem.status}
    assert isinstance(raised, Unavailable)
    return {"error": "unavailable", "failure": raised.failure}


class SyncAsker:
    def __init__(self, options: dict[str, Any]) -> None:
        self._client = Client(**options)
        self._permits: dict[str, Permit] = {}

    def call(self, step: dict[str, Any]) -> Any:
        subject: Any = self._permits[step["permit"]] if "permit" in step else self._client
        try:
            result = getattr(subject, step["call"])(**arguments(step))
        except (InvalidRequest, Unavailable) as raised:
            return error(raised)
        if "as" in step:
            self._permits[step["as"]] = result
        return plain(result)

    def at_once(self, steps: list[dict[str, Any]], then: Callable[[], object]) -> list[Any]:
        results: list[Any] = [None] * len(steps)
        ended = threading.Event()

        def run(number: int) -> None:
            try:
                results[number] = self.call(steps[number])
            finally:
                ended.set()

        threads = [threading.Thread(target=run, args=(number,)) for number in range(len(steps))]
        for thread in threads:
            thread.start()
        ended.wait()
        then()
        for thread in threads:
            thread.join()
        return results

    def close(self) -> None:
        self._client.close()


class AsyncAsker:
    def __init__(self, options: dict[str, Any]) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncClient(**options)
        self._permits: dict[str, AsyncPermit] = {}

    async def _call(self, step: dict[str, Any]) -> Any:
        subject: Any = self._permits[step["permit"]] if "permit" in step else self._client
        try:
            result = await getattr(subject, step["call"])(**arguments(step))
        except (InvalidRequest, Unavailable) as raised:
            return error(raised)
        if "as" in step:
            self._permits[step["as"]] = result
        return plain(result)

    def call(self, step: dict[str, Any]) -> Any:
        return self._runner.run(self._call(step))

    def at_once(self, steps: list[dict[str, Any]], then: Callable[[], object]) -> list[Any]:
        async def together() -> list[Any]:
            calls = [asyncio.create_task(self._call(step)) for step in steps]
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            then()
            return await asyncio.gather(*calls)

        return self._runner.run(together())

    def close(self) -> None:
        self._runner.run(self._client.close())
        self._runner.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Callable[[str], str]]:
    """A server for each kind of client: its cases count on fresh counters."""
    with server() as one, server() as other:
        yield lambda kind: one.url if kind == "sync" else other.url


@contextlib.contextmanager
def place(case: dict[str, Any], shared_url: str) -> Iterator[tuple[str, Server | Faulty | None]]:
    where = case["server"]
    if where == "shared":
        yield shared_url, None
    elif where == "own":
        with server() as own:
            yield own.url, own
    elif where == "nothing":
        with nothing() as url:
            yield url, None
    else:
        with faulty(where["fault"]) as faulty_one:
            yield faulty_one.url, faulty_one


def options(case: dict[str, Any]) -> dict[str, Any]:
    found = CONFORMANCE["options"] | case.get("options", {})
    if "fallback" in found:
        found["fallback"] = Fallback(**found["fallback"])
    return dict(found)


def take(asker: Asker, own: Server | Faulty | None, step: dict[str, Any], events: list[Event]) -> None:
    events.clear()
    take_step(asker, own, step)
    if "events" in step:
        assert not differs(step["events"], [dataclasses.asdict(event) for event in events])


def take_step(asker: Asker, own: Server | Faulty | None, step: dict[str, Any]) -> None:
    if "do" in step:
        assert own is not None
        getattr(own, step["do"])()
    elif isinstance(step.get("concurrently"), list):
        then = getattr(own, step["then"]) if "then" in step else lambda: None
        results = asker.at_once(step["concurrently"], then)
        for part, result in zip(step["concurrently"], results, strict=True):
            assert not differs(part["expect"], result)
    elif "concurrently" in step:
        results = asker.at_once([step] * step["concurrently"], lambda: None)
        found = {
            "allowed": sum(item["allowed"] for item in results),
            "denied": sum(not item["allowed"] for item in results),
            "server": sum(item["source"] == "server" for item in results),
            "degraded": sum(item["degraded"] is not None for item in results),
        }
        assert not differs(step["count"], found)
    else:
        for _ in range(step.get("times", 1)):
            if step.get("until"):
                until(lambda: not differs(step["expect"], asker.call(step)))
            else:
                result = asker.call(step)
                assert not differs(step.get("expect", {}), result), step


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case: dict[str, Any], kind: str, shared: Callable[[str], str]) -> None:
    with place(case, shared(kind)) as (url, own):
        events: list[Event] = []
        made = options(case) | {"url": url, "on_event": events.append}
        asker: Asker = SyncAsker(made) if kind == "sync" else AsyncAsker(made)
        try:
            for step in case["steps"]:
                take(asker, own, step, events)
        finally:
            asker.close()


@pytest.mark.parametrize("kind", [Client, AsyncClient])
@pytest.mark.parametrize("wrong", CONFORMANCE["invalid_options"], ids=str)
def test_options_that_make_no_sense(wrong: dict[str, Any], kind: type[Client | AsyncClient]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        kind(**options({"options": wrong}))
