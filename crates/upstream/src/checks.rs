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
use crate::failure::CheckFailure;
use crate::seldom::SeldomLine;
use crate::verdicts::{Watched, needed};

/// The result of one check.
#[derive(Debug)]
pub struct Checked<F> {
    /// What was checked.
    pub backend: Arc<Backend>,
    /// Whether it is as it should be, and why not.
    pub result: Result<(), CheckFailure>,
    /// How many results in a row change the verdict.
    pub thresholds: Thresholds,
    /// How long until the next one.
    pub interval: Duration,
    /// What is done if the verdict has changed, or why it is down.
    pub changed: F,
}

/// What is new of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News<'a> {
    /// It is up.
    Up,
    /// It is down, and why.
    Down(&'a str),
    /// It has been down, and is so now for another reason.
    OtherReason(&'a str),
}

/// Checks a backend until `check` says that nobody uses it any more. `seed` is of the intervals.
pub async fn watch<F, C>(
    mut check: impl FnMut() -> C,
    now: impl Fn() -> Tick,
    mut watched: Watched,
    seed: u64,
) where
    F: FnOnce(News<'_>),
    C: Future<Output = Option<Checked<F>>>,
{
    let (mut random, mut told, reasons) = (Random::seeded(seed), None, SeldomLine::default());
    while let Some(checked) = check().await {
        let interval = checked.interval;
        take(checked, now(), &watched, told, &reasons);
        // Nothing of the backend is held during the pause: one that is replaced is not kept by its checks.
        told = watched.pause(interval, &mut random).await;
    }
}

/// Takes a result, where `told` is what another node has said before it, and `reasons` says whether another reason is news again.
fn take<F: FnOnce(News<'_>)>(
    checked: Checked<F>,
    now: Tick,
    watched: &Watched,
    told: Option<bool>,
    reasons: &SeldomLine,
) {
    let Checked { backend, result, thresholds, changed, .. } = checked;
    let (passed, reason) = (result.is_ok(), result.err().map(|failure| failure.to_string()));
    let is_other = reason.is_some() && backend.check_failure().as_deref() != reason.as_deref();
    // The reason first: whoever sees that it is down can say why.
    if !passed {
        backend.set_check_failure(reason.as_deref());
    }
    let has_turned = backend.checked(passed, needed(thresholds, passed, told), now);
    // One that passes its first check after failures is down still, and for the last reason.
    if passed && backend.is_up() {
        backend.set_check_failure(None);
    }
    // A node that heard the verdict from another one does not tell it again.
    if has_turned && told != Some(passed) {
        watched.tell(passed);
    }
    match reason.as_deref() {
        None if has_turned => changed(News::Up),
        Some(reason) if has_turned => changed(News::Down(reason)),
        Some(reason) if is_other && !backend.is_up() && reasons.unsaid(now).is_some() => {
            changed(News::OtherReason(reason));
        }
        None | Some(_) => {}
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
        // Numbers are what it answered, in hundreds.
        let mut results = "++55+5545+5++".chars();
        let (mut count, changes_seen) = (0, &changes);
        let check = || {
            let result = results.next().map(|result| match result.to_digit(10) {
                None => Ok(()),
                Some(hundreds) => Err(CheckFailure::Answered(hundreds as u16 * 100)),
            });
            let at = count;
            count += 1;
            let backend = Arc::clone(&backend);
            async move {
                Some(Checked {
                    backend,
                    result: result?,
                    thresholds: Thresholds { rise: 2, fall: 3 },
                    interval: Duration::ZERO,
                    changed: move |news: News<'_>| {
                        changes_seen.lock().unwrap().push((at, format!("{news:?}")))
                    },
                })
            }
        };
        watch(check, || Tick(0), verdicts.watch("it".to_owned()), 1).await;
        let expected = [(7, r#"Down("answered 400")"#), (8, r#"OtherReason("answered 500")"#), (12, "Up")];
        assert_eq!(*changes.lock().unwrap(), expected.map(|(at, news)| (at, news.to_owned())));
        assert_eq!(backend.check_failure(), None, "what is up has none");
        assert_eq!(*told.lock().unwrap(), [false, true]);
    }
}
