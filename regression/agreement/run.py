#!/usr/bin/env python3
"""The load generator against references on the same target, and against the target's own account.

Each row is one claim with both figures and the difference allowed; the exit status is 1 when one fails.

    closed loop    throughput of a scenario within 3 % of wrk's, turn by turn, medians of REPEATS
    fixed rate     throughput of a scenario within 3 % of h2load's at the same rate, and of that rate
    stall          1,000 a second, the server frozen for one: p90, p99 and maximum within 3 % of the arithmetic,
                   and p90 of what the server itself took, 10.5 ms, within 1.5
    thinking       20 connections that wait 20 ms after each reply: 980 a second within 40
    overload       1,000 a second for two workers of 10 ms: 200 good replies a second within 10
    accuracy       64 connections, 10 ms: p50 within 0.2 ms, p99 within 0.5 ms of the server's histogram
    fairness       10,000 connections on a pool: p50 and p99 within 5 % of the server's histogram
    one process    19,000 connections at once where a process may hold 20,000 descriptors, no error

Takes about two and a half minutes. Needs wrk and h2load; nothing else may run on the machine.

    regression/agreement/run.py [path to tidegate]
"""

import contextlib
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
TIDEGATE = str(pathlib.Path(sys.argv[1]).resolve() if sys.argv[1:] else HERE / "../../target/release/tidegate")
REPEATS = int(os.environ.get("REPEATS", "3"))
SECONDS = int(os.environ.get("SECONDS_EACH", "5"))
failed = False


@contextlib.contextmanager
def stub(*behaviour):
    """A stub with a behaviour; gives its URL."""
    command = [TIDEGATE, "stub", "127.0.0.1:0", *behaviour]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield "http://" + child.stdout.readline().strip().removeprefix("listening on ") + "/"
    finally:
        child.terminate()
        child.communicate()


def said(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def step(url, *flags):
    """The record of one step of `tidegate load`."""
    return json.loads(said(TIDEGATE, "load", url, "--json", *flags).splitlines()[0])


def scenario(url, text):
    """The record of a scenario file's only step."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write('name = "agreement"\n[[request]]\npath = "/"\n[[step]]\nwarmup_s = 1\n' + text)
        file.flush()
        return step(url, "-s", file.name)


def wrk(url, connections):
    """Requests per second by wrk."""
    text = said("wrk", "-t2", f"-c{connections}", f"-d{SECONDS}s", url)
    return float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1])


def h2load(url, connections, each):
    """Requests per second by h2load, which sends each client's at a fixed rate."""
    flags = ["--h1", "-t1", f"-c{connections}", f"--rps={each}", "--warm-up-time=1", f"-D{SECONDS}"]
    return float(re.search(r"([\d.]+) req/s", said("h2load", *flags, url))[1])


def account(url):
    return json.load(urllib.request.urlopen(url + "__stub/stats"))


def row(what, own, reference, allowed, unit):
    global failed
    kept = abs(own - reference) <= allowed
    failed |= not kept
    print(f"{what:<44} {own:>11,.2f} {reference:>11,.2f} {unit:<4} +-{allowed:,.2f} {'ok' if kept else 'FAILED'}", flush=True)


def closed_loop():
    for what, connections, behaviour in [
        ("pool of 8, 10 ms", 64, ["--delay-ms", "10", "--workers", "8"]),
        ("10 ms, no pool", 64, ["--delay-ms", "10"]),
        ("10 ms, no pool", 256, ["--delay-ms", "10", "--threads", "2"]),
    ]:
        with stub(*behaviour) as url:
            own, other = [], []
            for _ in range(REPEATS):
                own.append(scenario(url, f"connections = {connections}\nduration_s = {SECONDS}\n")["throughput"]["mean"])
                other.append(wrk(url, connections))
        own, other = statistics.median(own), statistics.median(other)
        row(f"closed loop, {connections} on {what}: wrk", own, other, 0.03 * other, "/s")


def fixed_rate():
    for connections, each in [(50, 20), (50, 100)]:
        rate = connections * each
        with stub("--delay-ms", "2") as url:
            own = scenario(url, f"connections = {connections}\nduration_s = {SECONDS}\nrate = {rate}\n")
            other = h2load(url, connections, each)
        own = own["good"] / own["seconds"]
        row(f"fixed rate, {rate}/s: h2load", own, other, 0.03 * other, "/s")
        row(f"fixed rate, {rate}/s: the rate itself", own, rate, 0.03 * rate, "/s")


def accuracy():
    with stub("--delay-ms", "10") as url:
        step(url, "-c", "64", "-d", "1", "-w", "0")
        urllib.request.urlopen(url + "__stub/reset").read()
        own = step(url, "-c", "64", "-d", str(SECONDS), "-w", "0")
        truth = account(url)
    for name, allowed in [("p50", 0.2), ("p99", 0.5)]:
        found, real = own["response"][f"{name}_us"] / 1e3, truth[f"service_{name}_us"] / 1e3
        row(f"accuracy, 64 on 10 ms, {name}: the server", found, real, allowed, "ms")


def stall():
    # 10 ms with the timer and the wake-up. While the server stands still 1,000 requests come due; then
    # 50 connections end 4,850 a second, so the queue is gone after 0.26 s more.
    with stub("--delay-ms", "10.3", "--freeze-ms", "4000:1000") as url:
        own = step(url, "-c", "50", "-r", "1000", "-d", "10", "-w", "0", "-t", "1")
    for name, truth in [("p90", 219), ("p99", 932), ("max", 1_010)]:
        row(f"stall of a second, {name}: the arithmetic", own["response"][f"{name}_us"] / 1e3, truth, 0.03 * truth, "ms")
    row("stall of a second, p90 of the service alone", own["service"]["p90_us"] / 1e3, 10.5, 1.5, "ms")


def thinking():
    with stub() as url:
        own = scenario(url, f"connections = 20\nduration_s = {SECONDS}\nthink_ms = 20\n")
    row("thinking, 20 on 20 ms: the arithmetic", own["throughput"]["mean"], 980, 40, "/s")


def overload():
    with stub("--delay-ms", "10", "--workers", "2") as url:
        own = step(url, "-c", "10", "-r", "1000", "-d", str(SECONDS), "-w", "0", "-t", "1")
    row("overload, two workers of 10 ms: the arithmetic", own["throughput"]["mean"], 200, 10, "/s")


def fairness():
    with stub("--delay-ms", "1", "--workers", "10") as url:
        step(url, "-c", "10000", "-d", "3", "-w", "0")
        urllib.request.urlopen(url + "__stub/reset").read()
        own = step(url, "-c", "10000", "-d", "12", "-w", "0", "-p", "1")
        truth = account(url)
    for name in ["p50", "p99"]:
        found, real = own["response"][f"{name}_us"] / 1e3, truth[f"service_{name}_us"] / 1e3
        row(f"fairness, 10,000 on a pool, {name}: the server", found, real, 0.05 * real, "ms")


def one_process():
    with stub("--delay-ms", "2000") as url:
        own = step(url, "-c", "19000", "-n", "19000", "-d", "60", "-w", "0", "-p", "1")
        truth = account(url)
    row("one process, 19,000: good replies", own["good"], 19_000, 0, "")
    row("one process, 19,000: in flight at the server", truth["in_flight_max"], 19_000, 0, "")


resource.setrlimit(resource.RLIMIT_NOFILE, (20_000, 20_000))
print(f"{'claim':<44} {'tidegate':>11} {'reference':>11}      allowed")
for case in [closed_loop, fixed_rate, stall, thinking, overload, accuracy, fairness, one_process]:
    case()
sys.exit(failed)
