#!/usr/bin/env python3
"""How many changes a second two nodes on one PostgreSQL take from 8 writers, each with a connection kept open.

    regression/configuration/two_nodes.py [--seconds 10] [--tidegate PROGRAM]

Each writer puts the override of a client of its own, every second one at the other node: what makes writers
wait for each other is the one revision that all changes raise. Prints changes a second, their p99, and what
was answered otherwise.
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WRITERS = 8


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait(ready, what):
    end = time.monotonic() + 30
    while not ready():
        if time.monotonic() > end:
            raise SystemExit(f"{what} does not answer")
        time.sleep(0.05)


class Postgres:
    """A server in a folder of its own, with Debian's settings but for where it listens."""

    def __init__(self, folder):
        programs = max(pathlib.Path("/usr/lib/postgresql").iterdir(), key=lambda it: int(it.name)) / "bin"
        # It refuses to run as root.
        user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        become = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        if user:
            os.chmod(folder, 0o755)
            data = folder / "postgres"
            data.mkdir()
            shutil.chown(data, user.pw_uid, user.pw_gid)
        data = folder / "postgres"
        self.port = free_port()
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
        setup = [programs / "initdb", "--pgdata", data, "--username", "tidegate", "--auth", "trust", "--no-sync"]
        subprocess.run(setup, check=True, **quiet, **become)
        places = ["-p", str(self.port), "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={data}"]
        self.process = subprocess.Popen([programs / "postgres", "-D", data, *places], **quiet, **become)
        asked = [programs / "pg_isready", "-h", "127.0.0.1", "-p", str(self.port)]
        wait(lambda: subprocess.run(asked, **quiet).returncode == 0, "PostgreSQL")
        self.url = f"postgres://tidegate@127.0.0.1:{self.port}/postgres"

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


class Node:
    def __init__(self, program, folder, url):
        self.port = free_port()
        folder.mkdir()
        listen = ["--http-listen", f"127.0.0.1:{self.port}", "--data-dir", folder, "--control", url]
        # Only what is measured: no other listener takes a default port of this machine.
        others = {f"TIDEGATE_{name}_LISTEN": "off" for name in ("GRPC", "RESP", "INTAKE")}
        self.log = open(folder / "log", "w")
        command = [program, "serve", *listen]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env={**os.environ, **others})
        wait(self.is_ready, f"the node of {folder}")

    def is_ready(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def write(number, port, end, statuses, times):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    fields = {"Content-Type": "application/json"}
    limit = 0
    while time.monotonic() < end:
        limit += 1
        begun = time.monotonic()
        connection.request("PUT", f"/v1/clients/writer-{number}/limits", json.dumps({"default": {"limit": limit}}), fields)
        reply = connection.getresponse()
        said = reply.read().decode(errors="replace")
        if reply.status != 200:
            # Without numbers, so that the same is counted together.
            statuses[f"{reply.status} " + re.sub(r"\d+", "N", json.loads(said).get("detail", said))] += 1
            continue
        times.append(time.monotonic() - begun)
        statuses[200] += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--tidegate", default=ROOT / "target/release/tidegate")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        postgres = Postgres(folder)
        nodes = []
        try:
            nodes = [Node(given.tidegate, folder / name, postgres.url) for name in ("one", "two")]
            counts = [collections.Counter() for _ in range(WRITERS)]
            times = [[] for _ in range(WRITERS)]
            end = time.monotonic() + given.seconds
            writers = [
                threading.Thread(target=write, args=(it, nodes[it % 2].port, end, counts[it], times[it]))
                for it in range(WRITERS)
            ]
            for writer in writers:
                writer.start()
            for writer in writers:
                writer.join()
        finally:
            for part in [*nodes, postgres]:
                part.stop()
    all_counts = sum(counts, collections.Counter())
    sorted_times = sorted(sum(times, []))
    p99 = sorted_times[len(sorted_times) * 99 // 100]
    done, other = all_counts.pop(200, 0), dict(all_counts)
    print(f"two nodes, {WRITERS} writers: {done / given.seconds:.0f} changes/s, p99 {p99 * 1000:.1f} ms, otherwise answered: {other or 'none'}")


if __name__ == "__main__":
    main()
