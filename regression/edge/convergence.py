#!/usr/bin/env python3
"""Three edges on one PostgreSQL: how soon all hear of a registration and of a backend that is put, and how soon they agree again after the database was away.

    regression/edge/convergence.py [--repeats 5] [--tidegate PROGRAM]

The database is killed and started again, and stopped for longer than an operation may take. Goals on a quiet machine: heard of
within 1 s, and within 2 s of the database's return a registration is taken and in force at all nodes. Exit status 1: a goal is missed.
"""

import argparse
import pathlib
import signal
import statistics
import sys
import tempfile
import time

import nodes

HEARD, CONVERGED = 1.0, 2.0


class Edge(nodes.Node):
    def __init__(self, program, folder, url):
        self.api, listen = nodes.free_port(), nodes.free_port()
        super().__init__(
            program, folder,
            f'control = "{url}"\nedge.api_listen = "127.0.0.1:{self.api}"\n'
            f'edge.listener = [{{ listen = "127.0.0.1:{listen}" }}]\n',
        )

    def register(self, name, port):
        body = {"id": name, "app": "default", "ip": "127.0.0.1", "port": port, "check": {"kind": "off"}}
        return self.ask("POST", f"http://127.0.0.1:{self.api}/api/v1/register", body)[0]

    def has(self, name):
        _, list_ = self.ask("GET", f"http://127.0.0.1:{self.api}/api/v1/backends")
        return any(backend["id"] == name for backend in list_["backends"])

    def put(self, name, port):
        body = {"address": f"127.0.0.1:{port}", "check": {"kind": "off"}}
        return self.ask("PUT", f"http://127.0.0.1:{self.pages}/v1/edge/backends/{name}", body)[0]

    def has_put(self, name):
        return self.ask("GET", f"http://127.0.0.1:{self.pages}/v1/edge/backends/{name}")[0] == 200

    def is_in_contact(self):
        return self.metric("tidegate_control_reachable") == 1


def heard(edges, port, times):
    """Seconds from a registration's answer until all have it."""
    taken = []
    for turn in range(times):
        name = f"heard-{turn}"
        status = edges[turn % 3].register(name, port)
        assert status == 201, status
        began = time.monotonic()
        nodes.wait("all have it", lambda: all(edge.has(name) for edge in edges))
        taken.append(time.monotonic() - began)
    return taken


def heard_of_put(edges, port, times):
    """Seconds from the answer to a PUT of the admin API until all have the backend."""
    taken = []
    for turn in range(times):
        name = f"put-{turn}"
        status = edges[turn % 3].put(name, port)
        assert status == 200, status
        began = time.monotonic()
        nodes.wait("all have it", lambda: all(edge.has_put(name) for edge in edges))
        taken.append(time.monotonic() - began)
    return taken


def converged(edges, port, name):
    """Seconds until a registration is taken and in force at all, and those until all are in contact."""
    began = time.monotonic()
    nodes.wait("all are in contact", lambda: all(edge.is_in_contact() for edge in edges))
    contact = time.monotonic() - began
    nodes.wait("a registration is taken", lambda: edges[1].register(name, port) == 201)
    nodes.wait("all have it", lambda: all(edge.has(name) for edge in edges))
    return time.monotonic() - began, contact


def away(edges):
    nodes.wait("all notice", lambda: not any(edge.is_in_contact() for edge in edges))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tidegate", default=str(nodes.ROOT / "target/release/tidegate"))
    arguments = parser.parse_args()
    if nodes.Postgres.installed() is None:
        print("PostgreSQL is not installed: left out")
        return 0
    is_missed = False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        postgres, edges = nodes.Postgres(folder / "postgres"), []
        try:
            edges += [Edge(arguments.tidegate, folder / f"edge-{index}", postgres.url) for index in range(3)]
            port = nodes.echo()

            def said(what, taken, goal):
                nonlocal is_missed
                is_missed |= max(taken) > goal
                print(
                    f"{what:48s} median {statistics.median(taken):6.3f} s  longest {max(taken):6.3f} s  of {len(taken)}"
                    f"  (goal: {goal:g} s)", flush=True,
                )

            said("a registration is in force at all three", heard(edges, port, 4 * arguments.repeats), HEARD)
            said("a backend that is put is in force at all three", heard_of_put(edges, port, 4 * arguments.repeats), HEARD)
            for kind in ["killed and started again", "stopped for 8 s"]:
                taken = []
                for repeat in range(arguments.repeats):
                    if kind.startswith("killed"):
                        postgres.crash()
                        away(edges)
                        postgres.start()
                    else:
                        postgres.signal(signal.SIGSTOP)
                        time.sleep(8)
                        away(edges)
                        postgres.signal(signal.SIGCONT)
                    taken.append(converged(edges, port, f"{kind.split()[0]}-{repeat}"))
                said(f"all agree again, the database {kind}", [whole for whole, _ in taken], CONVERGED)
                said("  of that: all are in contact again", [contact for _, contact in taken], CONVERGED)
        finally:
            for process in [*edges, postgres]:
                process.end()
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
