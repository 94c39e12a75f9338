//! SIGINT and SIGTERM, and for some the end of standard input, end a run of load, a stub or a server cleanly.

use std::{io, thread};

use tidegate_tester::load::Stop;
use tokio::signal::unix::{Signal, SignalKind, signal};

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

/// Makes the end of standard input stop a run: whoever started it has gone, or does not want it any more.
///
/// # Errors
/// When no thread can be had for it.
pub(super) fn stop_with_input(stop: Stop) -> io::Result<()> {
    let wait = move || {
        // What comes is of no interest, and an error is an end, too.
        let _ended = io::copy(&mut io::stdin().lock(), &mut io::sink());
        stop.stop();
    };
    thread::Builder::new().name("input".to_owned()).spawn(wait).map(drop)
}

/// SIGTERM and Ctrl-C.
pub(super) struct Stops {
    terminate: Signal,
    interrupt: Signal,
}

impl Stops {
    /// Handles both signals from here on.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next of them.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
