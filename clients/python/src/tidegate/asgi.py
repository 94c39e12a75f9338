"""The ASGI middleware: FastAPI, Starlette, Django's ASGI, Quart, Litestar.

```python
app.add_middleware(TidegateMiddleware, client=AsyncClient())
```

A WebSocket is asked for when it opens; a denial closes it before it is accepted.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes

from ._addresses import peer_name
from ._async_client import AsyncClient
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

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_TRY_AGAIN_LATER = 1013


def header(scope: Scope, name: str) -> str:
    """The first header field of that name, or nothing."""
    wanted = name.lower().encode("latin-1")
    return next((value.decode("latin-1") for field, value in scope["headers"] if field == wanted), "")


def peer(scope: Scope) -> str:
    """The peer's address as the server states it, of IPv6 the /64: the client's behind a trusted proxy."""
    return peer_name(_address(scope))


def _address(scope: Scope) -> str:
    return str(scope["client"][0]) if scope.get("client") else ""


def path_and_method(scope: Scope) -> dict[str, str]:
    """What is sent of a request beside its key: the path by which it is routed, escaped, and the method."""
    return {"path": routed(_path(scope)), "method": scope.get("method", "GET")}


def _path(scope: Scope) -> str:
    """The path below the server's root, escaped.

    Servers and mounts disagree on whether `path` and `raw_path` have the `root_path` before them. `raw_path`
    is taken where `path` was decoded from it: frameworks route by that.
    """
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    raw = (scope.get("raw_path") or b"").split(b"?", 1)[0]
    decoded = unquote_to_bytes(raw).decode("utf-8", "replace")
    if root and decoded == root + path:
        return _ascii(raw)
    sent = _ascii(raw) if decoded == path else escaped(path.encode("utf-8", "replace"))
    if path == root or path.startswith(root + "/"):
        return sent
    return escaped(root.encode("utf-8", "replace")) + sent


def _ascii(raw: bytes) -> str:
    """A raw path with what is no part of one escaped."""
    if raw.isascii() and b"#" not in raw:
        return raw.decode()
    return "".join(f"%{byte:02X}" if byte > 126 or byte == 35 else chr(byte) for byte in raw)


class TidegateMiddleware:
    """Asks before each request. `scope["tidegate"]` has the decision and `settle(used)`.

    `key`, `attributes`, `cost` and `skip` are given the scope; `key` and `cost` may be coroutines. Those of
    whom the key function knows nothing are one client, whose name is empty; an attribute that is None is left
    out.
    """

    def __init__(
        self,
        app: App,
        client: AsyncClient | None = None,
        *,
        key: Callable[[Scope], str | Awaitable[str | None] | None] = peer,
        attributes: Callable[[Scope], Mapping[str, str | None]] = path_and_method,
        cost: Callable[[Scope], int | Awaitable[int]] = lambda _: 1,
        skip: Callable[[Scope], bool] = lambda _: False,
        max_delay_ms: float = 1_000,
    ) -> None:
        self._app = app
        self._client = client or AsyncClient()
        self._key, self._attributes, self._cost, self._skip = key, attributes, cost, skip
        self._max_delay_ms = max_delay_ms
        self._once = Once()
        # The loop keeps no task that only it knows of.
        self._refunds: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one connection of ASGI."""
        if scope["type"] not in ("http", "websocket") or self._skip(scope):
            await self._app(scope, receive, send)
            return
        key, cost = self._key(scope), self._cost(scope)
        key = await key if inspect.isawaitable(key) else key
        cost = await cost if inspect.isawaitable(cost) else cost
        request = Request(attributes_of(self._attributes(scope), key), cost)
        origin = header(scope, "origin")
        if self._key is peer:
            self._once.forwarded(
                header(scope, "x-forwarded-for"),
                _address(scope),
                "let the server trust it (uvicorn: `--forwarded-allow-ips`)",
            )
        if response := too_long(request.attributes):
            await _answer(scope, receive, send, readable(response, origin))
            return
        try:
            decision = await self._client.allow(request.attributes, request.cost)
        except InvalidRequest as error:
            self._once.refused(error)
            decision = self._client.alone(request)
        if not decision.allowed:
            await _answer(scope, receive, send, readable(denial(decision), origin))
            return
        if seconds := delay(decision, self._max_delay_ms):
            await asyncio.sleep(seconds)
        requested = header(scope, "access-control-request-method")
        preflight = is_preflight(scope.get("method", ""), origin, requested)
        settlement = Settlement(request, decision, preflight=preflight)
        scope["tidegate"] = settlement
        added = [(name.encode(), value.encode()) for name, value in fields(decision)]

        async def send_with_fields(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.accept"):
                settlement.answered(name.decode("latin-1") for name, _ in message.get("headers", ()))
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        try:
            await self._app(scope, receive, send_with_fields)
        finally:
            # In a task: this one may have been cancelled, because the client has gone.
            if rest := settlement.rest():
                task = asyncio.create_task(self._client.refund(rest.attributes, rest.cost))
                self._refunds.add(task)
                task.add_done_callback(self._refunds.discard)


async def _answer(scope: Scope, receive: Receive, send: Send, response: tuple[int, Fields, bytes]) -> None:
    status, sent, body = response
    prefix = ""
    if scope["type"] == "websocket":
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": _TRY_AGAIN_LATER})
            return
        prefix = "websocket."
    headers = [(name.encode(), value.encode()) for name, value in sent]
    await send({"type": f"{prefix}http.response.start", "status": status, "headers": headers})
    await send({"type": f"{prefix}http.response.body", "body": body})
