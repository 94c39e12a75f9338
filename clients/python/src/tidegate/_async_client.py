"""The async client, for asyncio.

Batching has a task while something is on its way: it sends what has come meanwhile, and ends when
nothing has.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from ._core import MAX_BATCH, Core, Failed
from ._http import Response
from ._options import Fallback, Options, check_deadline
from ._streams import Streams
from ._types import (
    Attributes,
    Decision,
    Event,
    Explanation,
    InvalidRequest,
    Limits,
    Mode,
    Refunded,
    Renewed,
    Request,
    Stats,
    Unavailable,
)


class AsyncClient:
    """Asks Tidegate, from any number of tasks. The options are those of the README of all clients."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        deadline_ms: float = 50,
        on_failure: Mode = "open",
        fallback: Fallback | None = None,
        denial_cache: int = 1_000,
        denial_cache_ms: float = 60_000,
        batch: bool = False,
        max_connections: int = 64,
        breaker_failures: int = 5,
        breaker_open_ms: float = 1_000,
        on_event: Callable[[Event], object] | None = None,
        tls: ssl.SSLContext | None = None,
        headers: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        options = Options(
            url,
            token,
            deadline_ms,
            on_failure,
            fallback,
            denial_cache,
            denial_cache_ms,
            batch,
            max_connections,
            breaker_failures,
            breaker_open_ms,
            on_event,
            tls,
            headers,
        )
        self._core = Core(options)
        self._pool = Streams(self._core.target, max_connections)
        self._turns = _Turns(self) if batch else None

    async def allow(
        self,
        attributes: Attributes,
        cost: int = 1,
        *,
        peek: bool = False,
        limits: Limits | None = None,
        deadline_ms: float | None = None,
    ) -> Decision:
        """Asks whether a request may go ahead, and charges it if so. `limits` decide where no policy applies.

        Raises:
            InvalidRequest: the server calls the request wrong.

        """
        core, started = self._core, time.monotonic()
        deadline = self._deadline(started, deadline_ms)
        request = Request(attributes, cost, peek, limits)
        decision = core.denials.find(request, started)
        if decision is None:
            with core.told("allow", started):
                try:
                    if self._turns is None:
                        decision = core.one(await self._send(core.decisions(request), deadline))
                    else:
                        decision = await self._turns.ask(request, deadline)
                    core.denials.keep(request, decision, started, time.monotonic())
                except Failed as failed:
                    decision = core.fall_back(request, failed.failure)
        core.decided("allow", decision, started)
        return decision

    def alone(self, request: Request) -> Decision:
        """Decides as if the server had not answered: for a middleware whose question it refuses."""
        return self._core.fall_back(request, "status")

    async def batch(self, requests: Sequence[Request], *, deadline_ms: float | None = None) -> list[Decision]:
        """Asks for several decisions, in their order.

        Raises:
            InvalidRequest: the server calls one of them wrong.

        """
        core, started = self._core, time.monotonic()
        deadline = self._deadline(started, deadline_ms)
        found, left = core.remembered(requests, started)
        answers: list[Decision] = []
        with core.told("batch", started):
            for start in range(0, len(left), MAX_BATCH):
                part, asked = left[start : start + MAX_BATCH], time.monotonic()
                try:
                    decided = core.many(await self._send(core.decisions(part), deadline), len(part))
                    core.keep(part, decided, asked)
                except Failed as failed:
                    decided = [core.fall_back(request, failed.failure) for request in part]
                answers += decided
        return core.joined(found, answers, started)

    async def refund(
        self,
        attributes: Attributes,
        cost: int = 1,
        *,
        limits: Limits | None = None,
        deadline_ms: float | None = None,
    ) -> Refunded:
        """Gives units back, with the limits that they were asked for with.

        Raises:
            InvalidRequest: the server calls the request wrong.

        """
        core, started = self._core, time.monotonic()
        deadline = self._deadline(started, deadline_ms)
        with core.told("refund", started):
            try:
                refunded = core.refunded(await self._send(core.refund(attributes, cost, limits), deadline))
            except Failed as failed:
                refunded = Refunded([], failed.failure)
        core.denials.forget(attributes, time.monotonic())
        core.ended("refund", refunded.failure, started)
        return refunded

    async def acquire(self, attributes: Attributes, *, deadline_ms: float | None = None) -> AsyncPermit:
        """Asks for a permit: `async with await client.acquire(...) as permit: if permit: ...`.

        Raises:
            InvalidRequest: the server calls the request wrong.

        """
        core, started = self._core, time.monotonic()
        deadline = self._deadline(started, deadline_ms)
        with core.told("acquire", started):
            try:
                decision = core.one(await self._send(core.acquire(attributes), deadline))
            except Failed as failed:
                decision = core.fall_back(Request(attributes), failed.failure)
        core.decided("acquire", decision, started)
        return AsyncPermit(self, decision)

    async def explain(
        self,
        attributes: Attributes,
        cost: int = 1,
        *,
        limits: Limits | None = None,
        deadline_ms: float | None = None,
    ) -> Explanation:
        """Asks what each policy would do, and what `limits` would, and charges nothing.

        Raises:
            InvalidRequest: the server calls the request wrong.
            Unavailable: the server gave no answer.

        """
        core, started = self._core, time.monotonic()
        deadline = self._deadline(started, deadline_ms)
        with core.told("explain", started):
            try:
                found = core.explanation(await self._send(core.explain(attributes, cost, limits), deadline))
            except Failed as failed:
                core.ended("explain", failed.failure, started)
                raise Unavailable(failed.failure) from None
        core.ended("explain", None, started)
        return found

    def stats(self) -> Stats:
        """How often a bound was reached, and whether the server is asked."""
        return self._core.stats(self._pool.full)

    async def close(self) -> None:
        """Gives the connections back."""
        self._pool.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    def _deadline(self, started: float, deadline_ms: float | None) -> float:
        if deadline_ms is None:
            return started + self._core.options.deadline_ms / 1000
        check_deadline(deadline_ms)
        return started + deadline_ms / 1000

    async def _send(self, request: bytes, deadline: float) -> Response:
        if not self._core.breaker.admits(time.monotonic()):
            raise Failed("breaker")
        try:
            return await self._pool.call(request, deadline)
        except Failed as failed:
            raise self._core.unanswered(failed) from None


class AsyncPermit:
    """A permit, or why there is none. True if the request may go ahead."""

    def __init__(self, client: AsyncClient, decision: Decision) -> None:
        self._client = client
        self._permit = decision.permit
        self.decision = decision

    @property
    def held(self) -> bool:
        """Whether the server holds a place for it."""
        return self._permit is not None

    def __bool__(self) -> bool:
        return self.decision.allowed

    async def renew(self) -> Renewed | None:
        """Prolongs it by another lease; nothing if it is not held any more, or the server gave no answer."""
        permit, core, started = self._permit, self._client._core, time.monotonic()
        if permit is None:
            return None
        deadline = self._client._deadline(started, None)
        try:
            renewed = core.renewed(await self._client._send(core.renew(permit), deadline))
        except Failed as failed:
            core.ended("renew", failed.failure, started)
            return None
        except InvalidRequest:
            return None
        core.ended("renew", None, started)
        return renewed

    async def release(self) -> None:
        """Gives it back, once. What cannot be given back ends with its lease."""
        permit, self._permit = self._permit, None
        if permit is None:
            return
        core, started = self._client._core, time.monotonic()
        try:
            core.released(
                await self._client._send(core.release(permit), self._client._deadline(started, None))
            )
            core.ended("release", None, started)
        except Failed as failed:
            core.ended("release", failed.failure, started)

    async def __aenter__(self) -> AsyncPermit:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.release()


class _Call:
    """A call that is sent with others."""

    __slots__ = ("answer", "deadline", "request")

    def __init__(self, request: Request, deadline: float) -> None:
        self.request = request
        self.deadline = deadline
        # Nothing: the batch was refused, and each asks for itself.
        self.answer: asyncio.Future[Decision | None] = asyncio.get_running_loop().create_future()


class _Turns:
    """Who is sent next. One batch is on its way at a time."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._waiting: list[_Call] = []
        self._task: asyncio.Task[None] | None = None

    async def ask(self, request: Request, deadline: float) -> Decision:
        call = _Call(request, deadline)
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._waiting = []
            self._task = loop.create_task(self._run())
        self._waiting.append(call)
        try:
            async with asyncio.timeout_at(deadline):
                decision = await call.answer
        except TimeoutError:
            raise Failed("timeout") from None
        if decision is None:
            core = self._client._core
            return core.one(await self._client._send(core.decisions(request), deadline))
        return decision

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            batch = [call for call in batch if not call.answer.done()]
            if batch:
                await self._send(batch)

    async def _send(self, batch: list[_Call]) -> None:
        core = self._client._core
        deadline = max(call.deadline for call in batch)
        try:
            if len(batch) == 1:
                question = core.decisions(batch[0].request, shared=True)
                answers: Sequence[Decision | None] = [core.one(await self._client._send(question, deadline))]
            else:
                requests = [call.request for call in batch]
                question = core.decisions(requests, shared=True)
                answers = core.many(await self._client._send(question, deadline), len(batch))
        except InvalidRequest as error:
            if len(batch) == 1:
                _settle(batch, error)
                return
            # Nothing of it was charged: each asks for itself.
            answers = [None] * len(batch)
        except Failed as failed:
            _settle(batch, failed)
            return
        for call, answer in zip(batch, answers, strict=True):
            if not call.answer.done():
                call.answer.set_result(answer)


def _settle(batch: list[_Call], error: Exception) -> None:
    for call in batch:
        if not call.answer.done():
            call.answer.set_exception(error)
