"""The real server, and servers that misbehave, for the tests."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

ROOT = pathlib.Path(__file__).resolve().parents[3]
CLIENTS = ROOT / "clients"
BINARY = os.environ.get("TIDEGATE_BIN") or str(ROOT / "target/debug/tidegate")
CONFORMANCE: dict[str, Any] = json.loads((CLIENTS / "conformance.json").read_text())
TOKEN: str = CONFORMANCE["options"]["token"]
# How long what has to come may take on a machine that stops threads for a second.
PATIENCE = 20.0

T = TypeVar("T")


def until(condition: Callable[[], T]) -> T:
    """Calls until the result is true."""
    end = time.monotonic() + PATIENCE
    while True:
        result = condition()
        if result or time.monotonic() > end:
            assert result, "it did not come true in time"
            return result


class Server:
    """`tidegate serve` on free ports, which can be frozen, killed and started again."""

    def __init__(
        self, config: pathlib.Path = CLIENTS / "conformance.toml", log: pathlib.Path | None = None
    ) -> None:
        self._config = config
        # Each request is a line there.
        self._log = log
        self._scratch = tempfile.TemporaryDirectory()
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        free = "127.0.0.1:0"
        log = self._log.open("a") if self._log else None
        self._process = subprocess.Popen(
            [
                *(BINARY, "serve", "--config", str(self._config), "--data-dir", f"{self._scratch.name}/data"),
                *("--http-listen", f"127.0.0.1:{self.port}", "--grpc-listen", free, "--resp-listen", free),
                *("--intake-listen", "off", "--log-level", "debug" if log else "error"),
            ],
            stdout=subprocess.PIPE,
            stderr=log or subprocess.DEVNULL,
            text=True,
        )
        if log:
            log.close()
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r"decision API +https?://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        raise AssertionError("the server did not start")

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        # The signal is delivered when every thread has stopped.
        until(
            lambda: (
                pathlib.Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
                == "T"
            )
        )

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._scratch.cleanup()


@contextlib.contextmanager
def server(
    config: pathlib.Path = CLIENTS / "conformance.toml", log: pathlib.Path | None = None
) -> Iterator[Server]:
    """A server for a block."""
    started = Server(config, log)
    try:
        yield started
    finally:
        started.close()


class Faulty:
    """A server that misbehaves, until it is healed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        self.url = "http://" + process.stdout.readline().split()[1]

    def heal(self) -> None:
        self._process.send_signal(signal.SIGUSR1)


@contextlib.contextmanager
def faulty(fault: str) -> Iterator[Faulty]:
    command = [sys.executable, str(CLIENTS / "faulty.py"), fault]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Faulty(process)
        finally:
            process.kill()


@contextlib.contextmanager
def nothing() -> Iterator[str]:
    """The URL of a port that is taken, and at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def text(value: Any) -> Any:
    """A value of conformance.json with its repeated texts written out."""
    if isinstance(value, dict) and "repeat" in value:
        return str(value["repeat"]) * int(value["times"]) + str(value.get("then", ""))
    if isinstance(value, dict):
        return {name: text(item) for name, item in value.items()}
    return value


def differs(expected: Any, found: Any, at: str = "") -> str:
    """Where a result is not as expected; empty if it is."""
    if isinstance(expected, dict):
        return _differs_from_rule(expected, found, at)
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return f"{at}: {found!r} is no list of {len(expected)}"
        pairs = enumerate(zip(expected, found, strict=True))
        return next(filter(None, (differs(one, other, f"{at}[{n}]") for n, (one, other) in pairs)), "")
    same = type(expected) is type(found) and expected == found
    return "" if same else f"{at}: {found!r}, not {expected!r}"


def _differs_from_rule(expected: dict[str, Any], found: Any, at: str) -> str:
    if "absent" in expected:
        return "" if found is None else f"{at}: {found!r} is there"
    if "present" in expected:
        return "" if found is not None else f"{at}: is absent"
    if "one_of" in expected:
        return "" if found in expected["one_of"] else f"{at}: {found!r} is none of {expected['one_of']}"
    if "from" in expected or "to" in expected:
        low, high = expected.get("from", float("-inf")), expected.get("to", float("inf"))
        return (
            "" if found is not None and low <= int(found) <= high else f"{at}: {found!r} is not in {expected}"
        )
    if not isinstance(found, dict):
        return f"{at}: {found!r} is no object"
    names = expected.items()
    return next(filter(None, (differs(item, found.get(name), f"{at}.{name}") for name, item in names)), "")
