#!/usr/bin/env python3
"""The gateway against nginx, HAProxy and Envoy, turn by turn (case.toml says what the rows are).

    regression/gateway/run.py [--seconds 3] [--repeats 3] [--rows small,slow,large,limits] [--tidegate PROGRAM]

What is not installed is left out, and said. Each proxy has the cores that are there, the server one worker more.
"""

import argparse
import os
import pathlib
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CORES = os.cpu_count() or 1
HERTZ = os.sysconf("SC_CLK_TCK")
SMALL, SLOW = 18090, 18091


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A server on a port, ended with the run."""

    def __init__(self, name, command, port, environment=None):
        self.name, self.port = name, port
        self.log = tempfile.TemporaryFile()
        environment = {**os.environ, **(environment or {})}
        self.child = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=environment)
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if self.child.poll() is not None:
                    break
                time.sleep(0.05)
        self.log.seek(0)
        sys.exit(f"{name} does not start: {self.log.read().decode(errors='replace')}")

    def ticks(self):
        """Clock ticks that it and its children have used."""
        pids, found = [self.child.pid], []
        while pids:
            pid = pids.pop()
            found.append(pid)
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
            pids += [int(word) for word in children.read_text().split()] if children.exists() else []
        total = 0
        for pid in found:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total

    def end(self):
        self.child.terminate()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def nginx(folder, name, port, body):
    at = folder / name
    at.mkdir()
    temporary = "".join(f"{kind}_temp_path {at}/{kind};" for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
    (at / "nginx.conf").write_text(
        f"daemon off; worker_processes {CORES}; pid {at}/pid; error_log {at}/error.log; worker_rlimit_nofile 20000;\n"
        f"events {{ worker_connections 8192; }}\nhttp {{ {temporary} access_log off; sendfile on; "
        f"keepalive_requests 100000000;\n{body} }}\n"
    )
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    return Process(name, [program, "-p", str(at), "-c", str(at / "nginx.conf")], port)


def backend(folder):
    files = folder / "files"
    files.mkdir()
    (files / "large").write_bytes(b"x" * 1_000_000)
    return nginx(
        folder, "server", SMALL,
        f"server {{ listen 127.0.0.1:{SMALL} backlog=4096; location / {{ return 200 hello; }}\n"
        f"location = /large {{ root {files}; }} }}",
    )


def nginx_proxy(folder, server, _):
    port = free_port()
    return nginx(
        folder, f"nginx-{server}", port,
        f"upstream server {{ server 127.0.0.1:{server}; keepalive 1024; keepalive_requests 100000000; }}\n"
        f"server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ proxy_pass http://server; "
        'proxy_http_version 1.1; proxy_max_temp_file_size 0; proxy_set_header Connection ""; proxy_set_header Host $host; '
        "proxy_set_header X-Forwarded-For $remote_addr; } }",
    )


def haproxy(folder, server, _):
    program = shutil.which("haproxy") or "/usr/sbin/haproxy"
    if not os.path.exists(program):
        return None
    port, file = free_port(), folder / f"haproxy-{server}.cfg"
    file.write_text(
        f"global\n nbthread {CORES}\n maxconn 9000\ndefaults\n mode http\n timeout connect 5s\n timeout client 60s\n"
        " timeout server 60s\n option forwardfor\n http-reuse always\n"
        f"frontend f\n bind 127.0.0.1:{port}\n default_backend b\nbackend b\n server s 127.0.0.1:{server}\n"
    )
    return Process("haproxy", [program, "-db", "-f", str(file)], port)


def envoy_program():
    found = [ROOT / ".venv/bin/envoy", *ROOT.glob(".venv/lib/*/site-packages/envoy*/**/envoy")]
    programs = [str(path) for path in found if path.is_file() and os.access(path, os.X_OK)]
    return shutil.which("envoy") or (programs[0] if programs else None)


def envoy(folder, server, _):
    program = envoy_program()
    if program is None:
        return None
    port, file = free_port(), folder / f"envoy-{server}.yaml"
    address = "{ socket_address: { address: 127.0.0.1, port_value: %d } }"
    http = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
    file.write_text(f"""
static_resources:
  listeners:
  - address: {address % port}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": {http}
          stat_prefix: http
          http_filters: [{{ name: router, typed_config: {{ "@type": {router} }} }}]
          route_config: {{ virtual_hosts: [{{ name: all, domains: ["*"], routes: [{{ match: {{ prefix: "/" }}, route: {{ cluster: server }} }}] }}] }}
  clusters:
  - name: server
    type: STATIC
    circuit_breakers: {{ thresholds: [{{ max_connections: 9000, max_pending_requests: 9000, max_requests: 9000 }}] }}
    load_assignment: {{ cluster_name: server, endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {address % server} }} }}] }}] }}
""")
    command = [program, "-c", str(file), "--concurrency", str(CORES), "--disable-hot-restart", "-l", "error"]
    return Process("envoy", command, port)


def tidegate(program, limit="", store="memory"):
    def start(folder, server, name):
        port = free_port()
        at = folder / f"{name}-{server}"
        at.mkdir()
        policies = 'policies = ["limit"]' if limit else ""
        (at / "tidegate.toml").write_text(
            f'store = "{store}"\ndata_dir = "{at}/data"\nlog.level = "warn"\nmemory.snapshot = false\n'
            'intake.listen = "off"\nhttp.listen = "127.0.0.1:0"\ngrpc.listen = "127.0.0.1:0"\nresp.listen = "127.0.0.1:0"\n'
            f'gateway.listener = [{{ listen = "127.0.0.1:{port}" }}]\n'
            f'[[upstream]]\nname = "app"\nservers = ["http://127.0.0.1:{server}"]\nidle_connections = 1024\n'
            f'[[route]]\nname = "app"\nupstream = "app"\n{policies}\n'
            + (f'[[policy]]\nname = "limit"\nlimit = 10000000\nwindow_seconds = 1\n{limit}\n' if limit else "")
        )
        return Process(name, [program, "serve", "--config", str(at / "tidegate.toml")], port)

    return start


def measure(process, path, connections, seconds):
    before = process.ticks()
    command = ["wrk", f"-t{min(CORES, 4)}", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "10s"]
    said = subprocess.run([*command, f"http://127.0.0.1:{process.port}{path}"], check=True, capture_output=True, text=True).stdout
    used = process.ticks() - before
    count = int(re.search(r"(\d+) requests in", said)[1])
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1])
    number, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", said).groups()
    p99 = float(number) * {"us": 0.001, "ms": 1, "s": 1000}[unit]
    bad = sum(int(number) for number in re.findall(r"Non-2xx or 3xx responses: (\d+)", said))
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", said)
    bad += sum(map(int, errors.groups())) if errors else 0
    return rate, p99, used / HERTZ * 1e6 / max(count, 1), bad


def row(title, subjects, path, levels, arguments, reference):
    """Measures the subjects by turns; prints medians, and the ratio of each to `reference`."""
    print(f"\n{title}\nconnections  subject                     req/s     p99 ms  CPU us/reply  errors  req/s of {reference}")
    for connections in levels:
        taken = {subject.name: [] for subject in subjects}
        for _ in range(arguments.repeats):
            for subject in subjects:
                taken[subject.name].append(measure(subject, path, connections, arguments.seconds))
        medians = {name: [statistics.median(column) for column in zip(*runs)] for name, runs in taken.items()}
        for name, (rate, p99, cpu, bad) in medians.items():
            ratio = rate / max(medians[reference][0], 1)
            print(f"{connections:11d}  {name:24s} {rate:8.0f} {p99:10.2f} {cpu:13.1f} {bad:7.0f}  {ratio:6.2f}", flush=True)
        others = [name for name in medians if name != reference]
        gateway = medians.get("tidegate")
        if gateway and reference != "tidegate":
            said = ", ".join(f"{gateway[0] / max(medians[name][0], 1):.2f} x {name}" for name in [reference, *others] if name != "tidegate")
            print(f"             tidegate: {said}")


def proxies(folder, server, program):
    makers = {"nginx": nginx_proxy, "haproxy": haproxy, "envoy": envoy, "tidegate": tidegate(program)}
    subjects = []
    for name, make in makers.items():
        process = make(folder, server, "tidegate")
        if process is None:
            print(f"{name} is not installed: left out")
            continue
        process.name = name
        subjects.append(process)
    return subjects


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=int(os.environ.get("SECONDS_EACH", "3")))
    parser.add_argument("--repeats", type=int, default=int(os.environ.get("REPEATS", "3")))
    parser.add_argument("--rows", default="small,slow,large,limits")
    parser.add_argument("--tidegate", default=str(ROOT / "target/release/tidegate"))
    arguments = parser.parse_args()
    if not os.path.exists(arguments.tidegate):
        subprocess.run(["cargo", "build", "--release", "--locked", "-p", "tidegate", "--manifest-path", str(ROOT / "Cargo.toml")], check=True)
    rows = arguments.rows.split(",")
    running = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        try:
            running.append(backend(folder))
            if {"small", "large"} & set(rows):
                subjects = proxies(folder, SMALL, arguments.tidegate)
                running += subjects
                if "small" in rows:
                    row("small replies, a fast server", subjects, "/", [64, 256, 1000], arguments, "nginx")
                if "large" in rows:
                    row("bodies of 1 MB", subjects, "/large", [64], arguments, "nginx")
            if "slow" in rows:
                stub = [arguments.tidegate, "stub", f"127.0.0.1:{SLOW}", "--delay-ms", "50"]
                running.append(Process("slow server", stub, SLOW))
                subjects = proxies(folder, SLOW, arguments.tidegate)
                running += subjects
                row("a server that answers after 50 ms", subjects, "/", [1000], arguments, "nginx")
            if "limits" in rows:
                limits(folder, arguments, running)
        finally:
            for process in reversed(running):
                process.end()


def limits(folder, arguments, running):
    token_bucket = 'algorithm = "token_bucket"'
    sliding = 'algorithm = "sliding_counter"'
    subjects = {
        "limits off": tidegate(arguments.tidegate),
        "token bucket, memory": tidegate(arguments.tidegate, token_bucket),
        "sliding window, memory": tidegate(arguments.tidegate, sliding),
    }
    if shutil.which("redis-server"):
        port = free_port()
        redis = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        running.append(Process("redis", redis, port))
        store = f"redis://127.0.0.1:{port}/0"
        subjects["token bucket, Redis"] = tidegate(arguments.tidegate, token_bucket, store)
        subjects["sliding window, Redis"] = tidegate(arguments.tidegate, sliding, store)
    processes = []
    for number, (name, make) in enumerate(subjects.items()):
        process = make(folder, SMALL, f"limits-{number}")
        process.name = name
        processes.append(process)
    running += processes
    row("limits of a route, a fast server", processes, "/", [256], arguments, "limits off")
    for process in processes:
        urllib.request.urlopen(f"http://127.0.0.1:{process.port}/").read()


if __name__ == "__main__":
    main()
