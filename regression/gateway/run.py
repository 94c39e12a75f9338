#!/usr/bin/env python3
"""The gateway against nginx, HAProxy and Envoy, turn by turn (case.toml says what the rows are).

    regression/gateway/run.py [--seconds 3] [--repeats 3] [--rows small,half,routes,tls,features,...] [--tidegate PROGRAM]

What is not installed is left out, and said. Each proxy has the cores that are there, the server one worker more.
"""

import argparse
import base64
import hmac
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
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


def most_files():
    """Descriptors of each process from here on: as many as 10,000 clients and as many connections to servers need, if the machine allows it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for files in (65_536, hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
            return files
        except (ValueError, OSError):
            continue
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


FILES = most_files()
# The same bound for every peer: a client takes two descriptors.
CLIENTS = min((FILES - 1_000) // 2, 20_000)


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
        f"daemon off; worker_processes {CORES}; pid {at}/pid; error_log {at}/error.log; worker_rlimit_nofile {FILES};\n"
        f"events {{ worker_connections {2 * CLIENTS}; }}\nhttp {{ {temporary} access_log off; sendfile on; "
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


def certificate(folder):
    """A pair of files for 127.0.0.1, both in one as well, as HAProxy wants it."""
    key, pem, both = folder / "tls.key", folder / "tls.pem", folder / "tls-both.pem"
    if not both.exists():
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", pem],
            check=True, capture_output=True,
        )
        both.write_text(pem.read_text() + key.read_text())
    return pem, key, both


def nginx_proxy(folder, server, name, tls=None):
    port = free_port()
    secure = f"ssl_certificate {tls[0]}; ssl_certificate_key {tls[1]}; " if tls else ""
    return nginx(
        folder, name, port,
        f"upstream server {{ server 127.0.0.1:{server}; keepalive {KEPT}; keepalive_requests 100000000; }}\n"
        f"server {{ listen 127.0.0.1:{port} {'ssl http2 ' if tls else ''}backlog=4096; {secure}location / {{ proxy_pass http://server; "
        'proxy_http_version 1.1; proxy_max_temp_file_size 0; proxy_set_header Connection ""; proxy_set_header Host $host; '
        "proxy_set_header X-Forwarded-For $remote_addr; } }",
    )


def haproxy(folder, server, name, tls=None):
    program = shutil.which("haproxy") or "/usr/sbin/haproxy"
    if not os.path.exists(program):
        return None
    port, file = free_port(), folder / f"{name}.cfg"
    file.write_text(
        f"global\n nbthread {CORES}\n maxconn {CLIENTS}\ndefaults\n mode http\n timeout connect 5s\n timeout client 60s\n"
        " timeout server 60s\n option forwardfor\n http-reuse always\n"
        f"frontend f\n bind 127.0.0.1:{port}{f' ssl crt {tls[2]} alpn h2,http/1.1' if tls else ''}\n default_backend b\nbackend b\n server s 127.0.0.1:{server}\n"
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
    circuit_breakers: {{ thresholds: [{{ max_connections: {CLIENTS}, max_pending_requests: {CLIENTS}, max_requests: {CLIENTS} }}] }}
    load_assignment: {{ cluster_name: server, endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {address % server} }} }}] }}] }}
""")
    command = [program, "-c", str(file), "--concurrency", str(CORES), "--disable-hot-restart", "-l", "error"]
    return Process("envoy", command, port)


def tidegate(program, limit="", store="memory", more="", servers=None, routes="", tls=None, route="", top="", at_port=None):
    def start(folder, server, name):
        port, pages = at_port or free_port(), free_port()
        at = folder / f"{name}-{server}-tidegate"
        at.mkdir()
        policies = 'policies = ["limit"]' if limit else ""
        pair = f', tls_certificate = "{tls[0]}", tls_key = "{tls[1]}"' if tls else ""
        urls = [f"http://127.0.0.1:{port}" for port in servers or [server]]
        (at / "tidegate.toml").write_text(
            f'store = "{store}"\ndata_dir = "{at}/data"\nlog.level = "warn"\nmemory.snapshot = false\n'
            f'intake.listen = "off"\nhttp.listen = "127.0.0.1:{pages}"\ngrpc.listen = "127.0.0.1:0"\nresp.listen = "127.0.0.1:0"\n'
            f'limits.connections = {CLIENTS}\ngateway.listener = [{{ listen = "127.0.0.1:{port}"{pair} }}]\n{top.replace("FOLDER", str(at)).replace("SERVER", str(server))}'
            f'[[upstream]]\nname = "app"\nservers = {json.dumps(urls)}\nidle_connections = {KEPT}\n{more}'
            f'[[route]]\nname = "app"\nupstream = "app"\n{policies}\n{route.replace("FOLDER", str(at))}\n{routes}'
            + (f'[[policy]]\nname = "limit"\nlimit = 10000000\nwindow_seconds = 1\n{limit}\n' if limit else "")
        )
        process = Process(name, [program, "serve", "--config", str(at / "tidegate.toml")], port)
        process.pages = pages
        return process

    return start


def measure(process, path, connections, seconds, scheme="http"):
    before = process.ticks()
    command = ["wrk", f"-t{min(CORES, 4)}", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "10s"]
    command += [word for field in getattr(process, "fields", []) for word in ("-H", field)]
    said = subprocess.run([*command, f"{scheme}://127.0.0.1:{process.port}{path}"], check=True, capture_output=True, text=True).stdout
    used = process.ticks() - before
    count = int(re.search(r"(\d+) requests in", said)[1])
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1])
    number, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", said).groups()
    p99 = float(number) * {"us": 0.001, "ms": 1, "s": 1000}[unit]
    bad = sum(int(number) for number in re.findall(r"Non-2xx or 3xx responses: (\d+)", said))
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", said)
    bad += sum(map(int, errors.groups())) if errors else 0
    return rate, p99, used / HERTZ * 1e6 / max(count, 1), bad


def measure_h2(process, path, connections, seconds):
    """As `measure`, in HTTP/2 over TLS, ten requests at once on each connection."""
    before = process.ticks()
    command = ["h2load", f"-t{min(CORES, 4)}", f"-c{connections}", "-m10", f"-D{seconds}", f"https://127.0.0.1:{process.port}{path}"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    used = process.ticks() - before
    rate = float(re.search(r"finished in [\d.]+\w+, ([\d.]+) req/s", said)[1])
    count, bad = [int(re.search(rf"(\d+) {what}", said)[1]) for what in ("succeeded", "failed")]
    # h2load says no p99: the largest time is what it has.
    number, unit = re.search(r"time for request:\s+\S+\s+([\d.]+)(us|ms|s)", said).groups()
    largest = float(number) * {"us": 0.001, "ms": 1, "s": 1000}[unit]
    return rate, largest, used / HERTZ * 1e6 / max(count, 1), bad


def row(title, subjects, path, levels, arguments, reference, measure=measure):
    """Measures the subjects by turns; prints medians, and the ratio of each to `reference`. Returns these of the last level."""
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
    return medians


def proxies(folder, server, program, tls=None):
    makers = {"nginx": nginx_proxy, "haproxy": haproxy, "envoy": envoy, "tidegate": tidegate(program)}
    if tls:
        makers = {
            "nginx": lambda *at: nginx_proxy(*at, tls=tls),
            "haproxy": lambda *at: haproxy(*at, tls=tls),
            "tidegate": tidegate(program, tls=tls),
        }
    subjects = []
    for name, make in makers.items():
        process = make(folder, server, f"{name}-{server}{'-tls' if tls else ''}")
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
    parser.add_argument("--rows", default="small,half,large,slow,open,routes,tls,limits,features,analytics,broken,outage,instances,many,slowly,report,chaos")
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
            if {"small", "half", "large"} & set(rows):
                subjects = proxies(folder, SMALL, arguments.tidegate)
                running += subjects
                if "small" in rows:
                    row("small replies, a fast server", subjects, "/", [64, 256, 1000], arguments, "nginx")
                if "half" in rows:
                    half(subjects, arguments)
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
            if "routes" in rows:
                routes(folder, arguments, running)
            if "tls" in rows:
                over_tls(folder, arguments, running)
            if "limits" in rows:
                limits(folder, arguments, running)
            if "features" in rows:
                features(folder, arguments, running)
            if "analytics" in rows:
                analytics(folder, arguments, running)
            if "broken" in rows:
                broken(folder, arguments, running)
            if "outage" in rows:
                outage(folder, arguments, running)
            if "instances" in rows:
                instances(folder, arguments, running)
            if "many" in rows:
                many(folder, arguments, running)
            if "slowly" in rows:
                slowly(folder, arguments, running)
            if "report" in rows:
                report(folder, arguments, running)
            if "chaos" in rows:
                chaos(folder, arguments, running)
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


def half(subjects, arguments):
    """p99 of small replies at half of the rate that the gateway can do, the same for all."""
    gateway = next(subject for subject in subjects if subject.name == "tidegate")
    most = statistics.median(measure(gateway, "/", 64, arguments.seconds)[0] for _ in range(arguments.repeats))
    rate = int(most / 2)
    print(f"\nsmall replies, {rate} requests/s that are due one by one: half of what tidegate answers to 64 connections")
    taken = {subject.name: [] for subject in subjects}
    for _ in range(arguments.repeats):
        for subject in subjects:
            load = [arguments.tidegate, "load", f"http://127.0.0.1:{subject.port}/", "-c", "64", "-r", str(rate), "--json", "--force"]
            taken[subject.name].append(json.loads(last([*load, "-d", str(arguments.seconds)])))
    for name, steps in taken.items():
        p50, p99 = [statistics.median(step["response"][key] for step in steps) / 1000 for key in ("p50_us", "p99_us")]
        print(f"  {name:18s} p50 {p50:7.2f} ms, p99 {p99:7.2f} ms, {sum(step['sent'] - step['good'] for step in steps)} without a good reply")


def routes(folder, arguments, running):
    """The same request among ten routes and among ten thousand: an index, so that its route is found as fast."""
    subjects = []
    for count in (10, 10_000):
        # One is there already, for everything.
        text = "".join(f'[[route]]\nname = "r{n}"\npath = "/r{n}/*"\nupstream = "app"\n' for n in range(count - 1))
        subject = tidegate(arguments.tidegate, routes=text)(folder, SMALL, f"routes-{count}")
        subject.name = f"{count} routes"
        subjects.append(subject)
    running += subjects
    row("the same route among others, a fast server", subjects, "/r5/users/7", [64], arguments, "10 routes")


def over_tls(folder, arguments, running):
    """Small replies over TLS, by HTTP/1.1 and by HTTP/2; connections are kept, so that handshakes count little."""
    subjects = proxies(folder, SMALL, arguments.tidegate, certificate(folder))
    running += subjects
    row("small replies over TLS, HTTP/1.1", subjects, "/", [64], arguments, "nginx", lambda *at: measure(*at, scheme="https"))
    row("bodies of 1 MB over TLS, HTTP/1.1", subjects, "/large", [64], arguments, "nginx", lambda *at: measure(*at, scheme="https"))
    if shutil.which("h2load"):
        row("bodies of 1 MB over TLS, HTTP/2 with 10 requests at once (the largest time for p99)", subjects, "/large", [16], arguments, "nginx", measure_h2)
        row("small replies over TLS, HTTP/2 with 10 requests at once (the largest time for p99)", subjects, "/", [64], arguments, "nginx", measure_h2)
    else:
        print("h2load is not installed: HTTP/2 is left out")


def attempts(process):
    """Attempts at all servers so far, by the metrics page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{process.pages}/metrics") as reply:
        text = reply.read().decode()
    return sum(int(float(value)) for value in re.findall(r"^tidegate_upstream_attempts_total\{.*\} (\S+)$", text, re.M))


def outage(folder, arguments, running):
    """Three servers are gone: attempts for each request, and how long it takes after one of them is back."""
    print("\nan outage of all three servers, 256 connections: attempts for each request, and the first good reply after one server is back")
    kinds = {
        "no breaker": "breaker = { enabled = false }\n",
        "breaker, a check every 500 ms": "check = { interval_seconds = 0.5, rise = 1 }\n",
    }
    for number, (name, more) in enumerate(kinds.items()):
        ports = [free_port() for _ in range(3)]
        subject = tidegate(arguments.tidegate, more=more, servers=ports)(folder, ports[0], f"outage-{number}")
        running.append(subject)
        before = attempts(subject)
        command = ["wrk", f"-t{min(CORES, 4)}", "-c256", f"-d{arguments.seconds * 3}s", f"http://127.0.0.1:{subject.port}/"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        # Those that wrk cut off at its end it does not count.
        count = int(re.search(r"(\d+) requests in", said)[1]) + 256
        made = attempts(subject) - before
        running.append(Process("stub", [arguments.tidegate, "stub", f"127.0.0.1:{ports[0]}"], ports[0]))
        back = time.monotonic()
        while not answers(subject) and time.monotonic() < back + 120:
            time.sleep(0.005)
        print(f"  {name:32s} {made} attempts for {count} requests: {made / max(count, 1):.3f}; recovered after {time.monotonic() - back:.2f} s", flush=True)


def answers(process):
    return answers_status(process) == 200


def broken(folder, arguments, running):
    """An upstream whose only server is gone: the breaker opens, and answers."""
    stays = "breaker = { first_open_seconds = 3600, open_seconds = 3600 }\n"
    proxy = tidegate(arguments.tidegate, more=stays)(folder, free_port(), "broken")
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
    if CLIENTS < 10_000:
        print(f"10,000 kept connections: left out, since a process may have {FILES} descriptors here")
        return
    for name, make in {"nginx": nginx_proxy, "haproxy": haproxy, "tidegate": tidegate(arguments.tidegate)}.items():
        subject = make(folder, SMALL, f"many-{name}")
        if subject is None:
            continue
        running.append(subject)
        rate, p99, cpu, bad = measure(subject, "/", 10_000, arguments.seconds * 3)
        print(f"10,000 kept connections: {name:10s} {rate:8.0f} req/s, p99 {p99:.0f} ms, {cpu:.1f} CPU us a reply, {bad:.0f} errors", flush=True)


def slowly(folder, arguments, running):
    """p99 of others while 5,000 clients send their heads or bodies a line at a time, and while 1,000 read slowly."""
    if not shutil.which("slowhttptest"):
        print("slowhttptest is not installed: left out")
        return
    subject = tidegate(arguments.tidegate)(folder, SMALL, "slowly")
    running.append(subject)
    url = f"http://127.0.0.1:{subject.port}"
    attacks = {
        "nobody": None,
        "slow heads": ["slowhttptest", "-H", "-c", "5000", "-r", "2000", "-i", "5", "-l", "60", "-u", f"{url}/"],
        "slow bodies": ["slowhttptest", "-B", "-c", "5000", "-r", "2000", "-i", "5", "-l", "60", "-u", f"{url}/"],
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


def report(folder, arguments, running):
    """The gateway report's own table, by the scenarios that have its numbers as thresholds, before a server that takes 50 ms."""
    stub = [arguments.tidegate, "stub", "127.0.0.1:18093", "--delay-ms", "50"]
    running.append(Process("slow server", stub, 18093))
    program, bucket, window = arguments.tidegate, 'algorithm = "token_bucket"', 'algorithm = "sliding_counter"'
    stores = {"memory": "memory"}
    if shutil.which("redis-server"):
        stores |= {"Redis": redis(folder, running), "Redis Cluster": cluster(folder, running)}
    rows = [("limiter off", "limiter-off", 3_200, [tidegate(program)], 18093)]
    for where, store in stores.items():
        rows.append((f"token bucket, {where}", "token-bucket", 2_800, [tidegate(program, bucket, store)], 18093))
        rows.append((f"sliding window, {where}", "sliding-window", 2_100, [tidegate(program, window, store)], 18093))
    rows.append(("breaker open", "breaker-open", 15_000, [tidegate(program, more="breaker = { first_open_seconds = 3600, open_seconds = 3600 }\n")], free_port()))
    shared = stores.get("Redis", "memory")
    for count, rate in ((1, 2_800), (2, 5_200), (3, 7_100)):
        port, top = free_port(), "runtime.share_ports = true\n"
        makers = [tidegate(program, bucket, shared, top=top, at_port=port) for _ in range(count)]
        rows.append((f"{count} at one address, {'Redis' if shared != 'memory' else 'memory'}", f"instances-{count}", rate, makers, 18093))
    print("\nthe gateway report's table: its rate, ours, and how long a call of the store took")
    print("row                           report/s   replies/s   p50 ms   p99 ms   errors  store us  thresholds")
    for number, (name, scenario, rate, makers, server) in enumerate(rows):
        nodes = [make(folder, server, f"report-{number}-{index}") for index, make in enumerate(makers)]
        try:
            if scenario == "breaker-open":
                for _ in range(200):
                    answers(nodes[0])
            before = [store_calls(node) for node in nodes]
            command = [program, "load", f"http://127.0.0.1:{nodes[0].port}", "-s", f"gateway-{scenario}", "--json", "--force"]
            ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
            record = json.loads(ran.stdout.splitlines()[0])
            spent = [(after[0] - was[0], after[1] - was[1]) for was, after in zip(before, map(store_calls, nodes))]
            seconds, made = map(sum, zip(*spent))
            each, response = f"{seconds / made * 1e6:8.0f}" if made else "       -", record["response"]
            print(
                f"{name:28s} {rate:9d} {record['good'] / record['seconds']:11.0f} {response['p50_us'] / 1000:8.2f} {response['p99_us'] / 1000:8.2f} "
                f"{sum(record['errors'].values()):8d}  {each}  {'met' if ran.returncode == 0 else 'missed'}",
                flush=True,
            )
        finally:
            for node in nodes:
                node.end()


class Way:
    """A way to a server that can be cut, slowed down and narrowed, on a port of its own."""

    def __init__(self, server):
        self.server, self.delay, self.is_cut, self.open = server, 0.0, False, set()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client = self.listener.accept()[0]
            if self.is_cut:
                client.close()
                continue
            server = socket.create_connection(("127.0.0.1", self.server))
            self.open |= {client, server}
            for one, other, waits in ((client, server, False), (server, client, True)):
                threading.Thread(target=self.pass_on, args=(one, other, waits), daemon=True).start()

    def pass_on(self, one, other, waits):
        try:
            while data := one.recv(65_536):
                if waits and self.delay:
                    time.sleep(self.delay)
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            self.open.discard(end)
            end.close()

    def cut(self, is_cut):
        self.is_cut = is_cut
        if is_cut:
            for end in list(self.open):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


def chaos(folder, arguments, running):
    """What the report's plan does to a backend, each with the answer that it promises."""
    program = arguments.tidegate
    ways = [Way(SMALL), Way(SMALL)]
    ports = [way.port for way in ways]
    seconds = max(arguments.seconds, 3) * 2

    def subject(name, servers, more=""):
        node = tidegate(program, servers=servers, more=more)(folder, SMALL, f"chaos-{name}")
        running.append(node)
        return node

    def load(node, during, rate=200, connections=50, good=200):
        scenario = folder / f"chaos-{good}-{rate}.toml"
        scenario.write_text(
            f'name = "chaos"\n[[request]]\npath = "/"\n[good]\nstatus = ["{good}"]\n'
            f"[[step]]\nconnections = {connections}\nrate = {rate}\nduration_s = {seconds}\nwarmup_s = 1\n"
        )
        command = [program, "load", f"http://127.0.0.1:{node.port}", "-s", str(scenario), "--json", "--force"]
        before = node.ticks()
        run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        time.sleep(1.5)
        begun = time.monotonic()
        during(lambda: run.poll() is None and time.monotonic() - begun < seconds - 1)
        record = json.loads(run.communicate()[0].strip().splitlines()[-1])
        record["cpu"] = (node.ticks() - before) / HERTZ / (seconds + 1) / CORES
        return record

    def say(name, promised, text):
        print(f"  {name:46s} promised: {promised:34s} {text}", flush=True)

    def part(record):
        return record["good"] / max(record["sent"], 1)

    def cut_one(goes_on):
        ways[0].cut(True)
        while goes_on():
            time.sleep(0.05)
        ways[0].cut(False)

    def flap(goes_on):
        is_cut = False
        while goes_on():
            is_cut = not is_cut
            ways[0].cut(is_cut)
            time.sleep(0.1)
        ways[0].cut(False)

    def nothing(_goes_on):
        return None

    print("\nchaos: 200 requests/s while this is done to one of two servers, or to the only one")
    record = load(subject("cut", ports), cut_one)
    say("one of two servers cut off", "> 99 % good, < 50 ms", f"{part(record):.2%} good, p99 {record['response']['p99_us'] / 1000:.2f} ms")
    record = load(subject("flap", ports), flap)
    node = subject("recovery", [ports[0]])
    ways[0].cut(True)
    for _ in range(5):
        answers(node)
    ways[0].cut(False)
    begun = time.monotonic()
    while not answers(node):
        time.sleep(0.01)
    text = f"{1 - part(record):.2%} errors; good again after {time.monotonic() - begun:.2f} s"
    say("one of two servers flaps every 100 ms", "errors < 5 %, recovery < 2 s", text)
    ways[0].delay = 2.0
    node = subject("late", [ports[0]], "breaker = { slow_seconds = 1, minimum_calls = 10, first_open_seconds = 3600, open_seconds = 3600 }\n")
    for thread in [threading.Thread(target=answers, args=(node,)) for _ in range(20)]:
        thread.start()
    while answers_status(node) != 503:
        time.sleep(0.1)
    record = load(node, nothing, good=503)
    ways[0].delay = 0.0
    # What is refused at once is all there is.
    say("the only server takes 2,000 ms more: refused", "p99 < 100 ms", f"p99 {record['response']['p99_us'] / 1000:.2f} ms, {part(record):.2%} refused so")
    record = load(subject("herd", [SMALL]), nothing, rate=500, connections=500)
    say("500 requests/s from 500 connections", "CPU < 80 %", f"{record['cpu']:.0%} of the machine, {part(record):.2%} good")


def answers_status(process):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{process.port}/") as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        error.read()
        return error.code


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


def features(folder, arguments, running):
    """What a part of the gateway costs that is used, and one that is there and not used by these requests."""
    unused = (
        '[[upstream]]\nname = "next"\nservers = ["http://127.0.0.1:1"]\n'
        '[[route]]\nname = "canary"\npath = "/canary"\nupstream = "app"\ncanary = { upstream = "next", percent = 5 }\n'
        '[[route]]\nname = "mirror"\npath = "/mirror"\nupstream = "app"\nmirror = { upstream = "next", percent = 10 }\n'
    )
    # What a key's tier adds is seen beside the same limit without keys.
    bucket = 'algorithm = "token_bucket"'
    tiers = f'{bucket}\nkey = ["api_key"]\ntiers = {{ pro = {{ limit = 10000000 }} }}'
    by_address = f'{bucket}\nkey = ["ip"]'
    log = 'access_log.to = "FOLDER/access.log"\naccess_log.max_bytes = "100 MiB"\naccess_log.keep = 1\n'
    jwt = 'auth = "jwt"\njwt = { issuer = "bench", keys_file = "FOLDER/../jwks.json" }\n'
    secret = os.urandom(32)
    encoded = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    keys = {"keys": [{"kty": "oct", "alg": "HS256", "kid": "a", "k": encoded(secret)}]}
    (folder / "jwks.json").write_text(json.dumps(keys))
    claims = {"iss": "bench", "sub": "wrk", "exp": int(time.time()) + 86_400}
    signed = ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "HS256", "kid": "a"}, claims))
    token = f"{signed}.{encoded(hmac.digest(secret, signed.encode(), 'sha256'))}"
    # The server itself takes what a collector would: it answers 200 to everything.
    spans = 'telemetry.endpoint = "http://127.0.0.1:SERVER"\ntelemetry.sample_ratio = '
    program = arguments.tidegate
    # Analytics are on by default, and have a row of their own: here each part is alone.
    off = "gateway.analytics = false\n"
    subjects = {
        "plain": tidegate(program, top=off),
        "canary, mirror: not used": tidegate(program, more=unused, top=off),
        "access log and analytics": tidegate(program, top=log),
        "spans of 1 in 100": tidegate(program, top=f"{off}{spans}0.01\n"),
        "spans of all": tidegate(program, top=f"{off}{spans}1\n"),
        "limit by address": tidegate(program, by_address, top=off),
        "limit by key, with tier": tidegate(program, tiers, route='auth = "key"\n', top=off),
        "JWT, known": tidegate(program, route=jwt, top=off),
        "candidate, route the same": tidegate(program, top=off),
        "candidate, route differs": tidegate(program, top=off),
    }
    processes = []
    for number, (name, make) in enumerate(subjects.items()):
        process = make(folder, SMALL, f"features-{number}")
        process.name = name
        processes.append(process)
        running.append(process)
    by_name = {process.name: process for process in processes}
    key = ask(by_name["limit by key, with tier"], "POST", "/v1/keys", {"consumer": "wrk", "tier": "pro"})["key"]
    by_name["limit by key, with tier"].fields = [f"X-Api-Key: {key}"]
    by_name["JWT, known"].fields = [f"Authorization: Bearer {token}"]
    other = {"name": "other", "path": "/other", "respond": {}}
    ask(by_name["candidate, route the same"], "PUT", "/v1/candidate", {"route": [other]})
    differs = {"name": "app", "upstream": "app", "timeout_seconds": 9}
    ask(by_name["candidate, route differs"], "PUT", "/v1/candidate", {"route": [differs]})
    row("parts of the gateway, a fast server", processes, "/", [256], arguments, "plain")


def analytics(folder, arguments, running):
    """What counting costs, which is on by default: by turns with the same gateway without it, on a route without and with keys."""
    with_key = 'auth = "key"\n'
    off = "gateway.analytics = false\n"
    program = arguments.tidegate
    for what, route in {"without keys": "", "with keys": with_key}.items():
        subjects = {
            "off": tidegate(program, route=route, top=off),
            "on": tidegate(program, route=route),
            # The same again: by how much two runs of one gateway differ.
            "off again": tidegate(program, route=route, top=off),
        }
        processes = []
        for number, (name, make) in enumerate(subjects.items()):
            process = make(folder, SMALL, f"analytics-{what.replace(' ', '-')}-{number}")
            process.name = name
            running.append(process)
            processes.append(process)
            if route:
                key = ask(process, "POST", "/v1/keys", {"consumer": "wrk"})["key"]
                process.fields = [f"X-Api-Key: {key}"]
        medians = row(f"analytics, a route {what}, a fast server", processes, "/", [256], arguments, "off")
        rates = {name: rate for name, (rate, *_) in medians.items()}
        most = max(rates["off"], 1)
        noise = abs(1 - rates["off again"] / most)
        cost = 1 - rates["on"] / most
        added = medians["on"][2] - medians["off"][2]
        said = "as wanted" if cost <= 0.01 + noise else "TOO MUCH"
        print(f"             analytics: {cost:+.1%} of the replies (at most 1.0 % + {noise:.1%} between two runs of one gateway: {said}), {added:+.2f} CPU us/reply")


def ask(process, method, path, document):
    """What the admin API answers."""
    request = urllib.request.Request(f"http://127.0.0.1:{process.pages}{path}", json.dumps(document).encode(), method=method)
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)


def store_calls(process):
    """Seconds that calls of the store took so far, and how many there were, by the histogram of the metrics page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{process.pages}/metrics") as reply:
        text = reply.read().decode()
    found = {kind: sum(float(value) for value in re.findall(rf"^tidegate_store_call_duration_seconds_{kind} (\S+)", text, re.M)) for kind in ("sum", "count")}
    return found["sum"], found["count"]


def calls(process):
    """Prints how long the store's calls took."""
    seconds, count = store_calls(process)
    if count:
        print(f"  {process.name:24s} {seconds / count * 1e6:8.0f} us a call of the store, {count:.0f} calls")


if __name__ == "__main__":
    main()
