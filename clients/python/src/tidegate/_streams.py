"""Connections of the async client: bounded, kept, and each call's deadline over everything it waits for.

They belong to the event loop that made them; a client that is used from another loop makes new ones.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque

from ._core import Failed
from ._http import BrokenReply, Reader, Response
from ._names import Address, Names
from ._options import Target


class _Connection(asyncio.Protocol):
    """One connection, and the call that waits for its reply."""

    def __init__(self) -> None:
        self.closed = False
        self._transport: asyncio.Transport | None = None
        self._reader = Reader()
        self._reply: asyncio.Future[Response] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._transport = transport
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        reply = self._reply
        if reply is None or reply.done():
            # Nobody asked for it.
            self.close()
            return
        try:
            response = self._reader.feed(data)
        except BrokenReply as error:
            reply.set_exception(error)
            self.close()
            return
        if response is not None:
            reply.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        reply = self._reply
        if reply is None or reply.done():
            return
        response = self._reader.end() if exc is None else None
        if response is not None:
            reply.set_result(response)
        else:
            reply.set_exception(exc or BrokenReply("the connection ended early"))

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    async def exchange(self, request: bytes) -> Response:
        assert self._transport is not None  # noqa: S101
        self._reader = Reader()
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._reply


class Streams:
    """At most so many connections; the one used last is used next."""

    def __init__(self, target: Target, most: int) -> None:
        self._target = target
        self._most = most
        # Calls that found every connection in use until their deadline.
        self.full = 0
        self._names = Names(target.host, target.port)
        self._tls = target.tls
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0
        self._idle: deque[_Connection] = deque()
        self._places = asyncio.Semaphore(most)

    async def call(self, request: bytes, deadline: float) -> Response:
        """Sends a request and reads its response; `deadline` is a time of the loop.

        Raises:
            Failed: no response, or not in time.

        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop or self._process != os.getpid():
            self._loop, self._process = loop, os.getpid()
            self._names = Names(self._target.host, self._target.port)
            self._idle, self._places = deque(), asyncio.Semaphore(self._most)
        places, entered = self._places, False
        try:
            async with asyncio.timeout_at(deadline):
                await places.acquire()
                entered = True
                return await self._exchange(request, deadline)
        except TimeoutError:
            self.full += not entered
            raise Failed("timeout", of_server=entered) from None
        except BrokenReply:
            raise Failed("reply") from None
        except OSError:
            raise Failed("connection") from None
        finally:
            if entered:
                places.release()

    def close(self) -> None:
        """Closes what is kept."""
        while self._idle:
            self._idle.pop().close()

    async def _exchange(self, request: bytes, deadline: float) -> Response:
        idle = self._idle
        connection = self._kept(idle) or await self._connect(deadline)
        keep = False
        try:
            response = await connection.exchange(request)
            keep = response.keep
            return response
        finally:
            if keep and not connection.closed:
                idle.append(connection)
            else:
                connection.close()

    def _kept(self, idle: deque[_Connection]) -> _Connection | None:
        while idle:
            connection = idle.pop()
            if not connection.closed:
                return connection
        return None

    async def _connect(self, deadline: float) -> _Connection:
        found = self._names.find()
        addresses = found if isinstance(found, list) else await asyncio.shield(asyncio.wrap_future(found))
        loop = asyncio.get_running_loop()
        failure: OSError = TimeoutError()
        for number, address in enumerate(addresses):
            # Each address has its share of what is left, so that a dead one does not take it all.
            share = (deadline - loop.time()) / (len(addresses) - number)
            try:
                async with asyncio.timeout(share):
                    return await self._connect_to(address)
            except OSError as error:
                failure = error
        raise failure

    async def _connect_to(self, address: Address) -> _Connection:
        name = self._target.host if self._tls else None
        host, port = address[1]
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            _Connection, host, port, ssl=self._tls, server_hostname=name
        )
        self._names.prefer(address)
        return connection
