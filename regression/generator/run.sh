#!/bin/sh
# The load generator against wrk, turn by turn, on nginx `return 200`: replies per second and CPU
# seconds per million replies at 64, 256, 1,000 and 10,000 connections. Two threads each.
# Expected: req/s at least 0.95 x wrk's, CPU not above wrk's. Takes about two minutes. CPU is the
# whole process's, opening the connections included. On a machine that does other work, give the
# session its cores: `setsid -w sh -c 'echo -20 > /proc/self/autogroup; nice -n -20 run.sh'`.
#   regression/generator/run.sh [path to tidegate]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tidegate=${1:-$here/../../target/release/tidegate}
seconds=${SECONDS_EACH:-4}
repeats=${REPEATS:-3}
url=http://127.0.0.1:18080/
scratch=$(mktemp -d)
ulimit -n 20000
nginx -p "$scratch" -c "$here/nginx.conf" &
server=$!
trap 'kill $server; wait $server 2>/dev/null || :; rm -rf "$scratch"' EXIT INT TERM
curl -sf -o "$scratch/reply" --retry 50 --retry-connrefused --retry-delay 1 $url

# Prints: CPU seconds of the command, user and system.
cpu() { awk '/^(user|sys)/ { sum += $2 } END { print sum }' "$1"; }

echo "connections  wrk req/s  wrk CPU  tidegate req/s  tidegate CPU  p50 ms  p99 ms"
for connections in 64 256 1000 10000; do
    repeat=0
    while [ $repeat -lt "$repeats" ]; do
        repeat=$((repeat + 1))
        { time -p wrk -t2 -c$connections -d"${seconds}s" $url >"$scratch/wrk"; } 2>"$scratch/wrk.time"
        { time -p "$tidegate" load -t 2 -c $connections -d "$seconds" -w 0 $url >"$scratch/own"; } 2>"$scratch/own.time"
        wrk_rate=$(awk '/Requests\/sec/ { print $2 }' "$scratch/wrk")
        wrk_count=$(awk '/requests in/ { print $1 }' "$scratch/wrk")
        own_rate=$(awk '/^throughput/ { print $2 }' "$scratch/own")
        own_count=$(awk '/^replies/ { print $2 }' "$scratch/own")
        own_tail=$(awk '/^response/ { print $6, $10 }' "$scratch/own")
        echo "$connections $wrk_rate $(cpu "$scratch/wrk.time") $wrk_count $own_rate $(cpu "$scratch/own.time") $own_count $own_tail" |
            awk '{ printf "%11d %10.0f %8.2f %15.0f %13.2f %7s %7s\n", $1, $2, $3 * 1e6 / $4, $5, $6 * 1e6 / $7, $8, $9 }'
    done
done
