"""What the sync and the async client have in common: everything but waiting.

```text
  call -> cached? -> breaker? -> (the client sends and waits) -> judge -> decision
                         |                                          |
                         +--------------> fall_back <---------------+
```

A failure is a value here (`Failed`), never an exception that leaves the client.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TypeVar
from urllib.parse import quote, urlencode

from ._fallback import Breaker, Denials, LocalLimiter
from ._http import Response
from ._options import Options, Target
from ._types import (
    Attributes,
    Decision,
    Event,
    Explanation,
    Failure,
    InvalidRequest,
    Limits,
    NotAsDocumented,
    Problem,
    Refunded,
    Renewed,
    Request,
    Stats,
    read,
)

_Model = TypeVar("_Model")
MAX_BATCH = 1_000
_NAME = re.compile("[!#$%&'*+.^_`|~0-9a-z-]+")
# Fields that are the client's alone.
_OWN = frozenset(
    ("authorization", "connection", "content-length", "content-type", "host", "transfer-encoding", "upgrade")
)
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class Failed(Exception):
    """The server gave no answer. Never leaves the client, but for `Unavailable`."""

    def __init__(self, failure: Failure, *, of_server: bool = True) -> None:
        super().__init__(failure)
        self.failure: Failure = failure
        # False where every connection was in use, which says nothing about the server.
        self.of_server = of_server


class Core:
    """One client's state without its connections."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.target = Target.of(options)
        self.breaker = Breaker(options.breaker_failures, options.breaker_open_ms)
        self.denials = Denials(options.denial_cache, options.denial_cache_ms)
        self._local = LocalLimiter(options.fallback) if options.fallback else None

    def stats(self, connections_full: int) -> Stats:
        """How often a bound was reached."""
        fallback_evicted = self._local.evicted if self._local else 0
        return Stats(connections_full, self.denials.evicted, fallback_evicted, self.breaker.is_open)

    def request(self, method: str, path: str, body: str = "", *, shared: bool = False) -> bytes:
        """The bytes of a request. What several callers share has no context of its own."""
        content = body.encode("utf-8", "surrogatepass")
        own = "" if shared or self.options.headers is None else _lines(self.options.headers)
        head = f"{method} {self.target.prefix}{path} HTTP/1.1\r\n{self.target.head}{own}"
        return f"{head}content-length: {len(content)}\r\n\r\n".encode("ascii") + content

    def decisions(self, requests: Request | Sequence[Request], *, shared: bool = False) -> bytes:
        """The bytes that ask for one decision, or for a list."""
        body = _item(requests) if isinstance(requests, Request) else f"[{','.join(map(_item, requests))}]"
        return self.request("POST", "/v1/decisions", body, shared=shared)

    def refund(self, attributes: Attributes, cost: int, limits: Limits | None) -> bytes:
        """The bytes that give units back."""
        return self.request("POST", "/v1/refunds", _item(Request(attributes, cost, limits=limits)))

    def acquire(self, attributes: Attributes) -> bytes:
        """The bytes that ask for a permit."""
        return self.request("POST", "/v1/permits", _item(Request(attributes)))

    def renew(self, permit: str) -> bytes:
        """The bytes that prolong a permit."""
        return self.request("POST", f"/v1/permits/{quote(permit, safe='')}/renew")

    def release(self, permit: str) -> bytes:
        """The bytes that give a permit back."""
        return self.request("DELETE", f"/v1/permits/{quote(permit, safe='')}")

    def explain(self, attributes: Attributes, cost: int, limits: Limits | None) -> bytes:
        """The bytes that ask why."""
        pairs = [*attributes.items(), ("cost", str(cost))]
        if limits is not None:
            pairs.append(("limits", _encode(_stated(limits))))
        return self.request("GET", f"/v1/explain?{urlencode(pairs, errors='surrogatepass')}")

    def judge(self, response: Response, *, good: Iterable[int] = (200,)) -> object:
        """The JSON value of a good reply.

        Raises:
            InvalidRequest: the caller's mistake.
            Failed: anything else.

        """
        if response.status in good:
            try:
                document: object = json.loads(response.body) if response.body else None
            except (ValueError, RecursionError):
                raise self.failed("reply") from None
            return document
        if response.status in (400, 413, 422):
            self.breaker.answered()
            raise InvalidRequest(_problem(response))
        if response.status < 500:
            self.breaker.answered()
            raise Failed("status")
        raise self.failed("status")

    def unanswered(self, failed: Failed) -> Failed:
        """Counts what the connections tell of the server."""
        return self.failed(failed.failure) if failed.of_server else failed

    def failed(self, failure: Failure) -> Failed:
        """Counts a failure of the server."""
        self.breaker.failed(time.monotonic())
        return Failed(failure)

    def one(self, response: Response) -> Decision:
        """The decision in a reply to one request."""
        document = self.judge(response)
        try:
            decision = read(Decision, document)
        except NotAsDocumented:
            raise self.failed("reply") from None
        self.breaker.answered()
        decision.rate_limit_policy = _field(response, "ratelimit-policy")
        decision.rate_limit = _field(response, "ratelimit")
        return decision

    def many(self, response: Response, count: int) -> list[Decision]:
        """The decisions in a reply to a list of so many requests."""
        document = self.judge(response)
        if not isinstance(document, list) or len(document) != count:
            raise self.failed("reply")
        try:
            decisions = [read(Decision, item) for item in document]
        except NotAsDocumented:
            raise self.failed("reply") from None
        self.breaker.answered()
        return decisions

    def refunded(self, response: Response) -> Refunded:
        """The policies in a reply to a refund."""
        return self._read(Refunded, response)

    def renewed(self, response: Response) -> Renewed:
        """The lease in a reply to a renewal."""
        return self._read(Renewed, response)

    def explanation(self, response: Response) -> Explanation:
        """The explanation in a reply."""
        return self._read(Explanation, response)

    def released(self, response: Response) -> None:
        """Whether a permit was given back does not matter: its lease ends."""
        with contextlib.suppress(InvalidRequest):
            self.judge(response, good=(200, 204))

    def _read(self, model: type[_Model], response: Response) -> _Model:
        document = self.judge(response)
        try:
            found = read(model, document)
        except NotAsDocumented:
            raise self.failed("reply") from None
        self.breaker.answered()
        return found

    def fall_back(self, request: Request, failure: Failure) -> Decision:
        """Decides without the server."""
        mode = self.options.on_failure
        if mode == "local" and self._local is not None:
            decision = self._local.decide(request, time.monotonic())
        elif mode == "open":
            decision = Decision(True, degraded="open")
        else:
            decision = Decision(False, degraded="closed", retry_after=1, retry_after_ms=1000)
        decision.source, decision.failure = "fallback", failure
        return decision

    @contextlib.contextmanager
    def told(self, operation: str, started: float) -> Iterator[None]:
        """Tells the hook of a request that is wrong in itself."""
        try:
            yield
        except InvalidRequest:
            if self.options.on_event is not None:
                self._tell(Event(operation, "failed", 0), started)
            raise

    def remembered(
        self, requests: Sequence[Request], now: float
    ) -> tuple[list[Decision | None], list[Request]]:
        """The denials of a batch that are cached, each in its place, and what is left to ask."""
        found = [self.denials.find(request, now) for request in requests]
        return found, [request for request, denial in zip(requests, found, strict=True) if denial is None]

    def joined(
        self, found: list[Decision | None], answers: Iterable[Decision], started: float
    ) -> list[Decision]:
        """All decisions of a batch in their order; tells the hook of them."""
        rest = iter(answers)
        decisions = [denial or next(rest) for denial in found]
        for decision in decisions:
            self.decided("batch", decision, started)
        return decisions

    def keep(self, requests: Iterable[Request], decisions: Iterable[Decision], asked: float) -> None:
        """Caches the denials among a batch's decisions."""
        now = time.monotonic()
        for request, decision in zip(requests, decisions, strict=True):
            self.denials.keep(request, decision, asked, now)

    def decided(self, operation: str, decision: Decision, started: float, count: int = 1) -> None:
        """Tells the hook of a decision."""
        if self.options.on_event is not None:
            outcome = "allowed" if decision.allowed else "denied"
            self._tell(
                Event(operation, outcome, 0, decision.source, decision.failure, decision.policy, count),
                started,
            )

    def ended(self, operation: str, failure: Failure | None, started: float) -> None:
        """Tells the hook of a call that decides nothing."""
        if self.options.on_event is not None:
            source = None if failure else "server"
            self._tell(Event(operation, "failed" if failure else "done", 0, source, failure), started)  # type: ignore[arg-type]

    def _tell(self, event: Event, started: float) -> None:
        # A hook that throws must not be the reason of an outage either.
        with contextlib.suppress(Exception):
            assert self.options.on_event is not None  # noqa: S101
            self.options.on_event(replace(event, duration_ms=(time.monotonic() - started) * 1000))


def _lines(headers: Callable[[], Mapping[str, str]]) -> str:
    """The header lines that a hook makes: none where it throws, or where one would be more than a field."""
    try:
        pairs = [(name.lower(), value) for name, value in headers().items()]
        good = all(_NAME.fullmatch(name) and value.isascii() and value.isprintable() for name, value in pairs)
    except Exception:
        return ""
    return "".join(f"{name}: {value}\r\n" for name, value in pairs if name not in _OWN) if good else ""


def _field(response: Response, name: str) -> str | None:
    # A structured field is ASCII: anything else is no such field.
    value = response.fields.get(name)
    return value if value is None or value.isascii() else None


def _item(request: Request) -> str:
    item: dict[str, object] = {"attributes": dict(request.attributes)}
    if request.cost != 1:
        item["cost"] = request.cost
    if request.peek:
        item["peek"] = True
    if request.limits is not None:
        item["limits"] = _stated(request.limits)
    return _encode(item)


def _stated(limits: Limits) -> dict[str, object]:
    return {name: value for name, value in asdict(limits).items() if value is not None}


def _problem(response: Response) -> Problem:
    try:
        return read(Problem, json.loads(response.body))
    except (ValueError, RecursionError, NotAsDocumented):
        return Problem("about:blank", "", response.status, f"the server answered {response.status}")
