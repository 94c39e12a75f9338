"""What the ASGI and the WSGI middleware have in common: which response a decision makes.

The documents and fields are those that Tidegate itself sends to proxies (`/v1/check`).

What a user sent is never the user's 400: what the server refuses is decided as without the server, and a path
is sent whole, since a policy could not see what was cut off. One that is longer than servers take is
answered 414.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from ._addresses import says
from ._types import Decision, InvalidRequest, Request

_LOG = logging.getLogger("tidegate")
_LONGEST = 512
# Longest `path` that is asked for.
_LONGEST_PATH = 16_384
# Frameworks route by regular expressions, whose `$` matches before a line feed at the end, too.
_LINE_FEED = re.compile(r"(%0[Aa]|\n)\Z")
_OTHER_FORM = re.compile(r"\*\Z|[A-Za-z][A-Za-z0-9+.-]*://")
# What a script of another origin may read of a denial.
_READABLE = ("access-control-expose-headers", "RateLimit, RateLimit-Policy, Retry-After")
_QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
_REDUCED_CAPACITY = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

Fields = list[tuple[str, str]]


def bounded(value: str | None) -> str:
    """A value as it can be sent: a long one, or no Unicode, is cut, and ends in the digest of the whole."""
    if value is None:
        return ""
    shown = well_formed(value)
    content = shown.encode()
    if shown == value and len(content) <= _LONGEST:
        return value
    # What is no Unicode is told apart by its UTF-16.
    whole = content if shown == value else value.encode("utf-16-be", "surrogatepass")
    digest = hashlib.sha256(whole).hexdigest()
    start = content[: _LONGEST - 1 - len(digest)]
    # Not within the escape of a byte, nor within a character.
    escape = start.rfind(b"%", len(start) - 2)
    return (start if escape < 0 else start[:escape]).decode("utf-8", "ignore") + "~" + digest


def fields(decision: Decision) -> Fields:
    """`RateLimit-Policy` and `RateLimit`: as the server sent them, or made of the parts.

    A batch has no `RateLimit`, nor has a cached denial.
    """
    policy, limit = decision.rate_limit_policy, decision.rate_limit
    enforced = [part for part in decision.policies if part.mode == "enforce"]
    if enforced and decision.source != "fallback":
        policy = policy or ",".join(f'"{part.policy}";q={part.limit}' for part in enforced)
        limit = limit or ",".join(
            f'"{part.policy}";r={part.remaining}'
            if part.allowed or part.retry_after_ms is None
            else f'"{part.policy}";r=0;t={math.ceil(part.retry_after_ms / 1000)}'
            for part in enforced
        )
    named = (("ratelimit-policy", policy), ("ratelimit", limit))
    return [(name, value) for name, value in named if value is not None]


def denial(decision: Decision) -> tuple[int, Fields, bytes]:
    """Status, fields and body of a denial."""
    if decision.no_match:
        problem: dict[str, object] = {
            "type": "about:blank",
            "title": "Forbidden",
            "status": 403,
            "detail": "no policy applies to the request",
        }
    elif decision.degraded == "closed":
        problem = {
            "type": _REDUCED_CAPACITY,
            "title": "Service Unavailable",
            "status": 503,
            "detail": "the rate limit cannot be checked",
        }
    else:
        problem = {
            "type": _QUOTA_EXCEEDED,
            "title": "Quota Exceeded",
            "status": 429,
            "detail": "the quota of a policy is used up",
        }
        denied = [part.policy for part in decision.policies if part.mode == "enforce" and not part.allowed]
        if denied:
            problem["violated-policies"] = denied
    sent = fields(decision)
    if decision.retry_after is not None and not decision.no_match:
        sent.append(("retry-after", str(decision.retry_after)))
    return _document(problem, sent)


def too_long(attributes: Mapping[str, str]) -> tuple[int, Fields, bytes] | None:
    """Status, fields and body of the response to a path that is too long to be counted."""
    if len(attributes.get("path", "")) <= _LONGEST_PATH:
        return None
    problem = {
        "type": "about:blank",
        "title": "URI Too Long",
        "status": 414,
        "detail": f"the path is longer than {_LONGEST_PATH} bytes",
    }
    return _document(problem, [])


def readable(response: tuple[int, Fields, bytes], origin: str) -> tuple[int, Fields, bytes]:
    """Lets scripts of other origins read why, where the application lets them read replies at all."""
    status, sent, body = response
    return (status, [*sent, _READABLE], body) if origin else response


def _document(problem: dict[str, object], sent: Fields) -> tuple[int, Fields, bytes]:
    body = json.dumps(problem).encode()
    about = [("content-type", "application/problem+json"), ("content-length", str(len(body)))]
    return int(str(problem["status"])), [*sent, *about, ("cache-control", "no-store")], body


class Settlement:
    """What a request has reserved. The application may say what it has used; the rest is refunded."""

    def __init__(self, request: Request, decision: Decision, *, preflight: bool = False) -> None:
        self.decision = decision
        self._preflight = preflight
        self._request = request
        self._used: int | None = None

    def settle(self, used: int) -> None:
        """Says how many units were used, at the latest when the response has been sent."""
        self._used = max(0, used)

    def answered(self, names: Iterable[str]) -> None:
        """Is told a response's fields: a preflight that the application's CORS answered has used nothing."""
        if self._preflight and "access-control-allow-methods" in map(str.lower, names):
            self.settle(0)

    def rest(self) -> Request | None:
        """What is to be refunded, once."""
        used, self._used = self._used, None
        left = 0 if used is None else self._request.cost - used
        # What was decided without the server was not charged there.
        return (
            Request(self._request.attributes, left) if left > 0 and self.decision.source == "server" else None
        )


def attributes_of(given: Mapping[str, str | None], key: str | None) -> dict[str, str]:
    """What is sent of a request: the path whole, so that a policy sees all of it."""
    known = {
        name: well_formed(value) if name == "path" else bounded(value)
        for name, value in given.items()
        if value is not None
    }
    return {"client_id": bounded(key), **known}


def well_formed(value: str) -> str:
    """A text that JSON can carry: each half of a character that has lost its other one is replaced."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    return value


def escaped(path: bytes) -> str:
    """A path that was decoded, as a URL has it."""
    return quote(path, safe="/:@!$&'()*+,;=")


def routed(path: str) -> str:
    """An escaped path as frameworks route by it."""
    path = _LINE_FEED.sub("", path)
    # Some routers add the slash.
    return path if path.startswith("/") or _OTHER_FORM.match(path) else "/" + path


def is_preflight(method: str, origin: str, requested: str) -> bool:
    """Whether a browser asks by this request if it may send another."""
    return method == "OPTIONS" and bool(origin and requested)


class Once:
    """What a middleware says in the log, once each."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def refused(self, error: InvalidRequest) -> None:
        """The server refuses what it is asked."""
        self._say("Tidegate refuses what it is asked, so on_failure decides: %s", error)

    def forwarded(self, forwarded: str, address: str, trust: str) -> None:
        """A request says that it came by a proxy, and nobody has made that its address."""
        if forwarded and not says(forwarded, address):
            self._say(
                "requests come with X-Forwarded-For, which is not trusted: they are counted by the address "
                "%s. If a proxy sends it, %s, or pass `key`",
                address,
                trust,
            )

    def _say(self, message: str, *more: object) -> None:
        if message not in self._said:
            self._said.add(message)
            _LOG.warning(message, *more)


def delay(decision: Decision, max_delay_ms: float) -> float:
    """Seconds for which a leaky bucket wants the request held back."""
    return min(decision.delay_ms or 0, max_delay_ms) / 1000
