#!/usr/bin/env python3
"""Connections by the hundred and the thousand through one edge at a round trip of 200 ms, as `tidegate saturate` sees them.

    regression/edge/distance.py [--seconds 5] [--wire 100,500,1000] [--ramp 100,200,300,400,500,600,700,800,900,1000]
        [--delayed 100,500,1000,2000,5000,10000] [--tidegate PROGRAM]

`wire`: the client is 200 ms away from the edge, by a TUN device in a network namespace (../round-trip/delay.py), which carries
some 20,000 packets a second and no more. `ramp`: the same, up a ramp whose rungs follow one another on one edge, as
scenarios/edge-ramp.toml has them. `delayed`: client and edge are on one machine, and the backend takes 200 ms for each request;
10,000 connections need two edges, which share a port, because a process may have 20,000 descriptors. The last column is what a
connection that is always 200 ms from its answer can do at most.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import nodes

ROUND_TRIP = 0.2
# Pairs of one process under a limit of 20,000 descriptors.
PAIRS = 9_500


def stub(program, *arguments):
    """A backend and its port."""
    port = nodes.free_port()
    command = [program, "stub", f"127.0.0.1:{port}", "--threads", "2", *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    child.stdout.readline()
    return child, port


def edge(program, folder, name, listen, backend):
    file = (
        f'runtime.share_ports = true\nedge.api_listen = "off"\nedge.listener = [{{ listen = "{listen}", affinity = "off" }}]\n'
        f'edge.backend = [{{ name = "stub", address = "127.0.0.1:{backend}", soft_limit = 20000, hard_limit = 20000 }}]\n'
    )
    return nodes.Node(program, folder / name, file)


def saturate(program, folder, url, levels, seconds):
    """The rows of a report."""
    report = folder / "report.json"
    command = [
        program, "saturate", url, "--levels", levels, "--step-seconds", str(seconds), "--warmup-seconds", "1",
        "--repeats", "1", "--force", "--plain", "--json", str(report),
    ]
    said = subprocess.run(command, capture_output=True, text=True)
    if not report.exists() or not report.stat().st_size:
        raise SystemExit(f"{' '.join(command)}\n{said.stdout}{said.stderr}")
    return json.loads(report.read_text())


def table(kind, report):
    for row in report["levels"]:
        percentile = lambda name: (row.get(name) or 0) / 1e3
        print(
            f"{kind:8s} {row['load']:11.0f} {row['throughput'] or 0:12.0f} {row['error_ratio'] * 100 if row.get('error_ratio') else 0:7.2f}"
            f" {percentile('p50_us'):8.1f} {percentile('p99_us'):8.1f} {row['load'] / ROUND_TRIP:10.0f}  {row['cause'] or ''}",
            flush=True,
        )


def on_the_wire(arguments, folder):
    """In a network namespace of its own."""
    wire = subprocess.Popen(
        [sys.executable, str(nodes.ROOT / "regression/round-trip/delay.py"), str(ROUND_TRIP * 500)], stdout=subprocess.PIPE
    )
    running = []
    try:
        wire.stdout.readline()
        for command in ["link set lo up", "address add 10.77.0.1/24 dev wire", "link set wire txqueuelen 10000 up"]:
            subprocess.run(["ip", *command.split()], check=True)
        backend, port = stub(arguments.tidegate)
        running.append(backend)
        running.append(edge(arguments.tidegate, folder, "wire", "10.77.0.1:8080", port).child)
        for kind, levels in [("wire", arguments.wire), ("ramp", arguments.ramp)]:
            if levels:
                table(kind, saturate(arguments.tidegate, folder, "http://10.77.0.2:8080/", levels, arguments.seconds))
    finally:
        for process in [*running, wire]:
            process.terminate()
            process.wait()


def delayed(arguments, folder):
    backend, port = stub(arguments.tidegate, "--delay-ms", str(ROUND_TRIP * 1e3))
    try:
        levels = [int(level) for level in arguments.delayed.split(",")]
        for edges, some in [(1, [it for it in levels if it <= PAIRS]), (2, [it for it in levels if it > PAIRS])]:
            if not some:
                continue
            listen = f"127.0.0.1:{nodes.free_port()}"
            running = [edge(arguments.tidegate, folder, f"delayed-{edges}-{number}", listen, port) for number in range(edges)]
            try:
                text = ",".join(map(str, some))
                table("delayed", saturate(arguments.tidegate, folder, f"http://{listen}/", text, arguments.seconds))
            finally:
                for each in running:
                    each.end()
    finally:
        backend.terminate()
        backend.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--wire", default="100,500,1000")
    parser.add_argument("--ramp", default=",".join(str(rung) for rung in range(100, 1_001, 100)))
    parser.add_argument("--delayed", default="100,500,1000,2000,5000,10000")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tidegate", default=str(nodes.ROOT / "target/release/tidegate"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if arguments.inside:
            on_the_wire(arguments, folder)
            return 0
        print("way      connections    answers/s  errors%   p50 ms   p99 ms    at most  cause", flush=True)
        status = 0
        if arguments.wire or arguments.ramp:
            if os.path.exists("/dev/net/tun"):
                inside = [sys.executable, __file__, "--inside", *sys.argv[1:]]
                status = subprocess.run(["unshare", "--map-root-user", "--net", *inside]).returncode
            else:
                print("there is no /dev/net/tun: the rows on the wire are left out")
        if arguments.delayed:
            delayed(arguments, folder)
        return status


if __name__ == "__main__":
    sys.exit(main())
