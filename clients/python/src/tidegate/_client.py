"""The sync client.

Batching has no thread of its own: of the calls that wait, the one with the latest deadline sends them
all when the batch before is through, and hands the next one on.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from ._core import MAX_BATCH, Core, Failed
from ._forks import renew_after_fork
from ._http import Response
from ._options import Fallback, Options, check_deadline
from ._sockets import Pool
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


class Client:
    """Asks Tidegate, from any number of threads. The options are those of the README of all clients."""

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
        self._pool = Pool(self._core.target, max_connections)
        self._turns = _Turns() if batch else None

    def allow(
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
                        decision = core.one(self._send(core.decisions(request), deadline))
                    else:
                        decision = self._in_turn(self._turns, request, deadline)
                    core.denials.keep(request, decision, started, time.monotonic())
                except Failed as failed:
                    decision = core.fall_back(request, failed.failure)
        core.decided("allow", decision, started)
        return decision

    def alone(self, request: Request) -> Decision:
        """Decides as if the server had not answered: for a middleware whose question it refuses."""
        return self._core.fall_back(request, "status")

    def batch(self, requests: Sequence[Request], *, deadline_ms: float | None = None) -> list[Decision]:
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
                    decided = core.many(self._send(core.decisions(part), deadline), len(part))
                    core.keep(part, decided, asked)
                except Failed as failed:
                    decided = [core.fall_back(request, failed.failure) for request in part]
                answers += decided
        return core.joined(found, answers, started)

    def refund(
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
                refunded = core.refunded(self._send(core.refund(attributes, cost, limits), deadline))
            except Failed as failed:
                refunded = Refunded([], failed.failure)
        core.denials.forget(attributes, time.monotonic())
        core.ended("refund", refunded.failure, started)
        return refunded

    def acquire(self, attributes: Attributes, *, deadline_ms: float | None = None) -> Permit:
        """Asks for a permit: `with client.acquire(...) as permit: if permit: ...`.

        Raises:
            InvalidRequest: the server calls the request wrong.

        """
        core, started = self._core, time.monotonic()
        deadline = self._deadline(started, deadline_ms)
        with core.told("acquire", started):
            try:
                decision = core.one(self._send(core.acquire(attributes), deadline))
            except Failed as failed:
                decision = core.fall_back(Request(attributes), failed.failure)
        core.decided("acquire", decision, started)
        return Permit(self, decision)

    def explain(
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
                found = core.explanation(self._send(core.explain(attributes, cost, limits), deadline))
            except Failed as failed:
                core.ended("explain", failed.failure, started)
                raise Unavailable(failed.failure) from None
        core.ended("explain", None, started)
        return found

    def stats(self) -> Stats:
        """How often a bound was reached, and whether the server is asked."""
        return self._core.stats(self._pool.full)

    def close(self) -> None:
        """Gives the connections back."""
        self._pool.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _deadline(self, started: float, deadline_ms: float | None) -> float:
        if deadline_ms is None:
            return started + self._core.options.deadline_ms / 1000
        check_deadline(deadline_ms)
        return started + deadline_ms / 1000

    def _send(self, request: bytes, deadline: float) -> Response:
        if not self._core.breaker.admits(time.monotonic()):
            raise Failed("breaker")
        try:
            return self._pool.call(request, deadline)
        except Failed as failed:
            raise self._core.unanswered(failed) from None

    def _in_turn(self, turns: _Turns, request: Request, deadline: float) -> Decision:
        call = _Call(request, deadline)
        batch = turns.join(call)
        if batch is not None:
            try:
                self._send_all(batch, call)
            finally:
                turns.next()
        if call.alone:
            call.answer = self._alone(call)
        if isinstance(call.answer, Decision):
            return call.answer
        raise call.answer

    def _send_all(self, batch: list[_Call], leader: _Call) -> None:
        core = self._core
        try:
            if len(batch) == 1:
                question = core.decisions(leader.request, shared=True)
                answers = [core.one(self._send(question, leader.deadline))]
            else:
                requests = [call.request for call in batch]
                question = core.decisions(requests, shared=True)
                answers = core.many(self._send(question, leader.deadline), len(batch))
            for call, answer in zip(batch, answers, strict=True):
                call.answer = answer
        except InvalidRequest as error:
            # Nothing of it was charged: each asks for itself.
            for call in batch:
                call.answer = error
                call.alone = len(batch) > 1
        except Failed as failed:
            for call in batch:
                call.answer = failed
        finally:
            for call in batch:
                call.done.set()

    def _alone(self, call: _Call) -> Decision | InvalidRequest | Failed:
        try:
            return self._core.one(self._send(self._core.decisions(call.request), call.deadline))
        except (InvalidRequest, Failed) as error:
            return error


class Permit:
    """A permit, or why there is none. True if the request may go ahead."""

    def __init__(self, client: Client, decision: Decision) -> None:
        self._client = client
        self._permit = decision.permit
        self.decision = decision

    @property
    def held(self) -> bool:
        """Whether the server holds a place for it."""
        return self._permit is not None

    def __bool__(self) -> bool:
        return self.decision.allowed

    def renew(self) -> Renewed | None:
        """Prolongs it by another lease; nothing if it is not held any more, or the server gave no answer."""
        permit, core, started = self._permit, self._client._core, time.monotonic()
        if permit is None:
            return None
        deadline = self._client._deadline(started, None)
        try:
            renewed = core.renewed(self._client._send(core.renew(permit), deadline))
        except Failed as failed:
            core.ended("renew", failed.failure, started)
            return None
        except InvalidRequest:
            return None
        core.ended("renew", None, started)
        return renewed

    def release(self) -> None:
        """Gives it back, once. What cannot be given back ends with its lease."""
        permit, self._permit = self._permit, None
        if permit is None:
            return
        core, started = self._client._core, time.monotonic()
        try:
            core.released(self._client._send(core.release(permit), self._client._deadline(started, None)))
            core.ended("release", None, started)
        except Failed as failed:
            core.ended("release", failed.failure, started)

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.release()


class _Call:
    """A call that is sent with others."""

    __slots__ = ("alone", "answer", "deadline", "done", "request")

    def __init__(self, request: Request, deadline: float) -> None:
        self.request = request
        self.deadline = deadline
        self.done = threading.Event()
        self.answer: Decision | InvalidRequest | Failed = Failed("timeout")
        self.alone = False


class _Turns:
    """Who sends next. One batch is on its way at a time."""

    def __init__(self) -> None:
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """Nothing is on its way, and nobody waits: a child has none of its parent's threads."""
        self._lock = threading.Lock()
        self._busy = False
        self._waiting: list[_Call] = []
        self._batches: dict[_Call, list[_Call]] = {}

    def join(self, call: _Call) -> list[_Call] | None:
        """The batch that this call has to send, or nothing once another has answered it or its time is up."""
        with self._lock:
            if not self._busy:
                self._busy = True
                return [call]
            self._waiting.append(call)
        call.done.wait(max(0.0, call.deadline - time.monotonic()))
        with self._lock:
            if call in self._waiting:
                self._waiting.remove(call)
            return self._batches.pop(call, None)

    def next(self) -> None:
        """The batch on its way is through: chooses who sends the next."""
        with self._lock:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            if not batch:
                self._busy = False
                return
            leader = max(batch, key=lambda call: call.deadline)
            self._batches[leader] = batch
        leader.done.set()
