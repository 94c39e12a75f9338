#!/bin/sh
# Many policies and many overrides: the cost of a decision among them, and beside changes of them; and
# writers at two nodes. About a minute.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
cargo build --quiet --release --package tidegate-limiter --example configuration
cargo build --quiet --release --locked --package tidegate
"${CARGO_TARGET_DIR:-target}/release/examples/configuration"
echo
"$here/two_nodes.py" --tidegate "${CARGO_TARGET_DIR:-target}/release/tidegate"
