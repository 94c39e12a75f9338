"""Looking a host up with a deadline, which the system's resolver has not.

It is asked by a thread of its own, one at a time. The last addresses are good until newer ones are known.
"""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import Future
from typing import TypeAlias

_GOOD_FOR = 30.0

Address: TypeAlias = tuple[socket.AddressFamily, tuple[str, int]]


class Names:
    """The addresses of one host, the one that answered last first."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._lock = threading.Lock()
        self._known: list[Address] = []
        self._until = 0.0
        self._looking: Future[list[Address]] | None = None

    def find(self) -> list[Address] | Future[list[Address]]:
        """The addresses, or what will have them."""
        now = time.monotonic()
        with self._lock:
            if self._known and now < self._until:
                return self._known
            looking = self._looking
            if looking is None:
                looking = self._looking = Future()
                threading.Thread(
                    target=self._look, args=(looking,), name="tidegate-names", daemon=True
                ).start()
            return self._known or looking

    def prefer(self, address: Address) -> None:
        """Puts the address that has answered first."""
        with self._lock:
            if address in self._known and self._known[0] != address:
                self._known = [address, *(it for it in self._known if it != address)]

    def _look(self, looking: Future[list[Address]]) -> None:
        found: list[Address] = []
        failure: OSError | None = None
        try:
            for family, _, _, _, place in socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM):
                found.append((family, (str(place[0]), int(place[1]))))
        except OSError as error:
            failure = error
        except UnicodeError:
            failure = OSError(f"{self._host} can be no host")
        with self._lock:
            if found:
                self._known, self._until = found, time.monotonic() + _GOOD_FOR
            self._looking = None
        if failure is None:
            looking.set_result(found)
        else:
            looking.set_exception(failure)
