#!/bin/sh
# Whether `tidegate saturate` names what was planted: five right answers for each of the cases of
# crates/tidegate/tests/timed/saturate.rs, laboratory.rs and services.rs, and no wrong one.
# Expected: the tests pass, which means 0 wrong. It takes about a quarter of an hour on an idle machine.
#   regression/causes/run.sh [rounds]
set -eu
cd "$(dirname "$0")/../.."
TIDEGATE_PLANTED_ROUNDS=${1:-5} cargo xtask test tidegate/saturate
TIDEGATE_PLANTED_ROUNDS=${1:-5} cargo xtask test tidegate/laboratory
TIDEGATE_PLANTED_ROUNDS=${1:-5} cargo xtask test tidegate/services
