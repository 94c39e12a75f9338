#!/bin/sh
# Redis and PostgreSQL as stores, with and without leases: what one machine yields, as ratios within
# this run. Starts its own servers; about three minutes for all, less for one.
#   regression/shared-stores/run.sh [redis|leases|nodes|postgres]...
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
cargo build --quiet --release --package tidegate-store --example shared_stores
program=${CARGO_TARGET_DIR:-target}/release/examples/shared_stores
[ $# -gt 0 ] || set -- redis leases nodes postgres
for case in "$@"; do
    echo "$case"
    "$program" "$case"
done
