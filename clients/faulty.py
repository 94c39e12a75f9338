#!/usr/bin/env python3
"""A server that misbehaves as a fault of conformance.json says, for what the real server never does.

    python3 clients/faulty.py NAME     prints `listening 127.0.0.1:PORT`, then serves until it is killed

At SIGUSR1 it heals: what it was sending ends with its connection, and from then on each request is answered at once with
`{"allowed": true, "policies": []}`, on kept connections too.

A fault has one of:
  replies   the bytes that each request is answered with, in turn; the last one again and again.
            `{n}` in a reply is the number of this request, counted from 1 over all connections.
            A reply without `content-length` ends with its connection.
  full      true: nobody accepts, and the queue of waiting connections is full
and, with `replies`:
  wait_ms   waits so long before it replies
  fill      [text, times]: the reply goes on with so many times this text
  drip_ms   sends a byte, waits so long, sends the next
  endless   true: after the reply the letter x without end
  close     true: closes each connection after its first reply, without having said so
"""

import json
import pathlib
import signal
import socket
import sys
import threading

RIGHT = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 30\r\n\r\n"
    b'{"allowed":true,"policies":[]}'
)
healed = threading.Event()


def request_of(connection: socket.socket, buffer: bytearray) -> bool:
    """Reads one request whole; false at the connection's end."""
    while True:
        head, separator, rest = bytes(buffer).partition(b"\r\n\r\n")
        if separator:
            length = 0
            for line in head.split(b"\r\n")[1:]:
                name, _, value = line.partition(b":")
                if name.strip().lower() == b"content-length":
                    length = int(value)
            if len(rest) >= length:
                buffer[:] = rest[length:]
                return True
        piece = connection.recv(65536)
        if not piece:
            return False
        buffer += piece


def send(connection: socket.socket, reply: bytes, fault: dict) -> bool:
    """Sends a reply as the fault says; false if it healed meanwhile, and the reply is not whole."""
    text, times = fault.get("fill", ["", 0])
    reply += text.encode() * times
    if healed.wait(fault.get("wait_ms", 0) / 1000):
        return False
    if "drip_ms" in fault:
        for byte in reply:
            connection.sendall(bytes([byte]))
            if healed.wait(fault["drip_ms"] / 1000):
                return False
    else:
        connection.sendall(reply)
    while fault.get("endless") and not healed.is_set():
        connection.sendall(b"x" * 65536)
    return not fault.get("endless")


def serve(connection: socket.socket, fault: dict, turn) -> None:
    """One connection."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = bytearray()
    with connection:
        try:
            while request_of(connection, buffer):
                if healed.is_set():
                    connection.sendall(RIGHT)
                    continue
                reply = turn()
                whole = send(connection, reply, fault)
                if not whole or fault.get("close") or b"content-length" not in reply:
                    return
        except OSError:
            return  # The client has gone: that is what most faults lead to.


def accept(listener: socket.socket, fault: dict, turn) -> None:
    """Serves each connection on a thread of its own."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, fault, turn), daemon=True).start()


def main() -> None:
    """Starts the fault that the command line names."""
    document = json.loads((pathlib.Path(__file__).parent / "conformance.json").read_text())
    fault = document["faults"][sys.argv[1]]
    lock, count = threading.Lock(), [0]

    def turn() -> bytes:
        with lock:
            number = count[0]
            count[0] += 1
        replies = fault["replies"]
        reply = replies[min(number, len(replies) - 1)]
        return reply.replace("{n}", str(number + 1)).encode("latin-1")

    listener = socket.create_server(("127.0.0.1", 0), backlog=0 if fault.get("full") else 128)
    waiting = []
    if fault.get("full"):
        # Connects until the kernel takes no more: the next one waits for an answer to its SYN.
        while True:
            try:
                waiting.append(socket.create_connection(listener.getsockname(), timeout=0.2))
            except TimeoutError:
                break
    # Blocked here and so in every thread: the main thread waits for it below.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    print(f"listening 127.0.0.1:{listener.getsockname()[1]}", flush=True)
    accepts = threading.Thread(target=accept, args=(listener, fault, turn), daemon=True)
    if not fault.get("full"):
        accepts.start()
    signal.sigwait({signal.SIGUSR1})
    healed.set()
    for one in waiting:
        one.close()
    if fault.get("full"):
        accepts.start()
    accepts.join()


main()
