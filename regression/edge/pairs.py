#!/usr/bin/env python3
"""Thousands of connections through one edge at once, each asked for an answer, and what they cost.

    regression/edge/pairs.py [--rows 9500x1,10000x2] [--tidegate PROGRAM]

A row is connections x edges; several edges share one port. Each process may have 20,000 descriptors. Expected: every connection is
answered, none is refused, and an edge uses two descriptors for a connection. Exit status 1: one was not answered.
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


def hold(port, count):
    """Opens connections, has each answered, and holds them until its input ends."""
    held, answered = [], 0
    try:
        for _ in range(count):
            held.append(socket.create_connection(("127.0.0.1", port), 60))
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


def resident(pid):
    """Bytes of memory in use."""
    return int(re.search(r"Rss:\s+(\d+)", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text())[1]) << 10


def row(connections, edges, arguments, folder):
    port, backend = nodes.free_port(), nodes.echo()
    file = (
        f'runtime.share_ports = true\nedge.api_listen = "off"\n'
        f'edge.listener = [{{ listen = "127.0.0.1:{port}", affinity = "off" }}]\n'
        f'edge.backend = [{{ name = "echo", address = "127.0.0.1:{backend}", check = {{ kind = "off" }}, '
        f"soft_limit = 20000, hard_limit = 20000 }}]\n"
    )
    running = []
    try:
        for number in range(edges):
            running.append(nodes.Node(arguments.tidegate, folder / f"{connections}-{number}", file))
        before = sum(resident(edge.child.pid) for edge in running)
        command = [sys.executable, __file__, "--hold", f"{port}:{connections}"]
        began = time.monotonic()
        client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        answered, took = int(client.stdout.readline()), time.monotonic() - began
        used = [len(list(pathlib.Path(f"/proc/{edge.child.pid}/fd").iterdir())) for edge in running]
        kilobytes = (sum(resident(edge.child.pid) for edge in running) - before) / max(answered, 1) / 1024
        reasons = ["full", "no_backend", "unreachable"]
        series = 'tidegate_edge_refused_total{{listener="127.0.0.1:{}",reason="{}"}}'
        refused = sum(edge.metric(series.format(port, reason)) for edge in running for reason in reasons)
        client.communicate("")
        print(
            f"{connections:11d} {edges:6d} {answered:9d} {refused:8.0f} {took:8.1f} {kilobytes:12.2f}  "
            f"{', '.join(map(str, used))}", flush=True,
        )
        return answered == connections
    finally:
        for edge in running:
            edge.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="9500x1,10000x2")
    parser.add_argument("--hold", help=argparse.SUPPRESS)
    parser.add_argument("--tidegate", default=str(nodes.ROOT / "target/release/tidegate"))
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if arguments.hold:
        hold(*map(int, arguments.hold.split(":")))
        return 0
    print(f"each process may have {most} descriptors")
    print("connections  edges  answered  refused  seconds  KB per pair  descriptors of each edge", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        rows = [tuple(map(int, each.split("x"))) for each in arguments.rows.split(",")]
        return int(not all([row(*each, arguments, pathlib.Path(folder)) for each in rows]))


if __name__ == "__main__":
    sys.exit(main())
