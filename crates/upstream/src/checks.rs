//! Active health checks: a task for each backend, at jittered intervals, whatever is asked of it.
//!
//! ```text
//!   check ──> rise and fall ── the verdict has changed ──> who is concerned here, and the other nodes
//!     ^                                                    │
//!     └── the interval, or less where another node's has ──┘
//! ```
//!
//! What counts as passing is the services' matter, since they know the protocols. Verdicts last as long as the process: they are
//! no part of the configuration.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::balance::eligibility::Thresholds;
use tidegate_algorithms::random::Random;
use tidegate_algorithms::time::Tick;

use crate::backend::Backend;
use crate::verdicts::{Watched, needed};

/// The result of one check.
#[derive(Debug)]
pub struct Checked<F> {
    /// What was checked.
    pub backend: Arc<Backend>,
    /// Whether it is as it should be.
    pub passed: bool,
    /// How many results in a row change the verdict.
    pub thresholds: Thresholds,
    /// How long until the next one.
    pub interval: Duration,
    /// What is done if the verdict has changed: true, it is up.
    pub changed: F,
}

/// Checks a backend until `check` says that nobody uses it any more. `seed` is of the intervals.
pub async fn watch<F, C>(
    mut check: impl FnMut() -> C,
    now: impl Fn() -> Tick,
    (mut watched, seed): (Watched, u64),
) where
    F: FnOnce(bool),
    C: Future<Output = Option<Checked<F>>>,
{
    let (mut random, mut told) = (Random::seeded(seed), None);
    while let Some(checked) = check().await {
        let interval = checked.interval;
        take(checked, now(), &watched, told);
        // Nothing of the backend is held during the pause: one that is replaced is not kept by its checks.
        told = watched.pause(interval, &mut random).await;
    }
}

/// Takes a result, where `told` is what another node has said before it.
fn take<F: FnOnce(bool)>(checked: Checked<F>, now: Tick, watched: &Watched, told: Option<bool>) {
    let Checked { backend, passed, thresholds, changed, .. } = checked;
    if backend.checked(passed, needed(thresholds, passed, told), now) {
        // Who heard it from another node has nothing to tell.
        if told != Some(passed) {
            watched.tell(passed);
        }
        changed(passed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::backend::{BackendSettings, Host, Target};
    use crate::verdicts::{Verdict, Verdicts};

    #[tokio::test]
    async fn as_many_results_in_a_row_as_are_asked_for_change_a_verdict_which_is_told_once() {
        let target = Target { host: Host::Address([127, 0, 0, 1].into()), port: 1 };
        let backend = Arc::new(Backend::new(BackendSettings { target, weight: 1, hard_limit: 1 }, Tick(0)));
        backend.set_checked(true, Tick(0));
        let verdicts = Verdicts::default();
        let (told, changes) = (Arc::new(Mutex::new(Vec::new())), Mutex::new(Vec::new()));
        verdicts.tell_by({
            let told = Arc::clone(&told);
            move |Verdict { is_up, .. }| told.lock().unwrap().push(is_up)
        });
        let mut results = "++--+---+-++".chars();
        let (mut count, changes_seen) = (0, &changes);
        let check = || {
            let passed = results.next().map(|result| result == '+');
            let at = count;
            count += 1;
            let backend = Arc::clone(&backend);
            async move {
                Some(Checked {
                    backend,
                    passed: passed?,
                    thresholds: Thresholds { rise: 2, fall: 3 },
                    interval: Duration::ZERO,
                    changed: move |is_up| changes_seen.lock().unwrap().push((at, is_up)),
                })
            }
        };
        watch(check, || Tick(0), (verdicts.watch("it".to_owned()), 1)).await;
        assert_eq!(*changes.lock().unwrap(), [(7, false), (11, true)]);
        assert_eq!(*told.lock().unwrap(), [false, true]);
    }
}
