"""A storage for `limits`, and so for slowapi and flask-limiter. Needs `tidegate[limits]`.

```python
import tidegate.limits_storage  # registers the scheme
limiter = Limiter(key_func=get_remote_address, storage_uri="tidegate://127.0.0.1:4000")
```

The numbers of the application go with each question, and hold where no policy applies. [`policies`][] writes
the policy by which the server takes a limit over, to change it without the application.
"""

from __future__ import annotations

import logging
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

from limits import RateLimitItem, parse_many
from limits.storage import MovingWindowSupport, Storage

from ._client import Client
from ._middleware import bounded
from ._types import Decision, Limits, TidegateError

_log = logging.getLogger("tidegate")
# What the server takes: a window of 90 days, a billion units, of which a log keeps 4,096.
_LONGEST, _MOST, _MOST_IN_LOG = 7_776_000, 1_000_000_000, 4_096
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "month": 2_592_000, "year": 31_104_000}


def policies(text: str, *, resource: str = "limits", strategy: str = "fixed-window") -> str:
    """The policies for limits written as `limits` writes them, for the file of the server.

    `policies("5/minute; 100/hour")` makes two.
    """
    algorithm = {"fixed-window": "fixed_window", "moving-window": "sliding_log"}[strategy]
    return "\n".join(_policy(item, resource, algorithm) for item in parse_many(text))


def _policy(item: RateLimitItem, resource: str, algorithm: str) -> str:
    seconds = item.get_expiry()
    return (
        "[[policy]]\n"
        f'name = "{resource}-{item.amount}-per-{seconds}s"\n'
        f'algorithm = "{algorithm}"\n'
        f"limit = {item.amount}\n"
        f"window_seconds = {seconds}\n"
        'key = ["client_id"]\n'
        f'match = {{ resource = "{resource}", limit = "{item.amount}/{seconds}" }}\n'
    )


class TidegateStorage(Storage, MovingWindowSupport):
    """Counts in Tidegate: the strategies `fixed-window` and `moving-window`.

    The URI is `tidegate://host:port` or `tidegate+https://host:port`, with `?resource=NAME` to tell
    applications apart. Further options are those of [`Client`][].
    """

    STORAGE_SCHEME = ["tidegate", "tidegate+https"]  # noqa: RUF012

    def __init__(
        self, uri: str = "tidegate://127.0.0.1:4000", wrap_exceptions: bool = False, **options: Any
    ) -> None:
        super().__init__(uri, wrap_exceptions)
        parts = urlsplit(uri)
        scheme = "https" if parts.scheme.endswith("https") else "http"
        self._resource = parse_qs(parts.query).get("resource", ["limits"])[0]
        self._client = Client(f"{scheme}://{parts.netloc}{parts.path}", **options)
        self._unmatched: set[str] = set()
        # The strategy that asked last: `clear` and `get_expiry` are both's.
        self._moving = False

    @property
    def base_exceptions(self) -> type[Exception]:
        """What a call may raise."""
        return TidegateError

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Takes units; more than the limit if they were denied."""
        self._moving = False
        limit = _limit(key)
        decision = self._ask(key, limit, expiry, amount)
        return _used(decision, limit) if decision.allowed else limit + 1

    def get(self, key: str) -> int:
        """Units that are used."""
        self._moving = False
        limit = _limit(key)
        return _used(self._ask(key, limit, _window(key), 0), limit)

    def get_expiry(self, key: str) -> float:
        """When all of the limit is back, in seconds since 1970."""
        return time.time() + (self._ask(key, _limit(key), _window(key), 0).reset_ms or 0) / 1000

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Takes units, if they fit."""
        self._moving = True
        return self._ask(key, limit, expiry, amount).allowed

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """When the window began, and the units that are used in it."""
        self._moving = True
        decision = self._ask(key, limit, expiry, 0)
        return time.time() + (decision.reset_ms or 0) / 1000 - expiry, _used(decision, limit)

    def check(self) -> bool:
        """Whether the server answers."""
        return self._client.allow({"resource": self._resource}, 0).source == "server"

    def reset(self) -> int | None:
        """Not possible: other applications count there too."""
        raise NotImplementedError

    def clear(self, key: str) -> None:
        """Gives back what is used under a key."""
        limit, window = _limit(key), _window(key)
        used = _used(self._ask(key, limit, window, 0), limit)
        if used:
            limits = self._limits(limit, window)
            self._client.refund(self._attributes(key, limit, window), used, limits=limits)

    def _attributes(self, key: str, limit: int, window: int) -> dict[str, str]:
        return {"client_id": bounded(key), "resource": self._resource, "limit": f"{limit}/{window}"}

    def _limits(self, limit: int, window: int) -> Limits | None:
        if window > _LONGEST or limit > _MOST:
            return None
        moving = "sliding_log" if limit <= _MOST_IN_LOG else "sliding_counter"
        return Limits(limit, window, moving if self._moving else "fixed_window")

    def _ask(self, key: str, limit: int, window: int, cost: int) -> Decision:
        attributes = self._attributes(key, limit, window)
        decision = self._client.allow(attributes, cost, limits=self._limits(limit, window))
        if decision.no_match and attributes["limit"] not in self._unmatched:
            self._unmatched.add(attributes["limit"])
            _log.warning(
                "no policy of Tidegate applies to resource=%s limit=%s, and the server takes none like it "
                "from an application: on_no_match decides; add what tidegate.limits_storage.policies writes",
                self._resource,
                attributes["limit"],
            )
        return decision


def _used(decision: Decision, limit: int) -> int:
    if decision.limit is None or decision.remaining is None:
        return 0
    return min(limit, max(0, decision.limit - decision.remaining))


def _limit(key: str) -> int:
    """A key ends in amount, multiples and granularity: `LIMITER/127.0.0.1/5/1/minute`."""
    return int(key.rsplit("/", 3)[1])


def _window(key: str) -> int:
    _, multiples, granularity = key.rsplit("/", 2)
    return int(multiples) * _SECONDS[granularity]
