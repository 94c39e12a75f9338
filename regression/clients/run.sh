#!/bin/sh
# The client libraries against a bare HTTP client of their language, and their calls of servers that give no answer.
# Starts its servers itself; about seven minutes, nine on a busy machine. The languages whose packages `cargo xtask setup` has installed.
#   regression/clients/run.sh [path to tidegate]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
tidegate=$(realpath "${1:-${CARGO_TARGET_DIR:-$root/target}/release/tidegate}")
scratch=$(mktemp -d)
server=
faulty=
trap 'kill -CONT $server 2>/dev/null && kill $server && wait $server || :
    kill $faulty 2>/dev/null || :; rm -rf "$scratch"' EXIT INT TERM
mkfifo "$scratch/said"
"$tidegate" serve --config "$here/tidegate.toml" --data-dir "$scratch/data" --http-listen 127.0.0.1:0 \
    --grpc-listen 127.0.0.1:0 --resp-listen 127.0.0.1:0 --intake-listen off --log-level warn >"$scratch/said" &
server=$!
exec 3<"$scratch/said"
url=
while [ -z "$url" ]; do
    read -r line <&3 || { echo "the server did not start: $line" >&2; exit 1; }
    url=$(printf %s "$line" | sed -n 's/.*decision API *\(http:[^ ]*\).*/\1/p')
done

# The package as its users have it.
cp -r "$root/clients/javascript" "$scratch/package"
ln -s "$root/.npm/node_modules" "$scratch/node_modules"
(cd "$scratch/package" && npm run --silent build) >&2
mkdir "$scratch/app" "$scratch/app/node_modules"
ln -s "$scratch/package" "$scratch/app/node_modules/tidegate"
cp "$here/calls.mjs" "$scratch/app/"

go=$root/.tools/go/bin/go
[ -x "$go" ] || go=go
(cd "$root/clients/go" && "$go" build -o "$scratch/go" ./internal/bench)
(cd "$root/clients/java" && mvn --batch-mode --quiet --projects client test-compile) >&2
java() {
    built=$root/target/clients/java/tidegate-client
    command java -cp "$built/classes:$built/test-classes" io.github.tidegate.Bench "$url" "$@"
}

echo '| client | calls at once | calls/s | of bare | CPU, us a call | of bare |'
echo '|---|--:|--:|--:|--:|--:|'
PYTHONPATH=$root/clients/python/src "$root/.venv/bin/python" "$here/calls.py" "$url" speed
node "$scratch/app/calls.mjs" "$url" speed
"$scratch/go" "$url" speed
java speed
echo
# Servers that misbehave as clients/conformance.json says.
faults=
for fault in drip slow full garbage error_500 endless endless_header; do
    mkfifo "$scratch/$fault"
    python3 "$root/clients/faulty.py" $fault >"$scratch/$fault" &
    faulty="$faulty $!"
    read -r _ address <"$scratch/$fault"
    faults="$faults $fault=http://$address"
done
echo '| client, and what the server is | calls at once | p50, ms | p99, ms | most, ms | p99 of sleeping, ms | of it |'
echo '|---|--:|--:|--:|--:|--:|--:|'
# Each stops the server itself, once its own calls are warm.
PYTHONPATH=$root/clients/python/src "$root/.venv/bin/python" "$here/calls.py" "$url" late $server $faults
kill -CONT $server
node "$scratch/app/calls.mjs" "$url" late $server $faults
kill -CONT $server
"$scratch/go" "$url" late $server $faults
kill -CONT $server
java late $server $faults
