"""The WSGI middleware: Flask, Django, Pyramid, Bottle.

```python
app.wsgi_app = TidegateMiddleware(app.wsgi_app, client=Client())
```
"""

from __future__ import annotations

import http
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ._addresses import peer_name
from ._client import Client
from ._middleware import (
    Fields,
    Once,
    Settlement,
    attributes_of,
    delay,
    denial,
    escaped,
    fields,
    is_preflight,
    readable,
    routed,
    too_long,
)
from ._types import InvalidRequest, Request

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


def header(environ: WSGIEnvironment, name: str) -> str:
    """The header field of that name, or nothing."""
    return str(environ.get("HTTP_" + name.upper().replace("-", "_"), ""))


def peer(environ: WSGIEnvironment) -> str:
    """The peer's address as the server or `ProxyFix` states it, of IPv6 the /64."""
    return peer_name(str(environ.get("REMOTE_ADDR", "")))


def path_and_method(environ: WSGIEnvironment) -> dict[str, str]:
    """What is sent of a request beside its key: the path by which it is routed, and the method."""
    # WSGI hands decoded bytes over as Latin-1.
    prefix, path = (
        escaped(environ.get(name, "").encode("latin-1", "replace")) for name in ("SCRIPT_NAME", "PATH_INFO")
    )
    return {"path": prefix + routed(path), "method": environ["REQUEST_METHOD"]}


class TidegateMiddleware:
    """Asks before each request. `environ["tidegate"]` has the decision and `settle(used)`.

    `key`, `attributes`, `cost` and `skip` are given the environ. Those of whom the key function knows nothing
    are one client, whose name is empty; an attribute that is None is left out.
    """

    def __init__(
        self,
        app: WSGIApplication,
        client: Client | None = None,
        *,
        key: Callable[[WSGIEnvironment], str | None] = peer,
        attributes: Callable[[WSGIEnvironment], Mapping[str, str | None]] = path_and_method,
        cost: Callable[[WSGIEnvironment], int] = lambda _: 1,
        skip: Callable[[WSGIEnvironment], bool] = lambda _: False,
        max_delay_ms: float = 1_000,
    ) -> None:
        self._app = app
        self._client = client or Client()
        self._key, self._attributes, self._cost, self._skip = key, attributes, cost, skip
        self._max_delay_ms = max_delay_ms
        self._once = Once()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serves one request."""
        if self._skip(environ):
            return self._app(environ, start_response)
        attributes = attributes_of(self._attributes(environ), self._key(environ))
        request = Request(attributes, self._cost(environ))
        response = too_long(attributes) or self._ask(environ, request)
        if isinstance(response, Settlement):
            return self._serve(environ, start_response, response)
        status, sent, body = readable(response, header(environ, "origin"))
        start_response(f"{status} {http.HTTPStatus(status).phrase}", sent)
        return [body]

    def _ask(self, environ: WSGIEnvironment, request: Request) -> Settlement | tuple[int, Fields, bytes]:
        if self._key is peer:
            self._once.forwarded(
                header(environ, "x-forwarded-for"),
                str(environ.get("REMOTE_ADDR", "")),
                "wrap the middleware in werkzeug's `ProxyFix`",
            )
        try:
            decision = self._client.allow(request.attributes, request.cost)
        except InvalidRequest as error:
            self._once.refused(error)
            decision = self._client.alone(request)
        if not decision.allowed:
            return denial(decision)
        if seconds := delay(decision, self._max_delay_ms):
            time.sleep(seconds)
        requested = header(environ, "access-control-request-method")
        preflight = is_preflight(environ["REQUEST_METHOD"], header(environ, "origin"), requested)
        return Settlement(request, decision, preflight=preflight)

    def _serve(
        self, environ: WSGIEnvironment, start_response: StartResponse, settlement: Settlement
    ) -> Iterable[bytes]:
        environ["tidegate"] = settlement
        added = fields(settlement.decision)

        def start_with_fields(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            settlement.answered(name for name, _ in headers)
            return start_response(status, [*headers, *added], exc_info)

        try:
            return _Body(self._app(environ, start_with_fields), lambda: self._refund(settlement))
        except BaseException:
            self._refund(settlement)
            raise

    def _refund(self, settlement: Settlement) -> None:
        if rest := settlement.rest():
            self._client.refund(rest.attributes, rest.cost)


class _Body:
    """The application's response, and what is done when it has been sent or given up."""

    def __init__(self, pieces: Iterable[bytes], after: Callable[[], None]) -> None:
        self._pieces = pieces
        self._after = after

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)

    def close(self) -> None:
        try:
            close = getattr(self._pieces, "close", None)
            if close is not None:
                close()
        finally:
            self._after()
