"""What calls take and return, and what they raise.

The classes are those of the API's OpenAPI document, with the client's own fields beside them; a test
compares the two, so that a field that is new there has to come here. `read` is strict: a reply whose
fields have other types than the document says is no decision.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar, cast

Attributes: TypeAlias = Mapping[str, str]
Mode: TypeAlias = Literal["open", "closed", "local"]
Source: TypeAlias = Literal["server", "cache", "fallback"]
Failure: TypeAlias = Literal["timeout", "connection", "status", "reply", "breaker"]

T = TypeVar("T")


class TidegateError(Exception):
    """What any call may raise."""


class InvalidRequest(TidegateError):
    """The server calls the request wrong: its author's mistake. `problem` says where."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem


class Unavailable(TidegateError):
    """The server gave no answer to a call that has nothing to fall back to. `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"Tidegate gave no answer: {failure}")
        self.failure = failure


class NotAsDocumented(TidegateError):
    """A reply has not the form that the API documents. Calls turn it into the failure `reply`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A limit that comes with a request, and decides where no policy applies. `burst` is a bucket's."""

    limit: int
    window_seconds: int
    algorithm: str | None = None
    burst: int | None = None


@dataclass(slots=True)
class Request:
    """One question of a batch."""

    attributes: Attributes
    cost: int = 1
    peek: bool = False
    limits: Limits | None = None


@dataclass(slots=True)
class Part:
    """One policy's part in a decision."""

    policy: str
    mode: str
    allowed: bool
    limit: int
    remaining: int
    reset_ms: int
    retry_after_ms: int | None = None
    concurrent: bool | None = None


@dataclass(slots=True)
class Decision:
    """Whether a request may go ahead, and why. The last five fields are the client's own."""

    allowed: bool
    policies: list[Part] = field(default_factory=list)
    policy: str | None = None
    limit: int | None = None
    remaining: int | None = None
    retry_after: int | None = None
    retry_after_ms: int | None = None
    reset_ms: int | None = None
    delay_ms: int | None = None
    permit: str | None = None
    degraded: str | None = None
    no_match: bool | None = None
    source: Source = "server"
    failure: Failure | None = None
    rate_limit_policy: str | None = None
    rate_limit: str | None = None


@dataclass(slots=True)
class Refunded:
    """The policies that were given units back; `failure` if the server gave no answer."""

    policies: list[str] = field(default_factory=list)
    failure: Failure | None = None


@dataclass(slots=True)
class Renewed:
    """How long a permit now lasts."""

    lease_ms: int


@dataclass(slots=True)
class Lease:
    """What taking units of a policy ahead can cost, over all nodes."""

    nodes: int
    units: int
    lifetime_ms: int
    over_admission: int
    stranded: int


@dataclass(slots=True)
class PolicyExplanation:
    """One policy's part in an explanation."""

    policy: dict[str, Any]
    origin: str
    applies: bool
    because_of: str | None = None
    own_limits: dict[str, Any] | None = None
    lease: Lease | None = None
    verdict: Part | None = None


@dataclass(slots=True)
class RequestLimits:
    """The numbers that came with a request, in its explanation."""

    limits: dict[str, Any]
    decide: bool
    verdict: Part | None = None


@dataclass(slots=True)
class Explanation:
    """What would happen to a request, and why."""

    allowed: bool
    revision: int
    policies: list[PolicyExplanation]
    no_match: bool | None = None
    not_listed: int | None = None
    degraded: str | None = None
    request_limits: RequestLimits | None = None


@dataclass(slots=True)
class FieldError:
    """One mistake in what was sent."""

    pointer: str
    detail: str
    accepted: str | None = None


@dataclass(slots=True)
class Problem:
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] | None = None
    violated_policies: list[str] | None = None


@dataclass(slots=True)
class Event:
    """What a call came to. It holds no attribute's value, so no client becomes a label."""

    operation: str
    outcome: str
    duration_ms: float
    source: Source | None = None
    failure: Failure | None = None
    policy: str | None = None
    count: int = 1


@dataclass(slots=True)
class Stats:
    """How often a bound of the client was reached, and whether it asks."""

    connections_full: int
    denials_evicted: int
    fallback_evicted: int
    breaker_open: bool


# How each field is read: a type, a class of this file, or a list of either.
_Reader: TypeAlias = tuple[str, str, Any, bool, bool]
_READERS: dict[type, list[_Reader]] = {}
_OWN = frozenset({"source", "failure", "rate_limit_policy", "rate_limit"})
_KINDS: dict[str, tuple[Any, bool]] = {
    "bool": (bool, False),
    "int": (int, False),
    "str": (str, False),
    "dict[str, Any]": (dict, False),
    "list[str]": (str, True),
    "Part": (Part, False),
    "Lease": (Lease, False),
    "RequestLimits": (RequestLimits, False),
    "list[Part]": (Part, True),
    "list[PolicyExplanation]": (PolicyExplanation, True),
    "list[FieldError]": (FieldError, True),
}
_MODELS = (Part, Lease, PolicyExplanation, RequestLimits, FieldError)


def _readers(model: type) -> list[_Reader]:
    found = _READERS.get(model)
    if found is None:
        found = []
        for it in dataclasses.fields(model):
            if it.name in _OWN:
                continue
            kind, is_list = _KINDS[str(it.type).removesuffix(" | None")]
            required = it.default is dataclasses.MISSING and (
                it.default_factory is dataclasses.MISSING or model is Decision
            )
            found.append((it.name, it.name.replace("violated_", "violated-"), kind, is_list, required))
        _READERS[model] = found
    return found


def read(model: type[T], document: object) -> T:
    """Makes `model` of a JSON value; fields that it does not know are passed over.

    Raises:
        NotAsDocumented: a field is absent or of another type.

    """
    if type(document) is not dict:
        raise NotAsDocumented(f"{model.__name__} is no object")
    made: dict[str, Any] = {}
    for name, key, kind, is_list, required in _readers(model):
        value = document.get(key)
        if value is None:
            if required:
                raise NotAsDocumented(f"{model.__name__} has no {key}")
        elif is_list:
            if type(value) is not list:
                raise NotAsDocumented(f"{key} is no list")
            made[name] = [_one(kind, item, key) for item in value]
        else:
            made[name] = _one(kind, value, key)
    return model(**made)


def _one(kind: Any, value: object, key: str) -> object:
    if kind in _MODELS:
        return read(kind, value)
    # `type` and not `isinstance`: true is no number.
    if type(value) is not kind:
        raise NotAsDocumented(f"{key} is no {kind.__name__}")
    if kind is int and cast(int, value) < 0:
        raise NotAsDocumented(f"{key} is negative")
    return value
