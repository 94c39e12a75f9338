"""What the intake takes, beyond the rates of run.py, which prints these rows.

report  the five rows of the metrics intake's report, by `tidegate load`, every reply checked
long    longer lines: bytes of lines kept a second, beside what the disk writes in sequence past the page cache, turn by turn
rising  remote write whose samples have rising timestamps, as a Prometheus sends them
flat    --flat-minutes under full load with a retention of 2 GB: rate, memory and disk, minute by minute
"""

import http.client
import json
import mmap
import os
import statistics
import subprocess
import time

ROWS = ("light", "medium", "high", "max", "stress")
CONNECTIONS = 64
BATCH = 1_000
# Bytes that are written to see how fast the disk is.
DISK_BYTES = 2 << 30
# The retention under which the row `flat` runs.
RETAIN = 2 << 30


def report(start, folder, arguments, _tools):
    server = start(folder)
    print("report: row      good  denied  errors  good/s   p50 ms   p99 ms  thresholds")
    try:
        for row in ROWS:
            command = [arguments.tidegate, "load", f"http://127.0.0.1:{server.port}", "-s", f"intake-{row}", "--json", "--force"]
            ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
            record = json.loads(ran.stdout.splitlines()[0])
            response = record["response"]
            print(
                f"        {row:7s} {record['good']:5d} {record['denied']:7d} {sum(record['errors'].values()):7d} "
                f"{record['good'] / record['seconds']:7.0f} {response['p50_us'] / 1000:8.2f} {response['p99_us'] / 1000:8.2f}  "
                f"{'met' if ran.returncode == 0 else 'missed'}",
                flush=True,
            )
    finally:
        server.end()


def disk_rate(folder):
    """Bytes a second that the disk takes in sequence, past the page cache, with the sync at their end."""
    file = folder / "sequence"
    # Aligned to a page, as direct writes must be.
    with mmap.mmap(-1, 4 << 20) as block:
        block.write(os.urandom(len(block)))
        out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
        try:
            begun = time.monotonic()
            written = 0
            while written < DISK_BYTES:
                written += os.write(out, block)
            os.fdatasync(out)
            took = time.monotonic() - begun
        finally:
            os.close(out)
            file.unlink()
    return written / took


def line_bytes(port):
    """How long a kept line is, on average over some."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/v1/intake/read?from=oldest&max=1000")
    body = connection.getresponse().read()
    return len(body) / max(body.count(b"\n"), 1)


def long_batch(size):
    def tags(number):
        return {"host": f"server-{number % 100:02d}.eu-west-1.example.com", "region": "eu-west-1", "service": "checkout", "version": "2026.11.23"}

    metrics = [{"name": "http.server.request.duration", "value": number + 0.5, "tags": tags(number)} for number in range(size)]
    return json.dumps({"metrics": metrics}, separators=(",", ":")).encode()


def long(start, folder, arguments, tools):
    server = start(folder)
    print("long: line bytes  metrics/s  lines MB/s  disk MB/s in sequence  ratio")
    try:
        lua = tools.script(folder, "long", long_batch(BATCH), {"content-type": "application/json"})
        ratios = []
        for _ in range(arguments.repeats):
            # Before and after, for the disk is not the same from one second to the next.
            before = disk_rate(folder)
            rate = tools.measure(server, "/metrics", lua, BATCH, CONNECTIONS, arguments.seconds)[0]
            length = line_bytes(server.port)
            kept = rate * length
            disk = (before + disk_rate(folder)) / 2
            ratios.append(kept / disk)
            print(f"      {length:10.0f} {rate:10.0f} {kept / 1e6:11.0f} {disk / 1e6:22.0f} {kept / disk:6.2f}", flush=True)
        print(f"      median of the ratios: {statistics.median(ratios):.2f}", flush=True)
    finally:
        server.end()


# Each request has the times after those of the one before it: six bytes of a varint at known places of the body. They are
# written in place, so that making a body costs a copy of it and little of the processor that both sides share.
RISING = """
local file = io.open("{body}", "rb")
local body = file:read("*a")
file:close()
local places = {{{places}}}
local ffi, bit, floor = require("ffi"), require("bit"), math.floor
local band, bor, rshift = bit.band, bit.bor, bit.rshift
local buffer = ffi.new("uint8_t[?]", #body)
ffi.copy(buffer, body, #body)
local function write(place, number)
  local low, high = number % 268435456, floor(number / 268435456)
  buffer[place] = bor(band(low, 127), 128)
  buffer[place + 1] = bor(band(rshift(low, 7), 127), 128)
  buffer[place + 2] = bor(band(rshift(low, 14), 127), 128)
  buffer[place + 3] = bor(rshift(low, 21), 128)
  buffer[place + 4] = bor(band(high, 127), 128)
  buffer[place + 5] = rshift(high, 7)
end
local next = {start}
wrk.method = "POST"
wrk.headers["content-type"] = "application/x-protobuf"
wrk.headers["content-encoding"] = "snappy"
function request()
  for at = 1, #places do write(places[at], next + at) end
  next = next + #places
  return wrk.format(nil, nil, nil, ffi.string(buffer, #body))
end
"""


def rising_script(folder, size, tools):
    """A script for wrk that writes the times anew for each request."""
    body, places = tools.remote_body(size)
    (folder / f"rising-{size}.body").write_bytes(body)
    file = folder / f"rising-{size}.lua"
    text = RISING.format(body=folder / f"rising-{size}.body", places=",".join(map(str, places)), start=tools.NOW_MS)
    file.write_text(text)
    return file


def rising(start, folder, arguments, tools):
    server = start(folder)
    print("rising: batch  connections  metrics/s   p99 ms  CPU s/million  errors")
    try:
        for size in (100, 1_000):
            lua = rising_script(folder, size, tools)
            for connections in map(int, arguments.connections.split(",")):
                rate, p99, cpu, _, bad = tools.measure(server, "/api/v1/write", lua, size, connections, arguments.seconds)
                print(f"       {size:6d} {connections:12d} {rate:10.0f} {p99:8.2f} {cpu:14.2f} {bad:7d}", flush=True)
    finally:
        server.end()


def disk_mb(folder):
    total = 0
    for file in (folder / "data/intake").rglob("*"):
        try:
            total += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:
            continue
    return total / 1e6


def flat(_start, folder, arguments, tools):
    server = tools.tidegate(arguments.tidegate, folder, retain=RETAIN)
    print(f"flat: minute  metrics/s   p99 ms  resident MB  disk MB  errors (retention {RETAIN / 1e6:.0f} MB)")
    try:
        lua = tools.script(folder, "flat", tools.json_batch(100), {"content-type": "application/json"})
        for minute in range(arguments.flat_minutes):
            rate, p99, _, resident, bad = tools.measure(server, "/metrics", lua, 100, CONNECTIONS, 60)
            print(f"      {minute + 1:6d} {rate:10.0f} {p99:8.2f} {resident:12.0f} {disk_mb(folder):8.0f} {bad:7d}", flush=True)
    finally:
        server.end()


ALL = {"report": report, "long": long, "rising": rising, "flat": flat}
