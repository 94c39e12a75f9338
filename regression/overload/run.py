#!/usr/bin/env python3
"""What a gateway on half a core does with twice of what it can do (case.toml says what the rows are).

    regression/overload/run.py [--seconds 6] [--repeats 3] [--tidegate PROGRAM]

It needs root, for a control group with a CPU quota.
"""

import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# A reply later than that after it was due is of no use to anybody.
BOUND_US = 250_000
WORDS = [f"{number * 7919 % 10007} {number}" for number in range(14_000)]


class Group:
    """A control group that has half a core, in periods of 100 ms."""

    def __init__(self):
        first, second = pathlib.Path("/sys/fs/cgroup/cpu"), pathlib.Path("/sys/fs/cgroup")
        base = first if (first / "cpu.cfs_quota_us").exists() or first.exists() else second
        self.folder = base / f"tidegate-overload-{os.getpid()}"
        try:
            self.folder.mkdir()
            if base == first:
                (self.folder / "cpu.cfs_quota_us").write_text("50000")
            else:
                (self.folder / "cpu.max").write_text("50000 100000")
        except OSError as error:
            sys.exit(f"no control group with a quota can be made here: {error}")

    def end(self):
        self.folder.rmdir()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    for _ in range(400):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"nothing listens on {port}")


class Server:
    """A gateway within the group; `shed_after` is a setting, `compress` whether its replies are large and compressed."""

    def __init__(self, program, group, folder, backend, shed_after, compress):
        self.port, self.http = free_port(), free_port()
        folder.mkdir()
        routes = "".join(
            f'[[route]]\nname = "{name}"\npath = "/{name}/*"\nupstream = "app"\nreplace_path = "/{"large" if compress else ""}"\n'
            f'priority = "{name}"\ncompress = {str(compress).lower()}\n'
            for name in ["low", "normal", "critical"]
        )
        ports = "".join(f'[{name}]\nlisten = "127.0.0.1:{free_port()}"\n' for name in ["grpc", "resp"])
        (folder / "tidegate.toml").write_text(
            f'data_dir = "{folder}/data"\n[http]\nlisten = "127.0.0.1:{self.http}"\n{ports}[intake]\nlisten = "off"\n'
            f'[runtime]\nworkers = 1\n[gateway]\nshed_after = "{shed_after}"\n'
            f'[[gateway.listener]]\nlisten = "127.0.0.1:{self.port}"\n'
            f'[[upstream]]\nname = "app"\nservers = ["http://127.0.0.1:{backend}"]\nbreaker = {{ enabled = false }}\neject_after = 0\n{routes}'
        )
        command = f'echo $$ > {group.folder}/cgroup.procs && exec {program} serve --config {folder}/tidegate.toml'
        self.log = open(folder / "log", "wb")
        self.child = subprocess.Popen(["sh", "-c", command], stdout=self.log, stderr=self.log)
        wait_for(self.port)

    def metric(self, name):
        page = urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=10).read().decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))

    def end(self):
        self.child.terminate()
        self.child.wait(60)


def nginx(folder):
    """The server behind the gateway, outside the group."""
    port, at = free_port(), folder / "nginx"
    (at / "files").mkdir(parents=True)
    (at / "files" / "large").write_text(json.dumps(WORDS)[: 128 << 10])
    temporary = "".join(f"{kind}_temp_path {at}/{kind};" for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    (at / "nginx.conf").write_text(
        f"daemon off; user root; worker_processes 1; pid {at}/pid; error_log {at}/error.log;\nevents {{ worker_connections 8192; }}\n"
        f"http {{ {temporary} access_log off; keepalive_requests 100000000; types {{ }} default_type application/json;\n"
        f"server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 hello; }}\n"
        f"location = /large {{ root {at}/files; }} }} }}\n"
    )
    child = subprocess.Popen(["nginx", "-p", str(at), "-c", str(at / "nginx.conf")], stderr=subprocess.DEVNULL)
    wait_for(port)
    return child, port


SCENARIO = """
name = "overload"
[connection]
request_timeout_ms = 5000
{requests}
[denied]
status = ["503"]
[[step]]
connections = {connections}
duration_s = {seconds}
warmup_s = {warmup}
{rate}
"""


def scenario(paths, connections, seconds, warmup, rate=None):
    request = '[[request]]\npath = "{}"\nheaders = {{ "accept-encoding" = "gzip" }}\n'
    requests = "".join(request.format(path) for path in paths)
    rate = f"rate = {rate:.0f}" if rate else ""
    return SCENARIO.format(requests=requests, connections=connections, seconds=seconds, warmup=warmup, rate=rate)


def saturate(program, folder, port, levels, seconds):
    """Good replies per second at each level of connections, by `tidegate saturate`."""
    file, report = folder / "closed.toml", folder / "closed.json"
    file.write_text(scenario(["/critical/a"], list(levels), seconds, 3))
    command = [program, "saturate", f"http://127.0.0.1:{port}/", "--scenario", file, "--plain", "--force", "--no-pin", "--json", report]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not report.exists():
        sys.exit(f"saturate: {done.stderr}")
    found = json.loads(report.read_text())
    report.unlink()
    return {step["plan"]["connections"]: step["good"] / step["seconds"] for step in map(record, found["steps"])}


def record(step):
    """A step's measurement, wherever the report keeps it."""
    return step if "plan" in step else next(it for it in step.values() if isinstance(it, dict) and "plan" in it)


def load(program, folder, port, rate, seconds):
    """One step in an open loop, half of its requests low: what `tidegate load` measured."""
    file = folder / "open.toml"
    file.write_text(scenario(["/low/a", "/critical/a"], 2_000, seconds, 4, rate))
    command = [program, "load", f"http://127.0.0.1:{port}/", "--scenario", file, "--json", "--force", "--processes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"load: {done.stderr}")
    return json.loads(done.stdout.splitlines()[0])


def in_time(step):
    """Of the replies that were good, those within the bound, per second."""
    response = step["response"]
    within = sum(count for bound, count in response["histogram"] if bound <= BOUND_US)
    return within / step["seconds"]


def rows(arguments, group, folder, backend, compress):
    name = "128 KiB, compressed" if compress else "a small reply"
    subjects, closed, opened = ["off", arguments.shed_after], {}, {}
    # A compressed reply takes a millisecond or more: fewer are enough.
    levels = [2, 4, 8, 16, 32, 64, 128, 256] if compress else [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048]

    def served(kind, shed_after):
        off = "0s" if shed_after == "off" else shed_after
        place = folder / f"{kind}-{compress}-{shed_after}-{time.monotonic_ns()}"
        return Server(arguments.tidegate, group, place, backend, off, compress)

    for subject in subjects:
        server = served("closed", subject)
        closed[subject] = saturate(arguments.tidegate, folder, server.port, levels, arguments.seconds)
        server.end()
    print(f"\n### {name}, closed loop, all critical\n\n| connections |" + "".join(f" good/s, shed_after {it} |" for it in subjects))
    print("|---:|" + "---:|" * len(subjects))
    for level in levels:
        print(f"| {level:,} |" + "".join(f" {closed[it].get(level, 0):,.0f} |" for it in subjects))
    print()
    for subject in subjects:
        own = max(closed[subject].values())
        knee = min(level for level, good in closed[subject].items() if good >= 0.95 * own)
        twice = next((level for level in levels if level >= 2 * knee), levels[-1])
        share = closed[subject][twice] / own
        print(f"shed_after {subject}: peak {own:,.0f} good/s, knee at {knee} connections; at {twice} it is {share:.0%} of that")
    # What is offered in the open loop is the same for both.
    peak = max(closed["off"].values())

    print(f"\n### {name}, open loop, half low, half critical\n")
    print("| shed_after | offered | good/s | in time/s | of peak | p50 of good, ms | p99 | refused/s | low | critical |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for times in [1.0, 2.0]:
        for subject in subjects:
            steps, refused = [], []
            for _ in range(arguments.repeats):
                server = served("open", subject)
                steps.append(load(arguments.tidegate, folder, server.port, times * peak, arguments.seconds))
                shed = f"tidegate_gateway_shed_requests_total{{priority="
                refused.append([server.metric(f'{shed}"{it}"') for it in ["low", "critical"]])
                server.end()
            opened[subject, times] = statistics.median(map(in_time, steps))
            middle = sorted(steps, key=in_time)[len(steps) // 2]
            low, critical = refused[steps.index(middle)]
            print(
                f"| {subject} | {times:.0f} x peak | {middle['good'] / middle['seconds']:,.0f} | {opened[subject, times]:,.0f} "
                f"| {opened[subject, times] / peak:.0%} | {middle['response']['p50_us'] / 1000:,.0f} | {middle['response']['p99_us'] / 1000:,.0f} "
                f"| {middle['denied'] / middle['seconds']:,.0f} | {low:,.0f} | {critical:,.0f} |",
                flush=True,
            )
    best = max(value for (subject, _), value in opened.items() if subject != "off")
    at_twice = opened[arguments.shed_after, 2.0]
    share = f"{at_twice / best:.0%}" if best else "nothing"
    print(f"\ngoodput in time at 2 x: {at_twice / peak:.0%} of the closed loop's peak, {share} of its own (goal: 90 %)")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", default="small,large")
    parser.add_argument("--shed-after", default="20ms")
    parser.add_argument("--tidegate", default=str(ROOT / "target" / "release" / "tidegate"))
    arguments = parser.parse_args()
    group = Group()
    with tempfile.TemporaryDirectory(prefix="tidegate-overload-") as folder:
        folder = pathlib.Path(folder)
        child, backend = nginx(folder)
        try:
            for row in arguments.rows.split(","):
                rows(arguments, group, folder, backend, row == "large")
        finally:
            child.terminate()
            child.wait()
            group.end()


if __name__ == "__main__":
    main()
