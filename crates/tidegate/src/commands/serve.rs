//! `tidegate serve`: everything that the configuration asks for, until a signal ends it.

use std::io::{self, Write};
use std::process::ExitCode;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::EXIT_MISTAKES;
use super::config::Sources;
use crate::config::Environment;
use crate::config::watch::{POLL_INTERVAL, Reloader, State, follow};
use crate::serve::{App, apply};

/// Serves decisions until SIGTERM or Ctrl-C.
#[derive(Debug, clap::Args)]
pub struct Serve {
    #[command(flatten)]
    sources: Sources,
}

/// Exit code of a process that could not start.
const EXIT_CANNOT_START: u8 = 1;

impl Serve {
    /// Runs until a signal.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn run(self, environment: Environment, out: &mut dyn Write) -> io::Result<ExitCode> {
        let (reloader, loaded) = match Reloader::start(self.sources.with(environment)) {
            Ok(started) => started,
            Err(mistakes) => {
                writeln!(out, "{mistakes}")?;
                return Ok(ExitCode::from(EXIT_MISTAKES));
            }
        };
        crate::logging::start(&loaded.config.settings.log);
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        let mut app = match App::build(&loaded.config) {
            Ok(app) => app,
            Err(error) => {
                writeln!(out, "cannot start: {error}")?;
                return Ok(ExitCode::from(EXIT_CANNOT_START));
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut stops = Stops::listen()?;
            app.start();
            announce(&app, out)?;
            let settings = loaded.config.settings.clone();
            let (sender, mut state) = watch::channel(State::new(loaded));
            let follower = tokio::spawn(follow(reloader, sender, POLL_INTERVAL));
            loop {
                tokio::select! {
                    () = stops.next() => break,
                    changed = state.changed() => {
                        if changed.is_err() {
                            break;
                        }
                        let newest = state.borrow_and_update().clone();
                        if newest.refused.is_none() {
                            apply(app.api(), &settings, &newest.loaded.config).await;
                        }
                    }
                }
            }
            follower.abort();
            Ok(drain(app, stops).await)
        })
    }
}

/// Drains; a second signal cuts it short.
async fn drain(app: App, mut stops: Stops) -> ExitCode {
    tracing::info!(deadline = ?app.drain_deadline(), "draining; another signal stops at once");
    let lifecycle = app.drain().clone();
    let impatient = tokio::spawn(async move {
        stops.next().await;
        lifecycle.advance(tidegate_net::drain::Stage::Stopped);
    });
    let drained = app.stop().await;
    impatient.abort();
    if drained.aborted > 0 {
        tracing::warn!(connections = drained.aborted, "stopped with connections still open");
        return ExitCode::FAILURE;
    }
    tracing::info!("drained");
    ExitCode::SUCCESS
}

/// SIGTERM and Ctrl-C.
struct Stops {
    terminate: Signal,
    interrupt: Signal,
}

impl Stops {
    fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// What listens where, and something to try.
fn announce(app: &App, out: &mut dyn Write) -> io::Result<()> {
    let http = app.http_address();
    writeln!(out, "tidegate {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "  decision API   http://{http}   (OpenAPI: http://{http}/openapi.json)")?;
    writeln!(out, "try it:")?;
    writeln!(out, "  curl -X POST http://{http}/api/v1/ratelimit \\")?;
    writeln!(out, "    -H 'Content-Type: application/json' \\")?;
    writeln!(out, "    -d '{{\"client_id\":\"user123\",\"resource\":\"api\"}}'")?;
    out.flush()
}
