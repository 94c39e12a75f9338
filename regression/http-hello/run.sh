#!/bin/sh
# The server without a service against nginx `return 200`, the same body, turn by turn: replies per
# second, p99 and CPU microseconds per reply, with one accept queue per core and with a shared one.
# Expected: per-core at least 0.85 x nginx's req/s (0.75 at 10,000 connections), p99 at most 1.5 x.
# CPU per reply is the figure to trust on a machine that is not quiet. Takes about two minutes.
#   regression/http-hello/run.sh
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cargo build --release --manifest-path "$here/../../Cargo.toml" -p tidegate-net --example hello
hello=$here/../../target/release/examples/hello
seconds=${SECONDS_EACH:-3}
repeats=${REPEATS:-3}
scratch=$(mktemp -d)
ulimit -n 20000
nginx -p "$scratch" -c "$here/nginx.conf" &
nginx=$!
"$hello" 127.0.0.1:18081 2 >"$scratch/own" &
own=$!
"$hello" 127.0.0.1:18082 2 shared >"$scratch/shared" &
shared=$!
trap 'kill $nginx $own $shared; wait; rm -rf "$scratch"' EXIT INT TERM
for port in 18080 18081 18082; do until curl -sf -o "$scratch/reply" "http://127.0.0.1:$port/"; do :; done; done

# Clock ticks used so far by a process and its children that still run.
ticks() { cat /proc/"$1"/stat $(pgrep -P "$1" | sed 's|.*|/proc/&/stat|') | awk '{ sub(/.*\) /, ""); sum += $12 + $13 } END { print sum }'; }

hertz=$(getconf CLK_TCK)
echo "connections  server         req/s        p99  CPU us/reply"
for connections in 64 256 1000 10000; do
    repeat=0
    while [ $repeat -lt "$repeats" ]; do
        repeat=$((repeat + 1))
        for server in nginx:18080:$nginx per-core:18081:$own shared:18082:$shared; do
            IFS=: read -r name port process <<-END
				$server
			END
            before=$(ticks "$process")
            wrk -t2 -c$connections -d"${seconds}s" --latency "http://127.0.0.1:$port/" >"$scratch/wrk"
            after=$(ticks "$process")
            awk -v c=$connections -v n="$name" -v t=$((after - before)) -v hz="$hertz" '
                /requests in/ { count = $1 } /Requests\/sec/ { rate = $2 } / 99%/ { p99 = $2 }
                END { printf "%11d  %-8s %12.0f %10s %13.2f\n", c, n, rate, p99, t / hz * 1e6 / count }' "$scratch/wrk"
        done
    done
done
