#!/usr/bin/env python3
"""Thousands of connections through one edge at once, each asked for an answer, and what they cost.

    regression/edge/pairs.py [--rows 9500x1,10000x2,100000x12] [--tidegate PROGRAM]

A row is connections x edges; several edges share one port. Each process may have 20,000 descriptors, so clients and backends are several
processes, too, each client with an address of its own. 100000x12 takes some 4 GB of memory, most of it the kernel's; without being asked
for it is left out where less than 6 GB are free. Expected: every connection is answered, none is refused, and an edge uses two descriptors for a connection. Exit status 1: one was not answered.
"""

import argparse
import pathlib
import re
import resource
import select
import socket
import subprocess
import sys
import tempfile
import time

import nodes

DESCRIPTORS = 20_000
# The row that is for machines with memory for it, and how much that is.
LARGE, LARGE_BYTES = "100000x12", 6 << 30
# Most connections that a client or a backend has.
EACH = 9_500


def hold(address, port, count):
    """Opens connections from an address, has each answered, and holds them until its input ends."""
    held, answered = [], 0
    try:
        for _ in range(count):
            held.append(socket.create_connection(("127.0.0.1", port), 60, (address, 0)))
    except OSError as error:
        print(f"after {len(held)} connections: {error}", file=sys.stderr)
    poll = select.epoll()
    by_number = {stream.fileno(): stream for stream in held}
    for number, stream in by_number.items():
        try:
            stream.sendall(b"ping")
        except OSError:
            continue
        poll.register(number, select.EPOLLIN)
    until = time.monotonic() + 60
    while answered < len(held) and time.monotonic() < until:
        for number, _ in poll.poll(1, 1024):
            try:
                answered += by_number[number].recv(4) == b"ping"
            except OSError:
                pass
            poll.unregister(number)
    print(answered, flush=True)
    sys.stdin.read()


def free():
    """Bytes of memory that processes may still have."""
    return int(re.search(r"MemAvailable:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) << 10


def resident(pid):
    """Bytes of memory in use."""
    return int(re.search(r"Rss:\s+(\d+)", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text())[1]) << 10


def backend():
    """A backend that lives until its input ends; it says its port."""
    print(nodes.echo(), flush=True)
    sys.stdin.read()


def child(*arguments):
    """This program once more, as a client or a backend."""
    return subprocess.Popen([sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def row(connections, edges, arguments, folder):
    port, parts = nodes.free_port(), -(-connections // EACH)
    running, others = [], []
    try:
        for number in range(parts):
            others.append(child("--backend"))
        # Clients are spread over as many backends as are needed, and over the edges by the kernel.
        backends = "".join(
            f'[[edge.backend]]\nname = "echo-{number}"\naddress = "127.0.0.1:{int(other.stdout.readline())}"\n'
            'check = { kind = "off" }\nsoft_limit = 20000\nhard_limit = 20000\n'
            for number, other in enumerate(others)
        )
        file = (
            f'runtime.share_ports = true\nedge.api_listen = "off"\n'
            f'edge.listener = [{{ listen = "127.0.0.1:{port}", affinity = "off" }}]\n{backends}'
        )
        for number in range(edges):
            running.append(nodes.Node(arguments.tidegate, folder / f"{connections}-{number}", file))
        before = sum(resident(edge.child.pid) for edge in running)
        began = time.monotonic()
        clients = []
        for number in range(parts):
            count = connections * (number + 1) // parts - connections * number // parts
            clients.append(child("--hold", f"127.0.1.{number + 1}:{port}:{count}"))
            others.append(clients[-1])
        answered, took = sum(int(client.stdout.readline()) for client in clients), time.monotonic() - began
        used = [len(list(pathlib.Path(f"/proc/{edge.child.pid}/fd").iterdir())) for edge in running]
        kilobytes = (sum(resident(edge.child.pid) for edge in running) - before) / max(answered, 1) / 1024
        reasons = ["full", "no_backend", "unreachable"]
        series = 'tidegate_edge_refused_total{{listener="127.0.0.1:{}",reason="{}"}}'
        refused = sum(edge.metric(series.format(port, reason)) for edge in running for reason in reasons)
        print(
            f"{connections:11d} {edges:6d} {answered:9d} {refused:8.0f} {took:8.1f} {kilobytes:12.2f}  "
            f"{', '.join(map(str, used))}", flush=True,
        )
        return answered == connections
    finally:
        for other in others:
            other.communicate("")
        for edge in running:
            edge.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows")
    parser.add_argument("--hold", help=argparse.SUPPRESS)
    parser.add_argument("--backend", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tidegate", default=str(nodes.ROOT / "target/release/tidegate"))
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if arguments.hold:
        address, port, count = arguments.hold.split(":")
        hold(address, int(port), int(count))
        return 0
    if arguments.backend:
        backend()
        return 0
    print(f"each process may have {most} descriptors")
    print("connections  edges  answered  refused  seconds  KB per pair  descriptors of each edge", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        asked = arguments.rows or ",".join(["9500x1", "10000x2", *([LARGE] if free() > LARGE_BYTES else [])])
        rows = [tuple(map(int, each.split("x"))) for each in asked.split(",")]
        return int(not all([row(*each, arguments, pathlib.Path(folder)) for each in rows]))


if __name__ == "__main__":
    sys.exit(main())
