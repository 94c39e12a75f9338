//! What the machine itself takes: pauses of a thread that does nothing but look at the clock.

use std::time::{Duration, Instant};

/// A look at the clock takes less than this by three orders of magnitude.
const PAUSE: Duration = Duration::from_micros(300);

/// The share of so much time in which a thread on each core stood still.
pub(crate) fn lost(span: Duration) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads: Vec<_> = (0..cores).map(|_| std::thread::spawn(move || stood_still(span))).collect();
    let lost: Duration = threads.into_iter().map(|thread| thread.join().expect("it only looks")).sum();
    lost.as_secs_f64() / (span.as_secs_f64() * cores as f64)
}

#[expect(clippy::disallowed_methods, reason = "the clock is what is looked at")]
fn stood_still(span: Duration) -> Duration {
    let (start, mut last, mut lost) = (Instant::now(), Instant::now(), Duration::ZERO);
    while last.duration_since(start) < span {
        let now = Instant::now();
        let gap = now.duration_since(last);
        if gap > PAUSE {
            lost += gap;
        }
        last = now;
    }
    lost
}
