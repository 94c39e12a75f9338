#!/bin/sh
# The console's weight, first paint and longest tasks, with 10,000 policies and 1,000 decisions per second. About two minutes.
#   regression/console/run.sh [path to tidegate]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
TIDEGATE_BIN=$(realpath "${1:-${CARGO_TARGET_DIR:-$root/target}/release/tidegate}")
export TIDEGATE_BIN
bytes=0
for file in "$root"/console/dist/*; do
    bytes=$((bytes + $(gzip -9 -c "$file" | wc -c)))
done
echo "all files, by gzip: $bytes bytes"
[ -e "$root/console/node_modules" ] || ln -s ../.npm/node_modules "$root/console/node_modules"
node "$root/console/test/figures.mjs"
