"""What a client is made with, checked when it is made: nothing else of a client can be wrong."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from ._types import Event, Mode

MAX_DEADLINE_MS = 600_000


@dataclass(frozen=True, slots=True)
class Fallback:
    """The local limiter of `on_failure="local"`: `limit * share` for each value of `key`."""

    limit: int
    window_seconds: float
    share: float = 1.0
    key: tuple[str, ...] = ("client_id",)
    keys: int = 10_000

    def __post_init__(self) -> None:
        _check(self.limit >= 1, "fallback.limit is at least 1")
        _check(self.window_seconds > 0, "fallback.window_seconds is more than 0")
        _check(0 < self.share <= 1, "fallback.share is more than 0 and at most 1")
        _check(self.keys >= 1, "fallback.keys is at least 1")


@dataclass(frozen=True, slots=True)
class Options:
    """See the table of options in the README of all clients."""

    url: str | None = None
    token: str | None = None
    deadline_ms: float = 50
    on_failure: Mode = "open"
    fallback: Fallback | None = None
    denial_cache: int = 1_000
    denial_cache_ms: float = 60_000
    batch: bool = False
    max_connections: int = 64
    breaker_failures: int = 5
    breaker_open_ms: float = 1_000
    on_event: Callable[[Event], object] | None = None
    tls: ssl.SSLContext | None = None
    headers: Callable[[], Mapping[str, str]] | None = None

    def __post_init__(self) -> None:
        check_deadline(self.deadline_ms)
        _check(self.on_failure in ("open", "closed", "local"), "on_failure is open, closed or local")
        _check(self.on_failure != "local" or self.fallback is not None, "on_failure = local needs a fallback")
        _check(self.denial_cache >= 0, "denial_cache is at least 0")
        _check(self.denial_cache_ms >= 0, "denial_cache_ms is at least 0")
        _check(self.max_connections >= 1, "max_connections is at least 1")
        _check(self.breaker_failures >= 1, "breaker_failures is at least 1")
        _check(self.breaker_open_ms > 0, "breaker_open_ms is more than 0")
        Target.of(self)


@dataclass(frozen=True, slots=True)
class Target:
    """Where the server is, and what each request's header begins and ends with."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    prefix: str
    head: str

    @classmethod
    def of(cls, options: Options) -> Target:
        """Reads the URL and the token, or the environment's."""
        url = options.url or os.environ.get("TIDEGATE_URL") or "http://127.0.0.1:4000"
        token = options.token if options.token is not None else os.environ.get("TIDEGATE_TOKEN")
        parts = urlsplit(url)
        _check(parts.scheme in ("http", "https") and bool(parts.hostname), f"{url!r} is no http or https URL")
        host = parts.hostname or ""
        _check(
            _is_field(host) and _is_field(parts.path) and " " not in host + parts.path,
            "the URL has odd characters",
        )
        tls = parts.scheme == "https"
        port = parts.port or (443 if tls else 80)
        name = f"[{host}]" if ":" in host else host
        head = f"host: {name}:{port}\r\ncontent-type: application/json\r\n"
        if token:
            _check(_is_field(token), "the token has characters that no header may have")
            head += f"authorization: Bearer {token}\r\n"
        context = (options.tls or ssl.create_default_context()) if tls else None
        return cls(host, port, context, parts.path.rstrip("/"), head)


def check_deadline(deadline_ms: float) -> None:
    """A deadline is never endless."""
    _check(0 < deadline_ms <= MAX_DEADLINE_MS, f"deadline_ms is more than 0 and at most {MAX_DEADLINE_MS}")


def _is_field(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
