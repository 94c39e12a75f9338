"""What is known without the server: denials that are still good, whether to ask at all, and a local limit.

Functions of their state and of `now`, which is in seconds of a clock that never goes back. Each is
used by several threads, so each has a lock that is held for a few instructions.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections import OrderedDict

from ._forks import renew_after_fork
from ._options import Fallback
from ._types import Attributes, Decision, Limits, Request

Key = tuple[tuple[str, str], ...]
# Until when, since when, for which cost, by which limits of the request, and the denial.
_Kept = tuple[float, float, int, Limits | None, Decision]
_LONGEST = 512


def key_of(attributes: Attributes) -> Key:
    """The same for the same attributes in any order."""
    return tuple(sorted(attributes.items()))


class Denials:
    """Denials that are still good. Bounded: then the oldest makes room."""

    def __init__(self, most: int, longest_ms: float) -> None:
        self._most = most
        self._longest = longest_ms / 1000
        self.after_fork()
        renew_after_fork(self)
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self.evicted = 0
        # When units last came back.
        self._forgot = float("-inf")

    def after_fork(self) -> None:
        """Makes a lock that nobody holds."""
        self._lock = threading.Lock()

    def find(self, request: Request, now: float) -> Decision | None:
        """The denial of a request that is no cheaper than one that was denied."""
        if not self._kept or request.peek or request.cost == 0:
            return None
        key = key_of(request.attributes)
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            until, since, cost, limits, decision = found
            if now >= until:
                del self._kept[key]
                return None
        if request.cost < cost or request.limits != limits:
            return None
        return _remembered(decision, (now - since) * 1000)

    def keep(self, request: Request, decision: Decision, asked: float, now: float) -> None:
        """Keeps a denial if it is one that holds for a known time."""
        wait = decision.retry_after_ms
        if decision.allowed or not wait or not self._most or request.peek or request.cost == 0:
            return
        # What a concurrency limit denied, any release may end.
        if decision.degraded is not None or any(
            part.concurrent and not part.allowed and part.mode == "enforce" for part in decision.policies
        ):
            return
        until = now + min(wait / 1000, self._longest)
        key = key_of(request.attributes)
        with self._lock:
            if asked <= self._forgot:
                # It may have been decided before the units came back.
                return
            self._kept[key] = (until, now, request.cost, request.limits, decision)
            self._kept.move_to_end(key)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
                self.evicted += 1

    def forget(self, attributes: Attributes, now: float) -> None:
        """Forgets a denial, because units came back."""
        with self._lock:
            self._forgot = now
            self._kept.pop(key_of(attributes), None)


def _remembered(denial: Decision, passed_ms: float) -> Decision:
    """A denial some time later: its times are so much shorter, and the field that states one is left out."""

    def left(milliseconds: int | None, least: int) -> int | None:
        return None if milliseconds is None else max(least, math.ceil(milliseconds - passed_ms))

    policies = [
        dataclasses.replace(
            part, retry_after_ms=left(part.retry_after_ms, 1), reset_ms=left(part.reset_ms, 0) or 0
        )
        for part in denial.policies
    ]
    wait_ms = left(denial.retry_after_ms, 1) or 1
    return dataclasses.replace(
        denial,
        source="cache",
        retry_after_ms=wait_ms,
        retry_after=math.ceil(wait_ms / 1000),
        reset_ms=left(denial.reset_ms, 0),
        policies=policies,
        rate_limit=None,
    )


class Breaker:
    """Whether to ask at all. Opens after some failures in a row, then lets one call through at a time."""

    def __init__(self, failures: int, open_ms: float) -> None:
        self._most = failures
        self._pause = open_ms / 1000
        self.after_fork()
        renew_after_fork(self)
        self._failures = 0
        self._until = 0.0
        self._open = self._probing = False

    def after_fork(self) -> None:
        """Makes a lock that nobody holds."""
        self._lock = threading.Lock()

    def admits(self, now: float) -> bool:
        """Whether this call may ask."""
        if not self._open:
            return True
        with self._lock:
            if now < self._until:
                return False
            # This one is the probe; the next is due if it does not report.
            self._probing = True
            self._until = now + self._pause
            return True

    @property
    def is_open(self) -> bool:
        """Whether the server is not asked."""
        return self._open

    def failed(self, now: float) -> None:
        """The server gave no answer."""
        with self._lock:
            if self._open and not self._probing:
                # It was under way when the breaker opened, and says nothing new.
                return
            self._failures += 1
            if self._open or self._failures >= self._most:
                self._open, self._probing = True, False
                self._until = now + self._pause

    def answered(self) -> None:
        """The server is there."""
        if self._failures:
            with self._lock:
                self._failures = 0
                self._open = self._probing = False


class LocalLimiter:
    """A token bucket for each client. Bounded: then the one unseen for longest is forgotten."""

    def __init__(self, fallback: Fallback) -> None:
        self._units = max(1, math.floor(fallback.limit * fallback.share + 1e-9))
        self._rate = self._units / fallback.window_seconds
        self._names = fallback.key
        self._most = fallback.keys
        self.evicted = 0
        self.after_fork()
        renew_after_fork(self)
        self._buckets: OrderedDict[tuple[str | None, ...], tuple[float, float]] = OrderedDict()

    def after_fork(self) -> None:
        """Makes a lock that nobody holds."""
        self._lock = threading.Lock()

    def decide(self, request: Request, now: float) -> Decision:
        """Decides, and charges if that is asked for and fits."""
        key = tuple(_short(request.attributes.get(name)) for name in self._names)
        cost = max(0, request.cost)
        with self._lock:
            units, seen = self._buckets.get(key, (float(self._units), now))
            units = min(float(self._units), units + max(0.0, now - seen) * self._rate)
            # A millionth of a unit is what rounding may cost.
            allowed = units + 1e-6 >= cost
            left = units - cost if allowed and not request.peek else units
            self._buckets[key] = (max(0.0, left), max(now, seen))
            self._buckets.move_to_end(key)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
                self.evicted += 1
        shown = units - cost if allowed else units
        decision = Decision(
            allowed,
            limit=self._units,
            remaining=max(0, math.floor(shown + 1e-6)),
            reset_ms=math.ceil((self._units - max(0.0, shown)) / self._rate * 1000),
            degraded="local",
        )
        if not allowed:
            fits = cost <= self._units
            wait_ms = math.ceil((min(cost, self._units) - units) / self._rate * 1000)
            decision.retry_after = max(1, math.ceil(wait_ms / 1000))
            decision.retry_after_ms = max(1, wait_ms) if fits else None
        return decision


def _short(value: str | None) -> str | None:
    """A key of bounded length: the server refuses longer values, so telling them apart matters to nobody."""
    return value if value is None or len(value) <= _LONGEST else f"{value[:_LONGEST]}~{len(value)}"
