#!/usr/bin/env python3
"""Twenty processes that take over from one another under load: connections that fail, and how long connecting takes.

    regression/edge/takeover.py [--takeovers 20] [--clients 8] [--ways ports,socket] [--drain 2s] [--tidegate PROGRAM]

`ports`: the next process starts beside the one before, on shared ports (`runtime.share_ports`). `socket`: it starts on a socket that
a service manager holds, when the one before has ended. Each process also has a connection that lasts until it is cut, so that a
drain takes all of `limits.drain_deadline`. Expected: nothing fails in either way; on a socket, clients wait for the drain. Exit status
1: a connection failed.
"""

import argparse
import pathlib
import socket
import sys
import tempfile
import threading
import time

import nodes


class Load:
    """Clients that connect, have four bytes sent back, and come again."""

    def __init__(self, port, clients):
        self.port, self.taken, self.failures, self.is_over = port, [], [], False
        self.threads = [threading.Thread(target=self.run) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.is_over:
            began = time.monotonic()
            try:
                with socket.create_connection(("127.0.0.1", self.port), 60) as stream:
                    stream.sendall(b"ping")
                    if stream.recv(4) != b"ping":
                        raise ConnectionError("it ended unserved")
            except OSError as error:
                self.failures.append(repr(error))
            self.taken.append(time.monotonic() - began)

    def end(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()


def run(way, arguments, folder):
    port, backend = nodes.free_port(), nodes.echo()
    inherited = socket.create_server(("127.0.0.1", port), backlog=4096) if way == "socket" else None
    file = (
        f'runtime.share_ports = {"true" if way == "ports" else "false"}\nlimits.drain_deadline = "{arguments.drain}"\n'
        f'edge.api_listen = "off"\nedge.listener = [{{ listen = "127.0.0.1:{port}", affinity = "off" }}]\n'
        f'edge.backend = [{{ name = "echo", address = "127.0.0.1:{backend}", check = {{ kind = "off" }}, hard_limit = 9000 }}]\n'
    )
    placed = f'tidegate_edge_placed_total{{listener="127.0.0.1:{port}",by="score"}}'

    def start(number):
        return nodes.Node(arguments.tidegate, folder / f"{way}-{number}", file, socket_3=inherited)

    processes, held = [start(0)], []
    load = Load(port, arguments.clients)
    try:
        for number in range(1, arguments.takeovers + 1):
            held.append(socket.create_connection(("127.0.0.1", port), 60))
            if way == "ports":
                processes.append(start(number))
                nodes.wait("the next one serves", lambda: processes[-1].metric(placed) > 0)
                processes[-2].stop()
            else:
                processes[-1].stop()
                processes[-1].child.wait(60)
                processes.append(start(number))
                nodes.wait("the next one serves", lambda: processes[-1].metric(placed) > 0)
            before = len(load.taken)
            nodes.wait("the load goes on", lambda: len(load.taken) > before + 200)
    finally:
        load.end()
        for stream in held:
            stream.close()
        for process in processes:
            process.end()
        if inherited is not None:
            inherited.close()
    taken = sorted(load.taken)
    slow = sum(each > 0.5 for each in taken)
    at = lambda part: taken[min(len(taken) - 1, int(part * len(taken)))]
    print(
        f"{way:7s} {arguments.takeovers:9d} {len(taken):12d} {len(load.failures):7d} {at(0.5) * 1e3:8.2f} {at(0.999) * 1e3:9.1f} "
        f"{taken[-1] * 1e3:9.1f} {slow:12d}", flush=True,
    )
    for failure in load.failures[:5]:
        print(f"        {failure}")
    return len(load.failures)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--takeovers", type=int, default=20)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--ways", default="ports,socket")
    parser.add_argument("--drain", default="2s")
    parser.add_argument("--tidegate", default=str(nodes.ROOT / "target/release/tidegate"))
    arguments = parser.parse_args()
    print("way     takeovers  connections  failed   p50 ms  p99.9 ms  slowest ms  above 500 ms", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        failed = [run(way, arguments, pathlib.Path(folder)) for way in arguments.ways.split(",")]
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main())
