#!/usr/bin/env python3
"""The TCP edge against nginx, HAProxy and Envoy, turn by turn (case.toml says what the rows are).

    regression/edge/run.py [--seconds 3] [--repeats 3] [--tidegate PROGRAM]
        [--rows requests,connections,bulk,idle,placement,pairs,distance,takeover,convergence]

What is not installed is left out, and said. Each proxy has the cores that are there, the server one worker more.
"""

import argparse
import importlib.util
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

HERE = pathlib.Path(__file__).resolve().parent
SPEC = importlib.util.spec_from_file_location("gateway", HERE.parent / "gateway/run.py")
gateway = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(gateway)

CORES, HERTZ, ROOT = gateway.CORES, gateway.HERTZ, gateway.ROOT
SERVER = gateway.SMALL
BULK_BYTES = 64 << 20
IDLE_PAIRS = 4000


def server(folder):
    files = folder / "files"
    files.mkdir()
    (files / "bulk").write_bytes(bytes(BULK_BYTES))
    return gateway.nginx(
        folder, "server", SERVER,
        f"server {{ listen 127.0.0.1:{SERVER} backlog=4096; client_header_timeout 600s; location / {{ return 200 hello; }}\n"
        f"location = /bulk {{ root {files}; }} }}",
    )


def nginx(folder):
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    modules = [path for path in ["/usr/lib/nginx/modules/ngx_stream_module.so"] if os.path.exists(path)]
    built_in = subprocess.run([program, "-V"], capture_output=True, text=True).stderr
    if not modules and not re.search(r"--with-stream(?!=dynamic)\b", built_in):
        return None
    port, at = gateway.free_port(), folder / "nginx-stream"
    at.mkdir()
    load = "".join(f"load_module {path};\n" for path in modules)
    (at / "nginx.conf").write_text(
        f"{load}daemon off; worker_processes {CORES}; pid {at}/pid; error_log {at}/error.log; worker_rlimit_nofile 20000;\n"
        f"events {{ worker_connections 9000; }}\nstream {{ server {{ listen 127.0.0.1:{port} backlog=4096; "
        f"proxy_pass 127.0.0.1:{SERVER}; }} }}\n"
    )
    return gateway.Process("nginx", [program, "-p", str(at), "-c", str(at / "nginx.conf")], port)


def haproxy(folder):
    program = shutil.which("haproxy") or "/usr/sbin/haproxy"
    if not os.path.exists(program):
        return None
    port, file = gateway.free_port(), folder / "haproxy.cfg"
    file.write_text(
        f"global\n nbthread {CORES}\n maxconn 8900\n maxpipes 400\ndefaults\n mode tcp\n option splice-auto\n timeout connect 5s\n"
        " timeout client 600s\n timeout server 600s\n"
        f"frontend f\n bind 127.0.0.1:{port}\n default_backend b\nbackend b\n server s 127.0.0.1:{SERVER}\n"
    )
    return gateway.Process("haproxy", [program, "-db", "-f", str(file)], port)


def envoy(folder):
    program = gateway.envoy_program()
    if program is None:
        return None
    port, file = gateway.free_port(), folder / "envoy.yaml"
    address = "{ socket_address: { address: 127.0.0.1, port_value: %d } }"
    proxy = "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"
    file.write_text(f"""
static_resources:
  listeners:
  - address: {address % port}
    filter_chains:
    - filters: [{{ name: tcp, typed_config: {{ "@type": {proxy}, stat_prefix: tcp, cluster: server }} }}]
  clusters:
  - name: server
    type: STATIC
    circuit_breakers: {{ thresholds: [{{ max_connections: 9000, max_pending_requests: 9000 }}] }}
    load_assignment: {{ cluster_name: server, endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {address % SERVER} }} }}] }}] }}
""")
    command = [program, "-c", str(file), "--concurrency", str(CORES), "--disable-hot-restart", "-l", "error"]
    return gateway.Process("envoy", command, port)


def tidegate(program):
    def start(folder):
        port, at = gateway.free_port(), folder / "tidegate"
        at.mkdir()
        (at / "tidegate.toml").write_text(
            f'data_dir = "{at}/data"\nlog.level = "warn"\nmemory.snapshot = false\nintake.listen = "off"\n'
            'http.listen = "127.0.0.1:0"\ngrpc.listen = "127.0.0.1:0"\nresp.listen = "127.0.0.1:0"\nedge.api_listen = "off"\n'
            f'[[edge.listener]]\nlisten = "127.0.0.1:{port}"\n'
            f'[[edge.backend]]\nname = "server"\naddress = "127.0.0.1:{SERVER}"\nsoft_limit = 9000\nhard_limit = 9000\n'
        )
        return gateway.Process("tidegate", [program, "serve", "--config", str(at / "tidegate.toml")], port)

    return start


def wrk(process, path, connections, seconds, *more):
    """Requests and bytes per second, CPU seconds of the proxy, the count of requests and bytes, and errors."""
    before = process.ticks()
    command = ["wrk", f"-t{min(CORES, 4, connections)}", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", *more]
    said = subprocess.run(
        [*command, f"http://127.0.0.1:{process.port}{path}"], check=True, capture_output=True, text=True
    ).stdout
    used = (process.ticks() - before) / HERTZ
    count, number, unit = re.search(r"(\d+) requests in .*, ([\d.]+)(B|KB|MB|GB) read", said).groups()
    volume = float(number) * {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}[unit]
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1])
    number, unit = re.search(r"Transfer/sec:\s+([\d.]+)(B|KB|MB|GB)", said).groups()
    speed = float(number) * {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}[unit]
    bad = sum(map(int, re.findall(r"Non-2xx or 3xx responses: (\d+)", said)))
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", said)
    bad += sum(map(int, errors.groups())) if errors else 0
    return {"rate": rate, "speed": speed, "cpu": used, "count": max(int(count), 1), "volume": max(volume, 1), "bad": bad}


def row(title, unit, subjects, levels, arguments, measure):
    """Measures by turns; `measure` gives the figure, its cost, and errors. Prints medians and the edge's ratios."""
    print(f"\n{title}\n      level  proxy           {unit[0]:>14s} {unit[1]:>16s}  errors")
    for level in levels:
        taken = {subject.name: [] for subject in subjects}
        for _ in range(arguments.repeats):
            for subject in subjects:
                taken[subject.name].append(measure(subject, level))
        medians = {name: [statistics.median(column) for column in zip(*runs)] for name, runs in taken.items()}
        for name, (figure, cost, bad) in medians.items():
            print(f"{level:11d}  {name:14s} {figure:15.2f} {cost:16.3f} {bad:7.0f}", flush=True)
        peers = {name: median for name, median in medians.items() if name != "tidegate"}
        if peers and "tidegate" in medians:
            own, best = medians["tidegate"], max(peers, key=lambda name: peers[name][0])
            figure, cost = own[0] / max(peers[best][0], 1e-9), own[1] / max(peers[best][1], 1e-9)
            print(f"             tidegate: {figure:.2f} x {best}, the best of the others, at {cost:.2f} x its cost", flush=True)


def memory(process):
    """Bytes of a proxy and its children that are in use."""
    pids, total = [process.child.pid], 0
    while pids:
        pid = pids.pop()
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
        pids += [int(word) for word in children.read_text().split()] if children.exists() else []
        total += int(re.search(r"Rss:\s+(\d+)", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text())[1]) << 10
    return total


def idle(subjects):
    """Memory per idle pair: each connection has had one small request."""
    print(f"\nmemory of {IDLE_PAIRS} idle pairs of connections, beside the kernel's\nproxy           KB per pair")
    for process in subjects:
        before, held = memory(process), []
        try:
            for _ in range(IDLE_PAIRS):
                client = socket.create_connection(("127.0.0.1", process.port), 30)
                client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                client.recv(4096)
                held.append(client)
            time.sleep(1)
            print(f"{process.name:14s} {(memory(process) - before) / len(held) / 1024:12.2f}", flush=True)
        except OSError as error:
            print(f"{process.name:14s} fails after {len(held)} connections: {error}")
        for client in held:
            client.close()


def placement():
    print("\nwhat a placement costs, by the number of backends", flush=True)
    for crate, example in [("tidegate-algorithms", "placement_cost"), ("tidegate-edge", "place_cost")]:
        cargo = ["cargo", "run", "--quiet", "--release", "--locked", "-p", crate, "--example", example]
        subprocess.run([*cargo, "--manifest-path", str(ROOT / "Cargo.toml")], check=True)


def script(name, *arguments):
    """A row that is a program of its own."""
    sys.stdout.flush()
    if subprocess.run([sys.executable, str(HERE / name), *arguments]).returncode:
        print(f"{name}: not as expected", flush=True)


def alone(rows, arguments):
    """The rows that have no peers."""
    program = ("--tidegate", arguments.tidegate)
    if "placement" in rows:
        placement()
    if "pairs" in rows:
        print("\npairs of connections in one process, and in two that share the port")
        script("pairs.py", *program)
    if "distance" in rows:
        print(f"\nthrough the edge at 200 ms, {arguments.seconds} s each")
        script("distance.py", "--seconds", str(arguments.seconds), *program)
    if "takeover" in rows:
        print("\none process in the place of another, under load")
        script("takeover.py", *program)
    if "convergence" in rows:
        print("\nthree edges on one PostgreSQL")
        script("convergence.py", "--repeats", str(arguments.repeats), *program)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=int(os.environ.get("SECONDS_EACH", "3")))
    parser.add_argument("--repeats", type=int, default=int(os.environ.get("REPEATS", "3")))
    parser.add_argument("--rows", default="requests,connections,bulk,idle,placement,pairs,distance,takeover,convergence")
    parser.add_argument("--tidegate", default=str(ROOT / "target/release/tidegate"))
    arguments = parser.parse_args()
    if not os.path.exists(arguments.tidegate):
        subprocess.run(["cargo", "build", "--release", "--locked", "-p", "tidegate", "--manifest-path", str(ROOT / "Cargo.toml")], check=True)
    rows, seconds = arguments.rows.split(","), arguments.seconds
    running = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        try:
            running.append(server(folder))
            subjects = []
            for kind, make in {"nginx": nginx, "haproxy": haproxy, "envoy": envoy, "tidegate": tidegate(arguments.tidegate)}.items():
                process = make(folder)
                if process is None:
                    print(f"{kind} is not installed, or cannot do this: left out")
                    continue
                subjects.append(process)
                running.append(process)

            def requests(process, connections):
                said = wrk(process, "/", connections, seconds)
                return said["rate"], said["cpu"] * 1e6 / said["count"], said["bad"]

            def short(process, connections):
                said = wrk(process, "/", connections, seconds, "-H", "Connection: close")
                return said["rate"], said["cpu"] * 1e6 / said["count"], said["bad"]

            def bulk(process, streams):
                said = wrk(process, "/bulk", streams, seconds)
                return said["speed"] / 1e9, said["cpu"] / (said["volume"] / 1e9), said["bad"]

            if "requests" in rows:
                unit = ("requests/s", "CPU us/request")
                row("requests on long connections", unit, subjects, [64, 1000], arguments, requests)
            if "connections" in rows:
                unit = ("connections/s", "CPU us/each")
                row("new connections, one request on each", unit, subjects, [64], arguments, short)
            if "bulk" in rows:
                row("bulk, by streams", ("GB/s", "CPU s/GB"), subjects, [1, 8], arguments, bulk)
            if "idle" in rows:
                idle(subjects)
        finally:
            for process in reversed(running):
                process.end()
    alone(rows, arguments)


if __name__ == "__main__":
    main()
