#!/usr/bin/env python3
"""The gateway against nginx, HAProxy and Envoy, turn by turn (case.toml says what the rows are).

    regression/gateway/run.py [--seconds 3] [--repeats 3] [--rows small,slow,large,limits,many,instances,slowly] [--tidegate PROGRAM]

What is not installed is left out, and said. Each proxy has the cores that are there, the server one worker more.
"""

import argparse
import json
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
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CORES = os.cpu_count() or 1
HERTZ = os.sysconf("SC_CLK_TCK")
SMALL, SLOW = 18090, 18091
# Idle connections to a server that a worker of nginx and a core of Tidegate keep.
KEPT = 4096


def free_port():
    """A free port that leaves room for Redis' cluster port, which is 10,000 higher."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port < 55_000:
            return port


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

    def pids(self):
        """It and its children."""
        pids, found = [self.child.pid], []
        while pids:
            pid = pids.pop()
            found.append(pid)
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
            pids += [int(word) for word in children.read_text().split()] if children.exists() else []
        return found

    def ticks(self):
        """Clock ticks that it and its children have used."""
        total = 0
        for pid in self.pids():
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total

    def resident(self):
        """KiB of memory that it and its children have to themselves or share (proportional set size)."""
        rollups = [pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in self.pids()]
        return sum(int(re.search(r"Pss:\s+(\d+)", text)[1]) for text in rollups)

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


def nginx_proxy(folder, server, name):
    port = free_port()
    return nginx(
        folder, name, port,
        f"upstream server {{ server 127.0.0.1:{server}; keepalive {KEPT}; keepalive_requests 100000000; }}\n"
        f"server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ proxy_pass http://server; "
        'proxy_http_version 1.1; proxy_max_temp_file_size 0; proxy_set_header Connection ""; proxy_set_header Host $host; '
        "proxy_set_header X-Forwarded-For $remote_addr; } }",
    )


def haproxy(folder, server, name):
    program = shutil.which("haproxy") or "/usr/sbin/haproxy"
    if not os.path.exists(program):
        return None
    port, file = free_port(), folder / f"{name}.cfg"
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


def envoy(folder, server, name):
    program = envoy_program()
    if program is None:
        return None
    port, file = free_port(), folder / f"{name}.yaml"
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


def tidegate(program, limit="", store="memory", more=""):
    def start(folder, server, name):
        port, pages = free_port(), free_port()
        at = folder / f"{name}-{server}-tidegate"
        at.mkdir()
        policies = 'policies = ["limit"]' if limit else ""
        (at / "tidegate.toml").write_text(
            f'store = "{store}"\ndata_dir = "{at}/data"\nlog.level = "warn"\nmemory.snapshot = false\n'
            f'intake.listen = "off"\nhttp.listen = "127.0.0.1:{pages}"\ngrpc.listen = "127.0.0.1:0"\nresp.listen = "127.0.0.1:0"\n'
            f'gateway.listener = [{{ listen = "127.0.0.1:{port}" }}]\n'
            f'[[upstream]]\nname = "app"\nservers = ["http://127.0.0.1:{server}"]\nidle_connections = {KEPT}\n{more}'
            f'[[route]]\nname = "app"\nupstream = "app"\n{policies}\n'
            + (f'[[policy]]\nname = "limit"\nlimit = 10000000\nwindow_seconds = 1\n{limit}\n' if limit else "")
        )
        process = Process(name, [program, "serve", "--config", str(at / "tidegate.toml")], port)
        process.pages = pages
        return process

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
        process = make(folder, server, f"{name}-{server}")
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
    parser.add_argument("--rows", default="small,large,slow,open,limits,broken,instances,many,slowly")
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
                pairs(subjects)
            if "open" in rows:
                open_loop(folder, arguments, running)
            if "limits" in rows:
                limits(folder, arguments, running)
            if "broken" in rows:
                broken(folder, arguments, running)
            if "instances" in rows:
                instances(folder, arguments, running)
            if "many" in rows:
                many(folder, arguments, running)
            if "slowly" in rows:
                slowly(folder, arguments, running)
        finally:
            for process in reversed(running):
                process.end()


def pairs(subjects):
    """Memory of a client's connection with the one to the server that it uses."""
    print("\nmemory of an active pair of connections, 1,000 of them, a server that answers after 50 ms")
    for subject in subjects:
        url = f"http://127.0.0.1:{subject.port}/"
        fresh = subject.resident()
        load = subprocess.Popen(["wrk", "-t1", "-c2000", "-d4s", url], stdout=subprocess.DEVNULL)
        time.sleep(3)
        used = subject.resident()
        load.wait()
        print(f"  {subject.name:12s} {(used - fresh) / 1000:6.1f} KiB a pair beyond those that it had kept, {used / 1024:6.1f} MiB in all")


def open_loop(folder, arguments, running):
    """What is added to replies that take 50 ms, at 10,000 requests a second on 3,000 connections."""
    stub = [arguments.tidegate, "stub", "127.0.0.1:18092", "--delay-ms", "50"]
    running.append(Process("slow server", stub, 18092))
    subjects = proxies(folder, 18092, arguments.tidegate)
    running += subjects
    print("\n10,000 requests/s that are due one by one, 3,000 connections, a server that answers after 50 ms")
    ports = [("the server itself", 18092)] + [(subject.name, subject.port) for subject in subjects]
    taken = {name: [] for name, _ in ports}
    for _ in range(arguments.repeats):
        for name, port in ports:
            load = [arguments.tidegate, "load", f"http://127.0.0.1:{port}/", "-c", "3000", "-r", "10000", "--json", "--force"]
            taken[name].append(json.loads(last([*load, "-d", str(arguments.seconds)])))
    for name, steps in taken.items():
        p50, p99 = [statistics.median(step["response"][key] for step in steps) / 1000 for key in ("p50_us", "p99_us")]
        print(f"  {name:18s} p50 {p50:7.2f} ms, p99 {p99:7.2f} ms, {sum(step['sent'] - step['good'] for step in steps)} without a good reply")


def broken(folder, arguments, running):
    """An upstream whose only server is gone: the breaker opens, and answers."""
    proxy = tidegate(arguments.tidegate)(folder, free_port(), "broken")
    proxy.name = "tidegate, the breaker open"
    running.append(proxy)
    good = tidegate(arguments.tidegate)(folder, SMALL, "whole")
    good.name = "tidegate"
    running.append(good)
    for _ in range(200):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{proxy.port}/")
        except urllib.error.HTTPError as error:
            error.read()
    row("a breaker that is open (each reply is a 503), beside a server that answers", [good, proxy], "/", [256], arguments, "tidegate")


def instances(folder, arguments, running):
    """One to three gateways that count in one Redis: replies per second of CPU time of all of them."""
    if not shutil.which("redis-server"):
        print("redis-server is not installed: left out")
        return
    store = redis(folder, running)
    bucket = 'algorithm = "token_bucket"'
    started = [tidegate(arguments.tidegate, bucket, store)(folder, SMALL, f"instance-{number}") for number in range(3)]
    running += started
    print("\ninstances that share a limit in Redis, 192 connections in all\ninstances     req/s   req/s per CPU   errors   of one")
    taken = {count: [] for count in (1, 2, 3)}
    for _ in range(arguments.repeats):
        for count in taken:
            taken[count].append(together(started[:count], 192 // count, arguments.seconds))
    alone = statistics.median(run[1] for run in taken[1])
    for count, runs in taken.items():
        rate, efficiency, bad = [statistics.median(column) for column in zip(*runs)]
        print(f"{count:9d} {rate:9.0f} {efficiency:15.0f} {bad:8.0f} {efficiency / alone:8.2f}")


def together(processes, connections, seconds):
    """Replies per second of `processes` at once, the same for a second of their CPU time, and errors."""
    before = sum(process.ticks() for process in processes)
    commands = [["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", f"http://127.0.0.1:{process.port}/"] for process in processes]
    runs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    said = "".join(run.communicate()[0] for run in runs)
    used = (sum(process.ticks() for process in processes) - before) / HERTZ
    count = sum(map(int, re.findall(r"(\d+) requests in", said)))
    bad = sum(map(int, re.findall(r"Non-2xx or 3xx responses: (\d+)", said)))
    return count / seconds, count / used, bad


def many(folder, arguments, running):
    """10,000 clients that keep their connections."""
    for name, make in {"nginx": nginx_proxy, "haproxy": haproxy, "tidegate": tidegate(arguments.tidegate)}.items():
        subject = make(folder, SMALL, f"many-{name}")
        if subject is None:
            continue
        running.append(subject)
        rate, p99, cpu, bad = measure(subject, "/", 10_000, arguments.seconds * 3)
        print(f"10,000 kept connections: {name:10s} {rate:8.0f} req/s, p99 {p99:.0f} ms, {cpu:.1f} CPU us a reply, {bad:.0f} errors", flush=True)


def slowly(folder, arguments, running):
    """p99 of others while 2,000 clients send their heads a line at a time, and while 1,000 read slowly."""
    if not shutil.which("slowhttptest"):
        print("slowhttptest is not installed: left out")
        return
    subject = tidegate(arguments.tidegate)(folder, SMALL, "slowly")
    running.append(subject)
    url = f"http://127.0.0.1:{subject.port}"
    attacks = {
        "nobody": None,
        "slow heads": ["slowhttptest", "-H", "-c", "2000", "-r", "1000", "-i", "5", "-l", "60", "-u", f"{url}/"],
        "slow bodies": ["slowhttptest", "-B", "-c", "2000", "-r", "1000", "-i", "5", "-l", "60", "-u", f"{url}/"],
        "slow readers": ["slowhttptest", "-X", "-c", "1000", "-r", "1000", "-w", "1024", "-y", "2048", "-n", "5", "-z", "32", "-k", "1", "-l", "60", "-u", f"{url}/large"],
    }
    print("\n64 clients at 5,000 requests/s while others are slow")
    for name, command in attacks.items():
        attack = command and subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(5)
        load = [arguments.tidegate, "load", f"{url}/", "-c", "64", "-r", "5000", "-d", str(arguments.seconds * 2), "--json", "--force"]
        steps = [json.loads(last(load)) for _ in range(arguments.repeats)]
        if attack:
            attack.kill()
            attack.wait()
        p50, p99 = [statistics.median(step["response"][key] for step in steps) / 1000 for key in ("p50_us", "p99_us")]
        print(f"  {name:14s} p50 {p50:7.2f} ms, p99 {p99:7.2f} ms, {sum(step['sent'] - step['good'] for step in steps)} without a good reply", flush=True)


def last(command):
    """The last line that it prints."""
    return subprocess.run(command, capture_output=True, text=True).stdout.strip().splitlines()[-1]


def redis(folder, running):
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    running.append(Process("redis", command, port))
    return f"redis://127.0.0.1:{port}/0"


def cluster(folder, running):
    """Three masters."""
    ports = [free_port() for _ in range(3)]
    for port in ports:
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        running.append(Process("redis", [*command, "--cluster-enabled", "yes", "--cluster-config-file", f"nodes-{port}.conf"], port))
    nodes = [f"127.0.0.1:{port}" for port in ports]
    subprocess.run(["redis-cli", "--cluster", "create", *nodes, "--cluster-yes"], check=True, stdout=subprocess.DEVNULL)
    while "cluster_state:ok" not in subprocess.run(["redis-cli", "-p", str(ports[0]), "cluster", "info"], capture_output=True, text=True).stdout:
        time.sleep(0.1)
    return "redis-cluster://" + ",".join(nodes)


def limits(folder, arguments, running):
    token_bucket = 'algorithm = "token_bucket"'
    sliding = 'algorithm = "sliding_counter"'
    subjects = {
        "limits off": tidegate(arguments.tidegate),
        "token bucket, memory": tidegate(arguments.tidegate, token_bucket),
        "sliding window, memory": tidegate(arguments.tidegate, sliding),
    }
    if shutil.which("redis-server"):
        for where, store in {"Redis": redis(folder, running), "Redis Cluster": cluster(folder, running)}.items():
            subjects[f"token bucket, {where}"] = tidegate(arguments.tidegate, token_bucket, store)
            subjects[f"sliding window, {where}"] = tidegate(arguments.tidegate, sliding, store)
    processes = []
    for number, (name, make) in enumerate(subjects.items()):
        process = make(folder, SMALL, f"limits-{number}")
        process.name = name
        processes.append(process)
    running += processes
    row("limits of a route, a fast server", processes, "/", [256], arguments, "limits off")
    for process in processes:
        calls(process)


def calls(process):
    """How long the store's calls took, by the histogram of the metrics page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{process.pages}/metrics") as reply:
        text = reply.read().decode()
    found = {kind: sum(float(value) for value in re.findall(rf"^tidegate_store_call_duration_seconds_{kind} (\S+)", text, re.M)) for kind in ("sum", "count")}
    if found["count"]:
        print(f"  {process.name:24s} {found['sum'] / found['count'] * 1e6:8.0f} us a call of the store, {found['count']:.0f} calls")


if __name__ == "__main__":
    main()
