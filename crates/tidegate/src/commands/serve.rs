//! `tidegate serve`: everything that the configuration asks for, until a signal ends it.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use tidegate_admin::ConfigurationStatus;
use tidegate_limiter::engine::Engine;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::EXIT_MISTAKES;
use super::config::Sources;
use super::signals::Stops;
use crate::config::watch::{POLL_INTERVAL, Reloader, State, follow};
use crate::config::{Environment, Listener, Loaded, OperatorToken};
use crate::serve::{
    Addresses, App, EdgeAddresses, Snapshots, apply, memory_warning, record_file, reopen, rotate,
};
use crate::service_manager;

/// Serves what the configuration asks for, until SIGTERM or Ctrl-C.
///
/// The configuration is the file of --config, the environment and the flags; without any of them decisions are served on
/// loopback.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Every setting is a flag: --help lists them, `tidegate config reference` explains them."
)]
#[command(after_long_help = "\
Examples:
  tidegate serve
  tidegate serve --config /etc/tidegate/tidegate.toml
  tidegate serve --http-listen 127.0.0.1:8080 --log-format json")]
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
        let source = self.sources.with(environment);
        let started = source.make_token().and_then(|token| Ok((token, Reloader::start(source)?)));
        let (token, (reloader, loaded)) = match started {
            Ok(started) => started,
            Err(mistakes) => {
                writeln!(out, "{mistakes}")?;
                return Ok(ExitCode::from(EXIT_MISTAKES));
            }
        };
        crate::logging::start(&loaded.config.settings.log);
        for warning in loaded.warnings.iter().chain(&memory_warning(&loaded.config.settings)) {
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
            // Handled from here on: a SIGHUP that comes before the follower listens must not kill.
            let _hangups = signal(SignalKind::hangup())?;
            app.start();
            announce(&app, out)?;
            if let OperatorToken::Made(path) = token {
                writeln!(
                    out,
                    "the operator's token was made: {} (`tidegate token` prints it)",
                    path.display()
                )?;
                out.flush()?;
            }
            service_manager::ready();
            let watchdog = tokio::spawn(service_manager::feed_watchdog(app.pulse()));
            let started_with = loaded.config.clone();
            let saver = tokio::spawn(save_counters(app.engine().clone(), app.snapshots().cloned()));
            let (sender, state) = watch::channel(State::new(loaded));
            let (data_dir, recorded) = (started_with.settings.data_dir.clone(), state.clone());
            let put_in_force = async |loaded: &Loaded| apply(&app, &started_with, &loaded.config).await;
            tokio::select! {
                () = stops.next() => {}
                followed = follow(reloader, sender, POLL_INTERVAL, put_in_force) => followed?,
                reopened = reopen(app.access_log()) => reopened?,
                rotated = rotate(app.secured(), POLL_INTERVAL) => rotated?,
                () = report_reloads(state, app.status()) => {}
                () = record_file(app.configuration(), &data_dir, recorded) => {}
            }
            saver.abort();
            service_manager::stopping(app.drain_deadline());
            let code = drain(app, stops).await;
            watchdog.abort();
            Ok(code)
        })
    }
}

/// Says on the metrics page how each reload went. The follower goes on for as long as this does.
async fn report_reloads(mut state: watch::Receiver<State>, status: &ConfigurationStatus) {
    while state.changed().await.is_ok() {
        if state.borrow_and_update().refused.is_none() {
            status.reloaded();
        } else {
            status.refused();
        }
    }
}

/// Saves the counters again and again.
async fn save_counters(engine: Arc<Engine>, snapshots: Option<Snapshots>) {
    let Some(snapshots) = snapshots else { return };
    let mut ticks = tokio::time::interval(snapshots.interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is immediate, and what was restored is saved already.
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let (engine, snapshots) = (engine.clone(), snapshots.clone());
        if tokio::task::spawn_blocking(move || snapshots.save(&engine)).await.is_err() {
            tracing::error!("saving the counters panicked");
        }
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

/// What listens where, and something to try.
fn announce(app: &App, out: &mut dyn Write) -> io::Result<()> {
    let Addresses { http, admin, grpc, resp, intake } = app.addresses();
    let secured = app.secured().now();
    let s = |listener| if secured.iter().any(|it| it.listener == listener) { "s" } else { "" };
    let http = format!("http{}://{http}", s(Listener::HTTP));
    writeln!(out, "tidegate {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "  decision API   {http}   (OpenAPI: {http}/openapi.json)")?;
    let mut console = http.clone();
    if let Some(admin) = admin {
        console = format!("http{}://{admin}", s(Listener::ADMIN));
        writeln!(out, "  admin API      {console}   (OpenAPI: {console}/openapi.json)")?;
    }
    writeln!(out, "  console        {console}/   (in a browser)")?;
    if let Some(grpc) = grpc {
        writeln!(out, "  gRPC           grpc{}://{grpc}   (Envoy's rate-limit service)", s(Listener::GRPC))?;
    }
    if let Some(resp) = resp {
        writeln!(out, "  RESP           redis{}://{resp}   (CL.THROTTLE, THROTTLE)", s(Listener::RESP))?;
    }
    if let Some(intake) = intake {
        writeln!(out, "  intake         http{}://{intake}   (metrics: POST /metrics)", s(Listener::INTAKE))?;
    }
    for (place, address) in app.gateway_addresses().iter().enumerate() {
        let scheme = format!("http{}", s(Listener::gateway(place)));
        writeln!(out, "  gateway        {scheme}://{address}")?;
    }
    let EdgeAddresses { listeners, registration, names } = app.edge_addresses();
    for (place, address) in listeners.iter().enumerate() {
        let scheme = if s(Listener::edge(place)).is_empty() { "tcp" } else { "tls" };
        writeln!(out, "  edge           {scheme}://{address}")?;
    }
    if let Some(address) = registration {
        writeln!(out, "  registration   http://{address}")?;
    }
    if let Some(address) = names {
        writeln!(out, "  names          dns://{address}")?;
    }
    writeln!(out, "try it:")?;
    writeln!(out, "  curl -X POST {http}/api/v1/ratelimit \\")?;
    writeln!(out, "    -H 'Content-Type: application/json' \\")?;
    writeln!(out, "    -d '{{\"client_id\":\"user123\",\"resource\":\"api\"}}'")?;
    out.flush()
}
