//! SIGINT and SIGTERM end a run of load or a stub cleanly.

use std::{io, thread};

use tidegate_tester::load::Stop;
use tokio::signal::unix::{SignalKind, signal};

/// Makes the two signals stop a run. A second one has no further effect: the run is bounded, and
/// its report is what it was started for.
///
/// # Errors
/// When no thread can be had for it.
pub(super) fn stop_on_signal(stop: Stop) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        stop.stop();
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}
