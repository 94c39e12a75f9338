#!/bin/sh
# Faults 22 and 23 at length: a million requests answered before the drain, a million around a second
# server taking over the port, and a million that the gateway's binary passes on before SIGTERM.
# Expected: the tests pass, which means 0 failures.
#   regression/drain-under-load/run.sh
set -eu
cd "$(dirname "$0")/../.."
TIDEGATE_DRAIN_REQUESTS=2000000 cargo test -p tidegate-net --test it fault_22_drain::fault_ -- --nocapture --test-threads 1
TIDEGATE_DRAIN_REQUESTS=1000000 cargo test -p tidegate --locked --test it gateway::fault_22 -- --nocapture
