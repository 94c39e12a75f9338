#!/usr/bin/env python3
"""A server that misbehaves as a fault of conformance.json says, for what the real server never does.

    python3 clients/faulty.py NAME     prints `listening 127.0.0.1:PORT`, then serves until it is killed

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
import socket
import sys
import threading
import time


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


def send(connection: socket.socket, reply: bytes, fault: dict) -> None:
    """Sends a reply as the fault says."""
    text, times = fault.get("fill", ["", 0])
    reply += text.encode() * times
    time.sleep(fault.get("wait_ms", 0) / 1000)
    if "drip_ms" in fault:
        for byte in reply:
            connection.sendall(bytes([byte]))
            time.sleep(fault["drip_ms"] / 1000)
    else:
        connection.sendall(reply)
    while fault.get("endless"):
        connection.sendall(b"x" * 65536)


def serve(connection: socket.socket, fault: dict, turn) -> None:
    """One connection."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = bytearray()
    with connection:
        try:
            while request_of(connection, buffer):
                reply = turn()
                send(connection, reply, fault)
                if fault.get("close") or b"content-length" not in reply:
                    return
        except OSError:
            return  # The client has gone: that is what most faults lead to.


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
    print(f"listening 127.0.0.1:{listener.getsockname()[1]}", flush=True)
    if fault.get("full"):
        threading.Event().wait()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, fault, turn), daemon=True).start()


main()
