"""The other side: how a client of somebody's limited API keeps within its limit.

[`Pacer`][] knows when the next request to an origin may leave; `tidegate.pacing_requests` and
`tidegate.pacing_httpx` wait for it. It reads `RateLimit` and `RateLimit-Policy`
(draft-ietf-httpapi-ratelimit-headers-11, RFC 9651) and `Retry-After` (RFC 9110).
"""

from __future__ import annotations

import email.utils
import random
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_DENIED = (429, 503)
_ORIGINS = 1_000
_MAX_INTEGER = 999_999_999_999_999

_STRING = r'"(?:[ !#-\[\]-~]|\\["\\])*"'
_BARE = (
    rf"-?\d{{1,12}}\.\d{{1,3}}|-?\d{{1,15}}|{_STRING}|[A-Za-z*][!#$%&'*+\-.^_`|~\w:/]*"
    r"|:[A-Za-z0-9+/=]*:|\?[01]|@-?\d{1,15}"
)
_PARAMETER = re.compile(rf";[ ]*([a-z*][a-z0-9_\-.*]*)(?:=({_BARE}))?", re.ASCII)
_NAME = re.compile(_STRING)
_COMMA = re.compile(r"[ \t]*,[ \t]*")

Items = dict[str, dict[str, str | None]]


def items(field: str) -> Items | None:
    """A List of Strings with parameters, or nothing if it is malformed."""
    found: Items = {}
    field, at = field.strip(" "), 0
    while at < len(field):
        name = _NAME.match(field, at)
        if name is None:
            return None
        at = name.end()
        parameters = found.setdefault(re.sub(r"\\(.)", r"\1", name[0][1:-1]), {})
        while parameter := _PARAMETER.match(field, at):
            parameters[parameter[1]] = parameter[2]
            at = parameter.end()
        comma = _COMMA.match(field, at)
        if at == len(field):
            return found
        if comma is None or comma.end() == len(field):
            return None
        at = comma.end()
    return found


def _number(parameters: Mapping[str, str | None], name: str) -> int | None:
    value = parameters.get(name)
    return int(value) if value is not None and value.isascii() and value.isdigit() else None


def _retry_after(value: str | None, wall: float) -> float | None:
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(min(int(value[:16]), _MAX_INTEGER))
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - wall)
    except (ValueError, OverflowError):
        return None


@dataclass(frozen=True, slots=True)
class Wait:
    """How long to wait after a response; `spread`: each of the next requests, not only the first."""

    seconds: float
    spread: bool = False


def wait_after(status: int, fields: Mapping[str, str], wall: float, max_wait: float) -> Wait:
    """What a response asks for. `fields` has names in lower case, `wall` is in seconds since 1970."""
    limits = items(fields.get("ratelimit", "")) or {}
    quotas = items(fields.get("ratelimit-policy", "")) or {}
    longest = Wait(0)
    for name, parameters in limits.items():
        remaining, seconds = _number(parameters, "r"), _number(parameters, "t")
        quota = _number(quotas.get(name, {}), "q")
        if remaining is None or seconds is None:
            continue
        if remaining == 0:
            wait = Wait(seconds)
        elif quota is not None and remaining * 10 < quota:
            wait = Wait(seconds / (remaining + 1), spread=True)
        else:
            continue
        longest = max(longest, wait, key=lambda it: it.seconds)
    if status in _DENIED:
        after = _retry_after(fields.get("retry-after"), wall)
        longest = Wait(after) if after is not None else longest if longest.seconds else Wait(1)
    return Wait(min(longest.seconds, max_wait), longest.spread)


@dataclass(slots=True)
class _Origin:
    # Nothing leaves before: nothing was left, or a request was denied.
    until: float = 0.0
    # How long that was to wait.
    told: float = 0.0
    # Between two requests, while little is left.
    gap: float = 0.0
    # After those that wait already.
    next: float = 0.0


class Pacer:
    """When the next request to each origin may leave. Used from any number of threads."""

    def __init__(self, *, max_wait: float = 60.0, retries: int = 2, seed: int | None = None) -> None:
        self.max_wait = max_wait
        self.retries = retries
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._origins: OrderedDict[str, _Origin] = OrderedDict()

    def before(self, origin: str, now: float | None = None) -> float:
        """Seconds to wait before a request, which is then taken to leave. `now` is of the monotonic clock."""
        now = time.monotonic() if now is None else now
        with self._lock:
            known = self._origins.get(origin)
            if known is None:
                return 0.0
            self._origins.move_to_end(origin)
            leaves = max(known.until, known.next)
            if leaves > now:
                spread = (known.gap or known.told) / 10
                leaves = min(leaves + self._random.random() * spread, now + self.max_wait)
            known.next = max(leaves, now) + known.gap
            return max(0.0, leaves - now)

    def after(self, origin: str, status: int, fields: Mapping[str, str], now: float | None = None) -> None:
        """Takes note of a response. `now` is of the monotonic clock."""
        now = time.monotonic() if now is None else now
        wait = wait_after(status, fields, time.time(), self.max_wait)
        with self._lock:
            known = self._origins.setdefault(origin, _Origin())
            self._origins.move_to_end(origin)
            if len(self._origins) > _ORIGINS:
                self._origins.popitem(last=False)
            if wait.spread and status not in _DENIED:
                known.gap = wait.seconds
                known.next = max(known.next, now + wait.seconds)
                return
            if known.gap:
                known.gap = known.next = 0.0
            # A response to an earlier request does not take a wait back.
            if now + wait.seconds > max(known.until, now):
                known.until, known.told = now + wait.seconds, wait.seconds

    def repeats(
        self, method: str, status: int, fields: Mapping[str, str], done: int, *, has_body: bool
    ) -> bool:
        """Whether a request is sent again, after `done` repeats."""
        if status not in _DENIED or method.upper() not in SAFE or has_body or done >= self.retries:
            return False
        # A wait that was cut to `max_wait` would end in another denial.
        return wait_after(status, fields, time.time(), _MAX_INTEGER).seconds <= self.max_wait
