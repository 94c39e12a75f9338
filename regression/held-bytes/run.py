#!/usr/bin/env python3
"""What clients of HTTP/2 can make the server hold (case.toml says what the rows are).

    regression/held-bytes/run.py [--seconds 60] [--tidegate PROGRAM]

The frames are written here by hand: a client library would not send what is sent here.
"""

import argparse
import pathlib
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
MAX_FRAME = 16384
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal(name_index, value):
    """A header field that is not to be indexed, its name from the static table (RFC 7541, 6.2.2)."""
    return bytes((name_index, len(value))) + value


def head(method, path):
    fields = b"\x82" if method == "GET" else b"\x83"
    return fields + b"\x86" + literal(4, path) + literal(1, b"localhost")


class Client:
    """A connection that acknowledges settings and answers pings, and takes nothing else."""

    def __init__(self, address, window):
        self.socket = socket.create_connection(address)
        self.socket.setblocking(False)
        self.input = b""
        self.output = PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window))
        self.sent = self.streams = 0
        self.is_open = True
        # What may be sent of bodies: on the connection, on each stream; and what is left of each.
        self.window, self.initial, self.windows, self.bodies = 65535, 65535, {}, {}

    def ask(self, method, path, body_bytes=0):
        stream = 2 * self.streams + 1
        self.streams += 1
        end = 0 if body_bytes else END_STREAM
        self.output += frame(HEADERS, END_HEADERS | end, stream, head(method, path))
        self.windows[stream], self.bodies[stream] = 0, body_bytes

    def send_bodies(self):
        """As much of the bodies as the server lets come, and never their last byte."""
        for stream, left in self.bodies.items():
            count = min(left - 1, self.window, self.initial + self.windows[stream], MAX_FRAME)
            if count > 0 and len(self.output) < 1 << 16:
                self.output += frame(DATA, 0, stream, b"x" * count)
                self.window, self.windows[stream] = self.window - count, self.windows[stream] - count
                self.bodies[stream] = left - count

    def take(self, kind, flags, stream, payload):
        if kind in (SETTINGS, PING) and not flags & ACK:
            self.output += frame(kind, ACK, 0, payload if kind == PING else b"")
        if kind == SETTINGS:
            settings = dict(struct.iter_unpack(">HI", payload))
            self.initial = settings.get(4, self.initial)
        if kind == WINDOW_UPDATE and stream == 0:
            self.window += int.from_bytes(payload, "big")
        elif kind == WINDOW_UPDATE:
            self.windows[stream] += int.from_bytes(payload, "big")

    def turn(self):
        """Sends and receives what is possible now."""
        self.send_bodies()
        try:
            while self.output:
                count = self.socket.send(self.output)
                self.output, self.sent = self.output[count:], self.sent + count
        except BlockingIOError:
            pass
        except OSError:
            self.is_open = False
        try:
            received = self.socket.recv(1 << 16)
            self.is_open = self.is_open and bool(received)
            self.input += received
        except BlockingIOError:
            pass
        except OSError:
            self.is_open = False
        while len(self.input) >= 9 and len(self.input) >= 9 + int.from_bytes(self.input[:3], "big"):
            length = 9 + int.from_bytes(self.input[:3], "big")
            stream = int.from_bytes(self.input[5:9], "big")
            self.take(self.input[3], self.input[4], stream, self.input[9:length])
            self.input = self.input[length:]


def resident(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1000


def start(program, folder):
    """A server on ports of its own, and where its HTTP listener is."""
    listeners = ["--http-listen", "127.0.0.1:0", "--grpc-listen", "off", "--resp-listen", "off", "--intake-listen", "off"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    server = subprocess.Popen([program, "serve", *listeners], cwd=folder, **pipes)
    for line in server.stdout:
        if "decision API" in line:
            host, port = line.split("://")[1].split()[0].rsplit(":", 1)
        if "try it:" in line:
            return server, (host, int(port))
    sys.exit("the server did not start")


def attack(what, program, seconds, connections, fill):
    """Lets `fill` ask on each of the connections, and watches the server's memory."""
    with tempfile.TemporaryDirectory() as folder:
        server, address = start(program, folder)
        try:
            before = most = resident(server.pid)
            clients = [Client(address, 0) for _ in range(connections)]
            for client in clients:
                fill(client)
            last = time.monotonic()
            looks = selectors.DefaultSelector()
            for client in clients:
                looks.register(client.socket, selectors.EVENT_READ, client)
            while time.monotonic() - last < seconds:
                looks.select(0.05)
                for client in clients:
                    sent = client.sent
                    if client.is_open:
                        client.turn()
                    elif client.socket.fileno() >= 0:
                        looks.unregister(client.socket)
                        client.socket.close()
                    last = time.monotonic() if client.sent - sent > 64 else last
                most = max(most, resident(server.pid))
            sent = sum(client.sent for client in clients) / 1e6
            print(
                f"{what}: {sent:.1f} MB sent; {before:.0f} MB before, {most:.0f} MB at most, "
                f"{resident(server.pid):.0f} MB {seconds:.0f} s later",
                flush=True,
            )
        finally:
            server.kill()
            server.wait()


def unread(client):
    for _ in range(255):
        client.ask("GET", b"/openapi.json")


def unfinished(client):
    for _ in range(100):
        client.ask("POST", b"/v1/decisions", 1_000_000)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--tidegate")
    arguments = arguments.parse_args()
    program = arguments.tidegate
    if program is None:
        subprocess.run(["cargo", "build", "--quiet", "--release"], cwd=ROOT, check=True)
        program = str(ROOT / "target/release/tidegate")
    attack("200 connections x 255 replies that are not taken", program, arguments.seconds, 200, unread)
    attack("100 bodies of 1 MB that do not end", program, arguments.seconds, 1, unfinished)


main()
