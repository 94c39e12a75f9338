//! The load engine: runs one step against a real target and measures it.
//!
//! ```text
//!   Engine --step--> run (threads start together) --> worker (event loop) --> tally --> Measurement
//!                                                       |  protocol (http, http2, resp, raw;
//!                                                       |    each within tls or not): bytes only
//!                                                       +- exchange: sockets; closes: what servers end
//! ```
//!
//! A thread per core, each with its own epoll, connections, random numbers and counts; threads share
//! nothing until they are joined. Open-loop latency counts from the planned send. In a step's
//! measured time nothing is allocated per request.
//!
//! io_uring was measured and rejected: at 1 to 10,000 connections it saves no CPU over epoll for
//! small requests (one send and one receive each), and it is switched off in many containers.
//!
//! Deliberately absent: judging. What a measurement means is decided elsewhere.

mod closes;
mod edges;
mod exchange;
pub(crate) mod http;
pub(crate) mod http2;
mod judge;
mod options;
mod progress;
pub(crate) mod protocol;
mod raw;
mod requests;
mod resp;
mod run;
mod selfwatch;
mod slot;
pub(crate) mod socket;
mod tally;
mod target;
pub(crate) mod tls;
mod wire;
mod worker;
mod workload;

use std::{io, sync::Arc};

use thiserror::Error;
use tidegate_algorithms::pacing::ProfileError;

use crate::epoch::Epoch;
use tidegate_judge::measurement::{Bench, Measurement, StepPlan};

pub use options::{Exchange, Options, Reuse, Stop};
pub use progress::Progress;
pub(crate) use run::share;
pub(crate) use tally::add_timeline;
pub use target::{Scheme, Target, TargetError};
pub use tls::{Tls, TlsError, Trust};
pub use workload::{Checks, HeaderCheck, Request, Rows, StatusSet, Workload};

/// Why a step could not be run.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The plan's rate or profile is out of range.
    #[error("the step's rate is out of range: {0}")]
    Rate(#[from] ProfileError),
    /// The plan has no connection or no time.
    #[error("a step needs at least 1 connection and 1 ms of measured time")]
    EmptyPlan,
    /// A thread or its event loop could not be set up, or its event loop failed.
    #[error("the generator could not run: {0}")]
    Setup(#[source] io::Error),
    /// A generator thread ended without a result.
    #[error("a generator thread ended without a result")]
    Thread,
}

/// Shows a running step.
pub type OnProgress = Box<dyn FnMut(&Progress) + Send>;

/// Runs steps against one target.
pub struct Engine {
    options: Arc<Options>,
    stop: Stop,
    on_progress: Option<OnProgress>,
}

impl Engine {
    /// An engine for one target.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self::with_stop(options, Stop::default())
    }

    /// An engine that also ends when `stop` says so.
    #[must_use]
    pub fn with_stop(options: Options, stop: Stop) -> Self {
        Self { options: Arc::new(options), stop, on_progress: None }
    }

    /// Takes the callback back.
    pub fn take_progress(&mut self) -> Option<OnProgress> {
        self.on_progress.take()
    }

    /// Calls `callback` about four times a second while a step runs.
    #[must_use]
    pub fn on_progress(mut self, callback: OnProgress) -> Self {
        self.on_progress = Some(callback);
        self
    }

    /// Ends steps early; what was measured until then is still returned.
    #[must_use]
    pub fn stop_handle(&self) -> Stop {
        self.stop.clone()
    }

    /// The settings.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// As [`Bench::run`], with `gate` called when all connections are open: it holds the step back
    /// until it returns.
    ///
    /// # Errors
    /// As [`Bench::run`].
    pub fn run_gated(&mut self, plan: &StepPlan, gate: &mut dyn FnMut()) -> Result<Measurement, EngineError> {
        if plan.connections == 0 || plan.measure_ms == 0 {
            return Err(EngineError::EmptyPlan);
        }
        let (epoch, mut opened) = (Epoch::start(), 0);
        let mut held = || {
            gate();
            opened = epoch.now();
        };
        let hooks = run::Hooks {
            gate: &mut held,
            progress: self.on_progress.as_mut().map(|callback| callback as &mut dyn FnMut(&Progress)),
        };
        let (options, stop, seed) = (&self.options, &self.stop, self.options.seed);
        let tallies = match self.options.exchange.clone() {
            Exchange::Http(workload) => {
                spoken(options, plan, stop, hooks, |i, n| http::Http::new(Arc::clone(&workload), seed, i, n))
            }
            Exchange::Http2 { workload, grpc } => {
                let tls = options.tls.is_some();
                spoken(options, plan, stop, hooks, |i, n| {
                    http2::Http2::new(Arc::clone(&workload), grpc, tls, seed, i, n)
                })
            }
            Exchange::TcpConnect => spoken(options, plan, stop, hooks, |_, _| raw::Connect),
            Exchange::TcpEcho { bytes } => spoken(options, plan, stop, hooks, |_, _| raw::Echo::new(bytes)),
            Exchange::Resp(workload) => {
                spoken(options, plan, stop, hooks, |i, n| resp::Resp::new(Arc::clone(&workload), seed, i, n))
            }
        }?;
        let mut measured = tally::measurement(plan, &tallies);
        measured.opening_seconds = opened as f64 / 1e9;
        Ok(measured)
    }
}

/// Runs a step in a protocol, within TLS if the options say so.
fn spoken<P: protocol::Protocol>(
    options: &Arc<Options>,
    plan: &StepPlan,
    stop: &Stop,
    hooks: run::Hooks<'_>,
    make: impl Fn(u32, u32) -> P,
) -> Result<Vec<tally::Tally>, EngineError> {
    match &options.tls {
        None => run::run_step(options, plan, stop, hooks, make),
        Some(tls) => {
            run::run_step(options, plan, stop, hooks, |i, n| tls::Within::new(tls.clone(), make(i, n)))
        }
    }
}

impl Bench for Engine {
    type Error = EngineError;

    fn run(&mut self, plan: &StepPlan) -> Result<Measurement, EngineError> {
        self.run_gated(plan, &mut || {})
    }
}
