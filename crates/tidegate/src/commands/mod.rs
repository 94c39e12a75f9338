//! The commands, one file each. A command writes to what it is given and returns an exit code.

pub mod audit;
pub mod check;
pub mod compare;
pub mod config;
pub mod decide;
mod files;
pub mod load;
pub mod plan;
pub mod saturate;
pub mod serve;
pub mod stub;

use std::thread;

use anyhow::Context as _;
use tidegate_tester::load::Stop;

/// Exit code of a configuration with mistakes.
pub const EXIT_MISTAKES: u8 = 2;
/// Exit code of a request that was refused, with the reason printed.
pub const EXIT_REFUSED: u8 = 1;
/// Exit code of a finding that was to fail: a threshold missed, a figure worse, an objection met.
pub const EXIT_FINDING: u8 = 3;

/// Makes SIGINT and SIGTERM end a run cleanly. A second one has no further effect: the run is
/// bounded, and its report is what it was started for.
fn stop_on_signal(stop: Stop) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            stop.stop();
        })
        .context("no thread for signals")?;
    Ok(())
}
