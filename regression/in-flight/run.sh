#!/bin/sh
# 200,000 requests really in flight at a time: generator and stub as 12 processes each, from several
# source addresses, none of the processes with more than 20,000 descriptors. Every request waits
# 20 s at the stub, so that all are in flight together. Expected: 200,000 good, 0 errors, 200,000
# established, and the stubs' own maxima add up to 200,000. Takes about a minute and 5 GB.
#   regression/in-flight/run.sh [path to tidegate [connections]]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tidegate=${1:-$here/../../target/release/tidegate}
connections=${2:-200000}
scratch=$(mktemp -d)
ulimit -n 20000
: >"$scratch/stub"
"$tidegate" stub 127.0.0.1:18181 --processes 12 --delay-ms 20000 >"$scratch/stub" &
server=$!
trap 'kill $server 2>/dev/null || :; wait $server 2>/dev/null || :; rm -rf "$scratch"' EXIT INT TERM
tries=0
while [ "$(grep -c listening "$scratch/stub")" -lt 12 ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { echo "the stub does not start"; exit 1; }
    sleep 0.1
done
"$tidegate" load http://127.0.0.1:18181/ -c "$connections" -n "$connections" -d 100 -w 0 -t 1 --timeout-seconds 60
kill $server
wait $server || :
grep -o '"in_flight_max":[0-9]*' "$scratch/stub" | awk -F: '{ sum += $2 } END { print "in flight at the stub, sum of maxima:", sum }'
