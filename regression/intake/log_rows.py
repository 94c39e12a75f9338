"""What the log behind the intake costs as it grows, and what is lost at kill -9 (run.py prints these at the end).

    query     one name's last 3,600 points, among a quarter, half and all of --lines lines
    recovery  from start to the first healthy reply, after kill -9, with the indexes of the log and without
    latency   p99 at 80 % of the metrics/s that the machine takes at 64 connections, in an open loop
    memory    most resident memory at 64 connections in batches of 100
    kills     metrics acknowledged before kill -9 after --kill-seconds, and found after a restart
"""

import concurrent.futures
import http.client
import itertools
import json
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import threading
import time
import urllib.parse

NAMES = 1_000
START_MS = 1_795_420_800_000
POINTS = 3_600
# A line of the query and recovery rows takes about so many bytes on the disk until it is compressed.
LINE_BYTES = 110
# Most bytes that --lines may take on the disk.
MOST_BYTES = 12 << 30
CONNECTIONS = 64
SENDERS = 8


class Sender:
    """A connection that sends batches."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def post(self, path, body):
        self.connection.request("POST", path, body)
        reply = self.connection.getresponse()
        reply.read()
        return reply.status


def ask(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("GET", path)
    reply = connection.getresponse()
    body = reply.read()
    if reply.status != 200:
        raise SystemExit(f"GET {path}: {reply.status} {body[:200]!r}")
    return body


def fill(server, first, end, deadline):
    """One line of each name for each second from `first` to `end`, a batch a second; where it came until the deadline."""
    template = "".join(f"row.{name:04d},host=server-{name % 100:02d} value={name}.5 @\n" for name in range(NAMES))
    local = threading.local()

    def send(second):
        if not hasattr(local, "sender"):
            local.sender = Sender(server.port)
        body = template.replace("@", str(START_MS + second * 1000)).encode()
        while (status := local.sender.post("/write?precision=ms&ack=written", body)) in (429, 503):
            time.sleep(0.05)
        if status != 204:
            raise SystemExit(f"a batch was answered {status}")

    with concurrent.futures.ThreadPoolExecutor(SENDERS) as pool:
        while first < end and time.monotonic() < deadline:
            part = range(first, min(first + 1_000, end))
            list(pool.map(send, part))
            first = part.stop
    return first


def disk_mb(folder):
    files = (folder / "data/intake").rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def query(start, folder, arguments):
    lines = min(arguments.lines, MOST_BYTES // LINE_BYTES)
    server = start(folder)
    print("query: lines kept  disk MB  median ms  slowest ms  points  complete")
    deadline = time.monotonic() + arguments.fill_seconds
    try:
        seconds = 0
        for part in (4, 2, 1):
            seconds = fill(server, seconds, max(lines // part // NAMES, 1), deadline)
            end = START_MS + seconds * 1000
            wanted = {"name": "row.0500", "start": end - POINTS * 1000, "end": end, "step": "1s"}
            took, answer = [], {}
            for _ in range(5):
                begun = time.monotonic()
                answer = json.loads(ask(server.port, "/v1/intake/query?" + urllib.parse.urlencode(wanted)))
                took.append((time.monotonic() - begun) * 1000)
            found = len(answer["points"])
            print(
                f"       {seconds * NAMES:10d} {disk_mb(folder):8.0f} {statistics.median(took):10.1f} {max(took):11.1f} {found:7d}  {answer['complete']}",
                flush=True,
            )
            if found != min(POINTS, seconds):
                raise SystemExit(f"{min(POINTS, seconds)} points were sent")
    finally:
        server.end()


def healthy_after(start, folder):
    """Starts the server; seconds until it answers."""
    begun = time.monotonic()
    server = start(folder)
    ask(server.port, "/health")
    return server, time.monotonic() - begun


def kill(server):
    server.child.send_signal(signal.SIGKILL)
    server.child.wait()


def recovery(start, folder, arguments):
    print("recovery: lines  disk MB  s with index  s without index")
    deadline = time.monotonic() + arguments.fill_seconds
    seconds, server = 0, start(folder)
    try:
        for part in (4, 2, 1):
            wanted = max(arguments.recovery_mb * 1_000_000 // LINE_BYTES // part // NAMES, 1)
            seconds = fill(server, seconds, wanted, deadline)
            kill(server)
            server, with_index = healthy_after(start, folder)
            kill(server)
            for index in (folder / "data/intake").rglob("*.index"):
                index.unlink()
            size = disk_mb(folder)
            server, without = healthy_after(start, folder)
            print(f"      {seconds * NAMES:9d} {size:8.0f} {with_index:13.2f} {without:16.2f}", flush=True)
    finally:
        server.end()


def latency(start, folder, arguments, tools):
    server = start(folder)
    try:
        body = tools.json_batch(100)
        lua = tools.script(folder, "capacity", body, {"content-type": "application/json"})
        capacity = tools.measure(server, "/metrics", lua, 100, CONNECTIONS, arguments.seconds)[0]
        command = [
            arguments.tidegate, "load", f"http://127.0.0.1:{server.port}/metrics", "--data", f"@{folder}/capacity.body",
            "--header", "content-type: application/json", "--connections", str(CONNECTIONS), "--rate", f"{0.8 * capacity / 100:.0f}",
            "--step-seconds", str(arguments.seconds), "--json", "--force",
        ]  # fmt: skip
        said = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60 + 4 * arguments.seconds).stdout
        record = json.loads(said.splitlines()[0])
        errors = sum(record["errors"].values())
        response = record["response"]
        print("latency: metrics/s at most  offered  good  p50 ms  p99 ms  errors  why it is not the server's")
        print(
            f"         {capacity:18.0f} {0.8 * capacity:8.0f} {record['good'] / record['seconds'] * 100:5.0f} "
            f"{response['p50_us'] / 1000:7.2f} {response['p99_us'] / 1000:7.2f} {errors:7d}  {record['refusals'] or '-'}",
            flush=True,
        )
    finally:
        server.end()


def memory(start, folder, arguments, tools):
    server = start(folder)
    try:
        lua = tools.script(folder, "memory", tools.json_batch(100), {"content-type": "application/json"})
        rate = tools.measure(server, "/metrics", lua, 100, CONNECTIONS, arguments.seconds)[0]
        status = pathlib.Path(f"/proc/{server.child.pid}/status").read_text()
        most = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024
        print(f"memory: {most:.0f} MB resident at most, at {CONNECTIONS} connections in batches of 100, {rate:.0f} metrics/s", flush=True)
    finally:
        server.end()


def send_until(server, seconds, killed):
    """Sends batches of 100 lines, each with a time of its own, until the server is gone; how many lines were acknowledged."""
    numbers = itertools.count()
    acknowledged = [0] * SENDERS

    def send(number):
        sender = Sender(server.port)
        try:
            while not killed.is_set():
                first = START_MS + next(numbers) * 100
                body = "".join(f"killed value={at} {at}\n" for at in range(first, first + 100)).encode()
                if sender.post("/write?precision=ms", body) // 100 == 2:
                    acknowledged[number] += 100
        except (OSError, http.client.HTTPException):
            pass

    threads = [threading.Thread(target=send, args=[number]) for number in range(SENDERS)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    kill(server)
    killed.set()
    for thread in threads:
        thread.join()
    return sum(acknowledged)


def found_by_tidegate(server, folder, program):
    said = subprocess.run([program, "intake", "verify", f"{folder}/data/intake"], check=False, capture_output=True, text=True).stdout
    return sum(int(lines) for lines in re.findall(r"partition \d+: (\d+) lines", said))


def found_by_victoria(server):
    # What was written to its memory a moment ago is not searched yet, and it is what the disk gave back.
    ask(server.port, "/internal/force_flush")
    text = ask(server.port, "/api/v1/export?" + urllib.parse.urlencode({"match[]": "killed_value", "start": START_MS // 1000 - 1}))
    return sum(len(json.loads(line)["timestamps"]) for line in text.splitlines())


def kills(folder, arguments, tools):
    print("kills: subject            acknowledged     found  acknowledged and lost")
    place = folder / "killed"
    place.mkdir()
    server = tools.tidegate(arguments.tidegate, place)
    acknowledged = send_until(server, arguments.kill_seconds, threading.Event())
    server = tools.tidegate(arguments.tidegate, place)
    server.end()
    report("tidegate", acknowledged, found_by_tidegate(server, place, arguments.tidegate))
    server = tools.victoria_metrics(place)
    if server is None:
        return
    acknowledged = send_until(server, arguments.kill_seconds, threading.Event())
    server = tools.victoria_metrics(place)
    try:
        report("victoria-metrics", acknowledged, found_by_victoria(server))
    finally:
        server.end()


def report(name, acknowledged, found):
    print(f"       {name:17s} {acknowledged:13d} {found:9d} {max(acknowledged - found, 0):22d}", flush=True)


def rows(wanted, folder, arguments, tools, others):
    """Prints the rows that are wanted, each on a log of its own: `others` first."""

    def start(place):
        return tools.tidegate(arguments.tidegate, place, retain=MOST_BYTES * 2)

    for name, row in (*others.items(), ("query", query), ("recovery", recovery), ("latency", latency), ("memory", memory)):
        if name in wanted:
            place = folder / name
            place.mkdir()
            more = () if name in ("query", "recovery") else (tools,)
            row(start, place, arguments, *more)
            shutil.rmtree(place)
    if "kills" in wanted:
        kills(folder, arguments, tools)
