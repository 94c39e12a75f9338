"""Pacing for `httpx`: `httpx.Client(transport=PacedTransport())`. Needs `tidegate[httpx]`."""

from __future__ import annotations

import asyncio
import time

import httpx

from .pacing import Pacer


class PacedTransport(httpx.BaseTransport):
    """Waits before a request as the last responses asked, and repeats safe ones that were denied."""

    def __init__(self, transport: httpx.BaseTransport | None = None, pacer: Pacer | None = None) -> None:
        self._transport = transport or httpx.HTTPTransport()
        self._pacer = pacer or Pacer()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request when it is time."""
        origin, has_body = _origin(request), _has_body(request)
        done = 0
        while True:
            time.sleep(self._pacer.before(origin))
            response = self._transport.handle_request(request)
            self._pacer.after(origin, response.status_code, response.headers)
            if not self._pacer.repeats(
                request.method, response.status_code, response.headers, done, has_body=has_body
            ):
                return response
            response.close()
            done += 1

    def close(self) -> None:
        """Closes the transport beneath."""
        self._transport.close()


class AsyncPacedTransport(httpx.AsyncBaseTransport):
    """The same for `httpx.AsyncClient`."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None, pacer: Pacer | None = None) -> None:
        self._transport = transport or httpx.AsyncHTTPTransport()
        self._pacer = pacer or Pacer()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request when it is time."""
        origin, has_body = _origin(request), _has_body(request)
        done = 0
        while True:
            await asyncio.sleep(self._pacer.before(origin))
            response = await self._transport.handle_async_request(request)
            self._pacer.after(origin, response.status_code, response.headers)
            if not self._pacer.repeats(
                request.method, response.status_code, response.headers, done, has_body=has_body
            ):
                return response
            await response.aclose()
            done += 1

    async def aclose(self) -> None:
        """Closes the transport beneath."""
        await self._transport.aclose()


def _origin(request: httpx.Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc.decode('ascii')}"


def _has_body(request: httpx.Request) -> bool:
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"
