"""Reading an HTTP/1.1 response, without a socket: bytes in, a response out.

The sync and the async client read with the same code, and both can hold one deadline over all of
it, which `http.client` cannot: its time limit is for each read. Follows RFC 9112; what is doubtful
(two lengths, a length beside chunks) is an error, not a guess.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_HEADER = 64 * 1024
MAX_BODY = 4 * 1024 * 1024


class BrokenReply(Exception):
    """The bytes are no HTTP response, or one beyond the bounds."""


@dataclass(slots=True)
class Response:
    """A whole response. Field names are in lower case."""

    status: int
    fields: dict[str, str]
    body: bytes
    keep: bool


class Reader:
    """Reads one response. `feed` returns it once it is whole, `end` if the connection's end does."""

    __slots__ = ("_buffer", "_fields", "_keep", "_length", "_status")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._fields: dict[str, str] | None = None
        self._status = 0
        self._keep = False
        # Of the body: its length, -1 for chunks, -2 for until the end.
        self._length = 0

    def feed(self, data: bytes) -> Response | None:
        """Takes what has arrived."""
        buffer = self._buffer
        buffer += data
        while self._fields is None:
            end = buffer.find(b"\r\n\r\n")
            if end > MAX_HEADER or (end < 0 and len(buffer) > MAX_HEADER):
                raise BrokenReply("the header is too long")
            if end < 0:
                if len(buffer) >= 5 and not buffer.startswith(b"HTTP/"):
                    raise BrokenReply("this is no HTTP")
                return None
            self._head(bytes(buffer[:end]))
            del buffer[: end + 4]
        if self._length == -1:
            return self._chunks()
        if len(buffer) > MAX_BODY:
            raise BrokenReply("the body is too long")
        if self._length == -2 or len(buffer) < self._length:
            return None
        if len(buffer) > self._length:
            self._keep = False
        return self._response(bytes(buffer[: self._length]))

    def end(self) -> Response | None:
        """The connection has ended."""
        return (
            self._response(bytes(self._buffer)) if self._fields is not None and self._length == -2 else None
        )

    def _response(self, body: bytes) -> Response:
        return Response(self._status, self._fields or {}, body, self._keep)

    def _head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        if not first.startswith(("HTTP/1.1 ", "HTTP/1.0 ")) or not first[9:12].isdecimal():
            raise BrokenReply("this is no HTTP/1.1")
        status = int(first[9:12])
        fields: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise BrokenReply("a header line is broken")
            name, value = name.lower(), value.strip(" \t")
            if any(char < " " and char != "\t" for char in value):
                # It could end up in a response of the application, and begin a field of its own there.
                raise BrokenReply("a header line has control characters")
            if name in fields:
                if name in ("content-length", "transfer-encoding"):
                    raise BrokenReply(f"{name} is given twice")
                value = f"{fields[name]}, {value}"
            fields[name] = value
        if 100 <= status < 200:
            if status == 101:
                raise BrokenReply("nobody asked for another protocol")
            return
        self._keep = first.startswith("HTTP/1.1") and "close" not in fields.get("connection", "").lower()
        self._length = _length(status, fields)
        self._keep = self._keep and self._length != -2
        self._status, self._fields = status, fields

    def _chunks(self) -> Response | None:
        body, at, buffer = bytearray(), 0, self._buffer
        if len(buffer) > 2 * MAX_BODY:
            raise BrokenReply("the body is too long")
        while (end := buffer.find(b"\r\n", at)) >= 0:
            digits = bytes(buffer[at:end]).split(b";")[0].strip()
            if not digits or len(digits) > 8 or not all(c in b"0123456789abcdefABCDEF" for c in digits):
                raise BrokenReply("a chunk's length is broken")
            size = int(digits, 16)
            if size == 0:
                # Trailers are passed over; the connection is given up rather than read on.
                self._keep = False
                return self._response(bytes(body))
            start = end + 2
            if len(buffer) < start + size + 2:
                return None
            if buffer[start + size : start + size + 2] != b"\r\n":
                raise BrokenReply("a chunk does not end where it should")
            body += buffer[start : start + size]
            at = start + size + 2
        return None


def _length(status: int, fields: dict[str, str]) -> int:
    if status in (204, 304):
        return 0
    coding, length = fields.get("transfer-encoding"), fields.get("content-length")
    if coding is not None:
        if coding.lower() != "chunked" or length is not None:
            raise BrokenReply("the body's length is doubtful")
        return -1
    if length is None:
        return -2
    if not length.isdecimal() or not length.isascii() or len(length) > 10 or int(length) > MAX_BODY:
        raise BrokenReply("the body is too long")
    return int(length)
