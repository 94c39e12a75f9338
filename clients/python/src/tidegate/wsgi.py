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

from ._client import Client
from ._middleware import Settlement, attributes_of, delay, denial, escaped, fields, refusal
from ._types import InvalidRequest, Request

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


def header(environ: WSGIEnvironment, name: str) -> str:
    """The header field of that name, or nothing."""
    return str(environ.get("HTTP_" + name.upper().replace("-", "_"), ""))


def peer(environ: WSGIEnvironment) -> str:
    """The peer's address, as the connection states it."""
    return str(environ.get("REMOTE_ADDR", ""))


def path_and_method(environ: WSGIEnvironment) -> dict[str, str]:
    """What is sent of a request beside its key."""
    path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
    # WSGI hands decoded bytes over as Latin-1.
    return {"path": escaped(path.encode("latin-1")), "method": environ["REQUEST_METHOD"]}


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

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serves one request."""
        if self._skip(environ):
            return self._app(environ, start_response)
        attributes = attributes_of(self._attributes(environ), self._key(environ))
        request = Request(attributes, self._cost(environ))
        try:
            decision = self._client.allow(request.attributes, request.cost)
        except InvalidRequest as error:
            response = refusal(error)
        else:
            if decision.allowed:
                if seconds := delay(decision, self._max_delay_ms):
                    time.sleep(seconds)
                return self._serve(environ, start_response, Settlement(request, decision))
            response = denial(decision)
        status, sent, body = response
        start_response(f"{status} {http.HTTPStatus(status).phrase}", sent)
        return [body]

    def _serve(
        self, environ: WSGIEnvironment, start_response: StartResponse, settlement: Settlement
    ) -> Iterable[bytes]:
        environ["tidegate"] = settlement
        added = fields(settlement.decision)

        def start_with_fields(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
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
