#!/usr/bin/env python3
"""All servers fail for a minute at full load (fault 63): what the gateway and the edge ask of them, and how soon they notice the end.

    regression/outage/run.py [--seconds 60] [--connections 32] [--rows refused,503,breaker,edge] [--tidegate PROGRAM]

`crates/gateway/tests/it/outages.rs` has the same with some thousand requests, which is what the everyday suite has time for.

Each row starts three servers, puts load on them in a closed loop, replaces all three by such that fail, and after the outage replaces
one by a good one. Expected of the gateway: at most 1.1 attempts for each request of the outage, where those of its first second may come
out of the budget that the second before has earned, and a good reply within 2 s of the first good server. The edge only connects, which asks nothing of a server: it tries each backend once, and up to eight.
"""

import argparse
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SERVERS = 3
# Most attempts for each request of an outage, and longest time in seconds until one is answered after it.
MOST_ATTEMPTS, LONGEST = 1.1, 2.0


PORTS = iter(range(20_000 + os.getpid() % 1_000 * 10, 32_000))


def free_port():
    """One below those that Linux gives clients: else a connection to where nobody listens could be made with itself."""
    for port in PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    sys.exit("no port is free")


def wait_for(port):
    for _ in range(2_000):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.005)
    sys.exit(f"nothing listens on {port}")


class Servers:
    """Servers on ports that stay theirs, of which each is good, answers 503, or is not there."""

    def __init__(self, program):
        self.program, self.ports, self.children = program, [free_port() for _ in range(SERVERS)], [None] * SERVERS

    def become(self, index, kind):
        if child := self.children[index]:
            child.kill()
            child.wait()
        self.children[index] = None
        if kind == "refused":
            return
        command = [self.program, "stub", f"127.0.0.1:{self.ports[index]}"]
        command += ["--refuse-after", "0"] if kind == "503" else []
        self.children[index] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(self.ports[index])

    def all_become(self, kind):
        for index in range(SERVERS):
            self.become(index, kind)


def gateway(servers, more):
    listed = ", ".join(f'"http://127.0.0.1:{port}"' for port in servers.ports)
    return (
        f'[[gateway.listener]]\nlisten = "127.0.0.1:PORT"\n[[route]]\nname = "all"\nupstream = "app"\n'
        f'[[upstream]]\nname = "app"\nbalance = "round_robin"\nservers = [{listed}]\n{more}\n'
    )


def edge(servers):
    backends = "".join(f'[[edge.backend]]\nname = "b{port}"\naddress = "127.0.0.1:{port}"\n' for port in servers.ports)
    return f'edge.api_listen = "off"\n[[edge.listener]]\nlisten = "127.0.0.1:PORT"\n{backends}'


class Tidegate:
    def __init__(self, program, folder, text):
        self.port, self.http = free_port(), free_port()
        folder.mkdir()
        others = "".join(f'[{name}]\nlisten = "127.0.0.1:{free_port()}"\n' for name in ["grpc", "resp"])
        own = f'data_dir = "{folder}/data"\nintake.listen = "off"\n[http]\nlisten = "127.0.0.1:{self.http}"\n{others}'
        # What is set by dotted keys stands before the first table.
        dotted, tables = [], []
        for line in text.replace("PORT", str(self.port)).splitlines():
            (tables if tables or line.startswith("[") else dotted).append(line)
        (folder / "tidegate.toml").write_text("\n".join(dotted) + "\n" + own + "\n".join(tables) + "\n")
        self.log = open(folder / "log", "wb")
        self.child = subprocess.Popen([program, "serve", "--config", folder / "tidegate.toml"], stdout=self.log, stderr=self.log)
        wait_for(self.port)
        wait_for(self.http)

    def counted(self, *names):
        """The sums of the series that begin so."""
        page = urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=30).read().decode()
        series = [line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#")]
        return [sum(float(value) for key, value in series if key.startswith(name)) for name in names]

    def is_answered(self):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=10).status == 200
        except (OSError, urllib.error.URLError):
            return False

    def end(self):
        self.child.terminate()
        self.child.wait(60)


def row(arguments, folder, name):
    servers = Servers(arguments.tidegate)
    servers.all_become("good")
    off = "breaker = { enabled = false }"
    # As often as that, a breaker is no reason for a later answer.
    checked = 'check = { path = "/", interval_seconds = 0.5, rise = 1 }'
    text = {"refused": gateway(servers, off), "503": gateway(servers, off), "breaker": gateway(servers, checked), "edge": edge(servers)}[name]
    if name == "edge":
        asked, attempts = "tidegate_edge_refused_total{", "tidegate_edge_failed_attempts_total{"
    else:
        asked, attempts = 'tidegate_http_requests_total{server="gateway', "tidegate_upstream_attempts_total{"
    tidegate = Tidegate(arguments.tidegate, folder / name, text)
    command = [arguments.tidegate, "load", f"http://127.0.0.1:{tidegate.port}/", "-c", str(arguments.connections), "--force"]
    command += ["-d", str(arguments.seconds + 30), "-w", "0", "-p", "1", "-t", "1"]
    load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        [began_with] = tidegate.counted(asked)
        time.sleep(1)
        [of_a_second] = [later - began_with for later in tidegate.counted(asked)]
        servers.all_become("refused" if name in ["refused", "edge"] else "503")
        before = tidegate.counted(asked, attempts)
        time.sleep(arguments.seconds)
        after = tidegate.counted(asked, attempts)
        servers.become(0, "good")
        began = time.monotonic()
        while not tidegate.is_answered() and time.monotonic() - began < 60:
            time.sleep(0.01)
        took = time.monotonic() - began
    finally:
        load.kill()
        load.wait()
        tidegate.end()
        servers.all_become("refused")
    requests, tries = (later - earlier for earlier, later in zip(before, after))
    share = tries / max(requests, 1)
    most = MOST_ATTEMPTS * requests + (MOST_ATTEMPTS - 1) * of_a_second
    is_good = took <= LONGEST and (name == "edge" or tries <= most)
    print(f"| {name} | {requests:,.0f} | {share:.3f} | {took:.2f} s | {'as expected' if is_good else 'NOT as expected'} |", flush=True)
    return is_good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--rows", default="refused,503,breaker,edge")
    parser.add_argument("--tidegate", default=str(ROOT / "target" / "release" / "tidegate"))
    arguments = parser.parse_args()
    print("| the servers | requests of the outage | attempts for each | answered after it within | |\n|---|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory(prefix="tidegate-outage-") as folder:
        found = [row(arguments, pathlib.Path(folder), name) for name in arguments.rows.split(",")]
    sys.exit(0 if all(found) else 1)


if __name__ == "__main__":
    main()
