#!/usr/bin/env python3
"""The metrics intake beside VictoriaMetrics, turn by turn (case.toml says what the rows are).

    regression/intake/run.py [--seconds 5] [--repeats 3] [--formats json,line,remote] [--batches 1,100,1000]
                             [--connections 64,256] [--rows rates,report,long,rising,query,recovery,latency,memory,kills]
                             [--lines 20000000] [--recovery-mb 2000] [--fill-seconds 120] [--flat-minutes 30] [--kill-seconds 60]
                             [--tidegate PROGRAM]

What is not installed is left out, and said. The rows but for the rates are in load_rows.py and log_rows.py; `flat` runs only
where --rows names it. Prometheus is no peer: it refuses the samples that several connections send out of their order.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

import load_rows
import log_rows

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SPEC = importlib.util.spec_from_file_location("gateway_run", HERE.parent / "gateway/run.py")
SHARED = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SHARED)

NOW_MS = 1_795_420_800_000
HOSTS = 100


def tags(number):
    return {"host": f"server-{number % HOSTS:02d}", "region": "eu-west-1"}


def json_batch(size):
    metrics = [{"name": "cpu.usage", "value": number + 0.5, "tags": tags(number)} for number in range(size)]
    return json.dumps({"metrics": metrics}, separators=(",", ":")).encode()


def line_batch(size):
    lines = []
    for number in range(size):
        labels = ",".join(f"{name}={value}" for name, value in tags(number).items())
        lines.append(f"cpu.usage,{labels} value={number + 0.5}")
    return "\n".join(lines).encode()


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def import_batch(size):
    """The same metrics as VictoriaMetrics imports them: a line of JSON each."""
    metric = [{"metric": {"__name__": "cpu.usage", **tags(number)}, "values": [number + 0.5], "timestamps": [NOW_MS + number]} for number in range(size)]
    return "\n".join(json.dumps(one, separators=(",", ":")) for one in metric).encode()


def remote_body(size):
    """A body of remote write, and where in it the times of its samples begin: six bytes each, which end their series."""
    parts, part, ends = [], b"", []
    for number in range(size):
        labels = {"__name__": "cpu_usage", **tags(number)}
        pairs = [field(1, name.encode()) + field(2, value.encode()) for name, value in sorted(labels.items())]
        sample = b"\x09" + struct.pack("<d", number + 0.5) + b"\x10" + varint(NOW_MS + number)
        part += field(1, b"".join(field(1, pair) for pair in pairs) + field(2, sample))
        ends.append((len(parts), len(part)))
        # Snappy without compression: literals of up to 64 KiB, each of whole series.
        if len(part) > 60_000:
            parts.append(part)
            part = b""
    parts.append(part)
    body, begin = varint(sum(map(len, parts))), []
    for part in filter(None, parts):
        body += bytes([61 << 2]) + struct.pack("<H", len(part) - 1)
        begin.append(len(body))
        body += part
    return body, [begin[at] + end - 6 for at, end in ends]


def remote_batch(size):
    return remote_body(size)[0]


# For each format its fields, and for each subject its path and who makes a batch.
FORMATS = {
    "json": ({"content-type": "application/json"}, {"tidegate": ("/metrics", json_batch), "victoria-metrics": ("/api/v1/import", import_batch)}),
    "line": ({"content-type": "text/plain"}, {"tidegate": ("/write", line_batch), "victoria-metrics": ("/write", line_batch)}),
    "remote": (
        {"content-type": "application/x-protobuf", "content-encoding": "snappy"},
        {"tidegate": ("/api/v1/write", remote_batch), "victoria-metrics": ("/api/v1/write", remote_batch)},
    ),
}


def tidegate(program, folder, retain=2 << 30):
    port, file = SHARED.free_port(), folder / "tidegate.toml"
    file.write_text(
        f'data_dir = "{folder}/data"\nlog.level = "warn"\nmemory.snapshot = false\n'
        'http.listen = "127.0.0.1:0"\ngrpc.listen = "127.0.0.1:0"\nresp.listen = "127.0.0.1:0"\n'
        # The same bytes are sent all the time, and each time they are kept.
        f'[intake]\nlisten = "127.0.0.1:{port}"\nrepeat_window = "0s"\nretain_bytes = {retain}\n'
    )
    return SHARED.Process("tidegate", [program, "serve", "--config", str(file)], port)


def victoria_metrics(folder):
    program = shutil.which("victoria-metrics")
    if program is None:
        print("victoria-metrics is not installed: left out")
        return None
    port = SHARED.free_port()
    command = [program, f"-httpListenAddr=127.0.0.1:{port}", f"-storageDataPath={folder}/victoria", "-loggerLevel=ERROR"]
    return SHARED.Process("victoria-metrics", command, port)


def script(folder, name, body, fields):
    """A script for wrk that sends this body, and counts what is answered otherwise than 2xx."""
    (folder / f"{name}.body").write_bytes(body)
    file = folder / f"{name}.lua"
    headers = "".join(f'wrk.headers["{field}"] = "{value}"\n' for field, value in fields.items())
    file.write_text(
        f'local file = io.open("{folder}/{name}.body", "rb")\nwrk.method = "POST"\nwrk.body = file:read("*a")\nfile:close()\n{headers}'
    )
    return file


def resident_mb(process):
    status = pathlib.Path(f"/proc/{process.child.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024


def measure(process, path, lua, size, connections, seconds):
    before = process.ticks()
    command = ["wrk", "-t2", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "10s", "-s", str(lua)]
    said = subprocess.run([*command, f"http://127.0.0.1:{process.port}{path}"], check=True, capture_output=True, text=True).stdout
    used = (process.ticks() - before) / SHARED.HERTZ
    count = int(re.search(r"(\d+) requests in", said)[1])
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1])
    number, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", said).groups()
    p99 = float(number) * {"us": 0.001, "ms": 1, "s": 1000}[unit]
    bad = sum(int(number) for number in re.findall(r"Non-2xx or 3xx responses: (\d+)", said))
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", said)
    bad += sum(map(int, errors.groups())) if errors else 0
    good = max(count - bad, 0)
    rate = rate * good / max(count, 1) * size
    return rate, p99, used / max(good * size, 1) * 1e6, resident_mb(process), bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=int(os.environ.get("SECONDS_EACH", "5")))
    parser.add_argument("--repeats", type=int, default=int(os.environ.get("REPEATS", "3")))
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--batches", default="1,100,1000")
    parser.add_argument("--connections", default="64,256")
    parser.add_argument("--rows", default="rates,report,long,rising,query,recovery,latency,memory,kills")
    parser.add_argument("--lines", type=int, default=20_000_000, help="of the row query; at most 12 GB of them are kept")
    parser.add_argument("--recovery-mb", type=int, default=2_000, help="of the row recovery, before it is compressed")
    parser.add_argument("--fill-seconds", type=int, default=120, help="longest time to fill a log")
    parser.add_argument("--kill-seconds", type=int, default=60, help="until kill -9: a peer that writes now and then has written")
    parser.add_argument("--flat-minutes", type=int, default=30, help="of the row flat")
    parser.add_argument("--tidegate", default=str(ROOT / "target/release/tidegate"))
    arguments = parser.parse_args()
    if not os.path.exists(arguments.tidegate):
        subprocess.run(["cargo", "build", "--release", "--locked", "-p", "tidegate", "--manifest-path", str(ROOT / "Cargo.toml")], check=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as name:
        folder = pathlib.Path(name)
        wanted = arguments.rows.split(",")
        if "rates" in wanted:
            running = [process for process in (tidegate(arguments.tidegate, folder), victoria_metrics(folder)) if process]
            try:
                rows(folder, running, arguments)
            finally:
                for process in reversed(running):
                    process.end()
        log_rows.rows(wanted, folder, arguments, sys.modules[__name__], load_rows.ALL)


def rows(folder, subjects, arguments):
    print("format  batch  connections  subject             metrics/s   p99 ms  CPU s/million  resident MB  errors  x victoria-metrics")
    for kind in arguments.formats.split(","):
        fields, ways = FORMATS[kind]
        for size in map(int, arguments.batches.split(",")):
            scripts = {name: script(folder, f"{name}-{kind}-{size}", make(size), fields) for name, (_, make) in ways.items()}
            for connections in map(int, arguments.connections.split(",")):
                able = [subject for subject in subjects if subject.name in ways]
                taken = {subject.name: [] for subject in able}
                for _ in range(arguments.repeats):
                    for subject in able:
                        path, lua = ways[subject.name][0], scripts[subject.name]
                        figures = measure(subject, path, lua, size, connections, arguments.seconds)
                        taken[subject.name].append(figures)
                medians = {name: [statistics.median(column) for column in zip(*runs)] for name, runs in taken.items()}
                for name, (rate, p99, cpu, resident, bad) in medians.items():
                    peer = medians.get("victoria-metrics")
                    ratio = f"{rate / max(peer[0], 1):6.2f}" if peer else "     -"
                    print(
                        f"{kind:6s} {size:6d} {connections:12d}  {name:17s} {rate:11.0f} {p99:8.2f} {cpu:14.2f} {resident:12.0f} {bad:7.0f}  {ratio}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
