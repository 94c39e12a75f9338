"""What the ASGI and the WSGI middleware have in common: which response a decision makes.

The documents and fields are those that Tidegate itself sends to proxies (`/v1/check`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from urllib.parse import quote

from ._types import Decision, InvalidRequest, Request

_LONGEST = 512
_QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
_REDUCED_CAPACITY = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

Fields = list[tuple[str, str]]


def bounded(value: str | None) -> str:
    """A value as it can be sent: a long one is cut, and ends in the digest of the whole."""
    if value is None:
        return ""
    content = value.encode("utf-8", "surrogatepass")
    if len(content) <= _LONGEST:
        return value
    digest = hashlib.sha256(content).hexdigest()
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


def refusal(error: InvalidRequest) -> tuple[int, Fields, bytes]:
    """Status, fields and body where the key function made something that the server refuses."""
    problem = {"type": "about:blank", "title": "Bad Request", "status": 400, "detail": error.problem.detail}
    return _document(problem, [])


def _document(problem: dict[str, object], sent: Fields) -> tuple[int, Fields, bytes]:
    body = json.dumps(problem).encode()
    about = [("content-type", "application/problem+json"), ("content-length", str(len(body)))]
    return int(str(problem["status"])), [*sent, *about, ("cache-control", "no-store")], body


class Settlement:
    """What a request has reserved. The application may say what it has used; the rest is refunded."""

    def __init__(self, request: Request, decision: Decision) -> None:
        self.decision = decision
        self._request = request
        self._used: int | None = None

    def settle(self, used: int) -> None:
        """Says how many units were used, at the latest when the response has been sent."""
        self._used = max(0, used)

    def rest(self) -> Request | None:
        """What is to be refunded, once."""
        used, self._used = self._used, None
        left = 0 if used is None else self._request.cost - used
        # What was decided without the server was not charged there.
        return (
            Request(self._request.attributes, left) if left > 0 and self.decision.source == "server" else None
        )


def attributes_of(given: Mapping[str, str | None], key: str | None) -> dict[str, str]:
    """What is sent of a request."""
    known = {name: bounded(value) for name, value in given.items() if value is not None}
    return {"client_id": bounded(key), **known}


def escaped(path: bytes) -> str:
    """A path that was decoded, as a URL has it."""
    return quote(path, safe="/:@!$&'()*+,;=")


def delay(decision: Decision, max_delay_ms: float) -> float:
    """Seconds for which a leaky bucket wants the request held back."""
    return min(decision.delay_ms or 0, max_delay_ms) / 1000
