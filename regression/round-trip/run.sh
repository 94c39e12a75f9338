#!/bin/sh
# The edge report's first two rows, 100 and 500 connections, at a real round trip of 200 ms. Expected:
# about 500/s and 2,500/s, and the cause of both is the distance: `round-trip-floor`. The server is
# beyond a TUN device in a network namespace; needs /dev/net/tun and user namespaces, takes 15 s.
# On a busy machine the wire itself is late: then `chrt -f 2` before it.
#   regression/round-trip/run.sh [path to tidegate]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tidegate=$(realpath "${1:-$here/../../target/release/tidegate}")
if [ "${inside:-}" != yes ]; then
    exec env inside=yes unshare --map-root-user --net "$0" "$tidegate"
fi
scratch=$(mktemp -d)
wire=
server=
trap 'kill $wire $server 2>/dev/null || :; rm -rf "$scratch"' EXIT INT TERM
mkfifo "$scratch/said"
# Open at both ends, so that neither writer loses its reader.
exec 3<>"$scratch/said"
ip link set lo up
python3 "$here/delay.py" 100 >&3 &
wire=$!
read -r _ <&3
ip address add 10.77.0.1/24 dev wire
ip link set wire txqueuelen 10000 up
"$tidegate" stub 10.77.0.1:4100 >&3 &
server=$!
read -r _ <&3
"$tidegate" saturate http://10.77.0.2:4100/ --levels 100,500 --step-seconds 5 --warmup-seconds 1 \
    --repeats 1 --json "$scratch/report.json"
python3 - "$scratch/report.json" <<'END'
import json, sys
rows = json.load(open(sys.argv[1]))["levels"]
for row in rows:
    print(f"{row['load']:.0f} connections: {row['throughput'] or 0:.0f}/s, {row['cause']}")
sys.exit(any(row["cause"] != "round-trip-floor" for row in rows))
END
