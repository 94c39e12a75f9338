"""Connections of the sync client: bounded, kept, and each call's deadline over everything it waits for.

A kept connection is looked at before it is used: one that
the server has closed meanwhile is dropped, so that nothing has to be asked twice.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections import deque

from ._core import Failed
from ._forks import renew_after_fork
from ._http import BrokenReply, Reader, Response
from ._names import Address, Names
from ._options import Target


class Pool:
    """At most so many connections; the one used last is used next."""

    def __init__(self, target: Target, most: int) -> None:
        self._target = target
        self._most = most
        self._names = Names(target.host, target.port)
        self._tls = target.tls
        self._closed = False
        # Calls that found every connection in use until their deadline; counted under the lock.
        self.full = 0
        self.after_fork()
        renew_after_fork(self)
        self._forget()

    def after_fork(self) -> None:
        """Makes a lock that nobody holds."""
        self._lock = threading.Lock()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._places = threading.BoundedSemaphore(self._most)
        self._idle: deque[socket.socket] = deque()

    def call(self, request: bytes, deadline: float) -> Response:
        """Sends a request and reads its response.

        Raises:
            Failed: no response, or not in time.

        """
        if os.getpid() != self._process:
            # After a fork both processes would write to the same connections: these stay the parent's.
            self._names = Names(self._target.host, self._target.port)
            self._forget()
        places = self._places
        if not places.acquire(blocking=False) and not places.acquire(
            timeout=max(0.0, deadline - time.monotonic())
        ):
            with self._lock:
                self.full += 1
            raise Failed("timeout", of_server=False)
        try:
            return self._exchange(request, deadline)
        except TimeoutError:
            raise Failed("timeout") from None
        except BrokenReply:
            raise Failed("reply") from None
        except OSError:
            raise Failed("connection") from None
        finally:
            places.release()

    def close(self) -> None:
        """Closes what is kept; what is in use is closed by its call."""
        self._closed = True
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()

    def _exchange(self, request: bytes, deadline: float) -> Response:
        connection = self._kept() or self._connect(deadline)
        keep = False
        try:
            connection.settimeout(_left(deadline))
            connection.sendall(request)
            reader = Reader()
            while True:
                connection.settimeout(_left(deadline))
                data = connection.recv(65536)
                response = reader.feed(data) if data else reader.end()
                if response is not None:
                    keep = response.keep and bool(data)
                    return response
                if not data:
                    raise BrokenReply("the connection ended early")
        finally:
            if keep and not self._closed:
                self._idle.append(connection)
            else:
                connection.close()

    def _kept(self) -> socket.socket | None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            connection.setblocking(False)
            try:
                # Of the socket itself, also beneath TLS: whatever is there was not asked for.
                socket.socket.recv(connection, 1, socket.MSG_PEEK)
            except BlockingIOError:
                return connection
            except OSError:
                pass
            connection.close()

    def _connect(self, deadline: float) -> socket.socket:
        found = self._names.find()
        addresses = found if isinstance(found, list) else found.result(_left(deadline))
        failure: OSError = TimeoutError()
        for number, address in enumerate(addresses):
            # Each address has its share of what is left, so that a dead one does not take it all.
            share = _left(deadline) / (len(addresses) - number)
            try:
                connection = self._connect_to(address, share)
            except OSError as error:
                failure = error
                continue
            self._names.prefer(address)
            return connection
        raise failure

    def _connect_to(self, address: Address, seconds: float) -> socket.socket:
        family, place = address
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            until = time.monotonic() + seconds
            connection.settimeout(seconds)
            connection.connect(place)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return connection
            connection.settimeout(_left(until))
            return self._tls.wrap_socket(connection, server_hostname=self._target.host)
        except BaseException:
            connection.close()
            raise


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
