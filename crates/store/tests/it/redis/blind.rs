//! What a guard answers while its store is in trouble, and that it asks again afterwards, on a machine that
//! may itself stand still for a while.

use std::pin::pin;
use std::time::Duration;

use tidegate_algorithms::limit::Limit;
use tidegate_store::{Counters, Degraded};

use crate::redis::node::{Clock, recovery, spend};

const RECOVERY: Duration = Duration::from_secs(2);
const BLIND_P99: Duration = Duration::from_millis(20);

/// What 400 requests, one after another, were answered.
#[derive(Debug, Default)]
pub(crate) struct Blind {
    pub(crate) admitted: u64,
    pub(crate) degraded: u64,
    /// Answers that a timer of [`BLIND_P99`] was faster than. The timer is set first, and a machine that
    /// stops for a while stops both; the guard's own, shorter one is then still the first to be due.
    late: u64,
    /// Failures that lateness alone may explain: a probe per pause, four in each span that opens nothing.
    pub(crate) excused: u64,
}

pub(crate) async fn under_fault(store: &Counters, clock: &Clock, limit: &Limit, key: &[u8]) -> Blind {
    let (mut blind, start) = (Blind::default(), clock.elapsed());
    for _ in 0..400 {
        // Sleeps because p99 is what is tested.
        let mut timer = pin!(tokio::time::sleep(BLIND_P99));
        let mut call = pin!(spend(store, clock, limit, key));
        let answer = tokio::select! {
            biased;
            answer = &mut call => answer,
            () = &mut timer => {
                blind.late += 1;
                call.await
            }
        };
        let answer = answer.expect("a guard always answers");
        blind.admitted += u64::from(answer.allowed);
        blind.degraded += u64::from(answer.degraded == Some(Degraded::Local));
    }
    let took = u64::try_from((clock.elapsed() - start).as_millis()).expect("small");
    blind.excused = 3 * (took / 250);
    blind
}

/// Nothing of [`under_fault`] may be late but 1 %.
pub(crate) fn assert_p99(blind: &Blind) {
    assert!(blind.late < 4, "{blind:?}");
}

/// Asserts that the store is asked again within [`RECOVERY`] of the end of its fault. A machine that
/// stops for a while makes any recovery late, so the fault is then made and mended again; a guard that
/// is late by itself is late every time.
pub(crate) async fn assert_recovers(
    store: &Counters,
    clock: &Clock,
    limit: &Limit,
    mut fault: impl FnMut(bool),
) {
    let mut took = recovery(store, clock, limit).await;
    for _ in 0..20 {
        if took <= RECOVERY {
            return;
        }
        fault(true);
        under_fault(store, clock, limit, b"again").await;
        fault(false);
        took = recovery(store, clock, limit).await;
    }
    panic!("recovered after {took:?}");
}
