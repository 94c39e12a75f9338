//! Lines sent on to Kafka, a real one: in order, and none lost, whoever is killed. Kafka's own consumer reads them back.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod forwarding;
mod killed;
#[path = "../../../intake/tests/it/support/mod.rs"]
mod support;

use std::time::Duration;

use tidegate_net::clock::monotonic;

/// A broker that was killed needs seconds to come back, and a forward waits up to half a minute between two tries.
const PATIENCE: Duration = Duration::from_secs(180);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = monotonic();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
    }
}
