#!/bin/sh
# Many policies and many overrides: the cost of a decision among them, and beside changes of them. About
# half a minute.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
cargo build --quiet --release --package tidegate-limiter --example configuration
"${CARGO_TARGET_DIR:-target}/release/examples/configuration"
