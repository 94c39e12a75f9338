//! Scenarios: what is sent, what counts as good, in which steps, and what must hold.
//!
//! A file is TOML; [`Scenario::parse`] turns it into checked values or into *all* its mistakes at
//! once, each with its place and the accepted range. The scenarios that the service reports
//! describe are built in ([`built_in`]), as the files under `scenarios/` in the source tree.
//!
//! Deliberately absent: running anything ([`crate::load`] does), and searching for the knee.

mod builtin;
mod check;
pub mod data;
mod raw;

use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc, time::Duration};

use thiserror::Error;
use tidegate_algorithms::pacing::Profile;
use tidegate_wire::http1::{RequestTemplate, TemplateError};

use crate::{
    load::{Checks, Exchange, Options, Request, Reuse, Rows, Target, TargetError, Workload},
    measurement::StepPlan,
    threshold::Threshold,
};

pub use builtin::{built_in, names};

/// A checked scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// One line on what it does.
    pub about: String,
    /// What every step must keep.
    pub thresholds: Vec<Threshold>,
    /// Reuse of connections.
    pub reuse: Reuse,
    /// Longest time to connect.
    pub connect_timeout: Duration,
    /// Longest time to a reply.
    pub request_timeout: Duration,
    /// Connections opened per second.
    pub connect_rate: Option<f64>,
    /// Local addresses.
    pub sources: Vec<IpAddr>,
    /// Requests, at least one.
    pub requests: Vec<RequestSpec>,
    /// Data rows.
    pub rows: Arc<Rows>,
    /// Steps, at least one.
    pub steps: Vec<Step>,
}

/// A request before its target is known.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestSpec {
    /// Share among the requests, 1 to 1,000,000.
    pub weight: u32,
    /// Method.
    pub method: String,
    /// Path, with variables.
    pub path: String,
    /// Header fields, with variables.
    pub headers: BTreeMap<String, String>,
    /// Body, with variables.
    pub body: Option<String>,
    /// What its replies must be.
    pub checks: Checks,
}

/// One step of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its name: the file's, or what it does.
    pub name: String,
    /// What it asks for.
    pub plan: StepPlan,
    /// A rate that changes within the step.
    pub profile: Option<Profile>,
    /// What this step must keep beside the scenario's thresholds.
    pub thresholds: Vec<Threshold>,
}

/// A mistake in a scenario file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where, as a path of keys: `step[2].connections`.
    pub path: String,
    /// What is wrong, and what is accepted.
    pub problem: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path, self.problem)
    }
}

/// Why a scenario cannot be used.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// Not TOML, or a key that is not known or of another type.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// Values that are out of range: all of them.
    #[error("{}", .0.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes(Vec<Mistake>),
    /// The target is none.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A request is not valid with this target's host.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl Scenario {
    /// Reads and checks a file's text; `read_data` gives the text of the data file it names.
    ///
    /// # Errors
    /// With all mistakes of the file.
    pub fn parse(
        text: &str,
        read_data: impl FnOnce(&str) -> std::io::Result<String>,
    ) -> Result<Self, ScenarioError> {
        check::check(toml::from_str(text)?, read_data).map_err(ScenarioError::Mistakes)
    }

    /// The workload for a target.
    ///
    /// # Errors
    /// When the target's host makes a request invalid.
    pub fn workload(&self, host: &str) -> Result<Workload, TemplateError> {
        let compile = |spec: &RequestSpec| -> Result<Request, TemplateError> {
            let headers: Vec<(String, String)> =
                spec.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            let template =
                RequestTemplate::compile(&spec.method, host, &spec.path, &headers, spec.body.as_deref())?;
            Ok(Request { template, weight: spec.weight, checks: spec.checks.clone() })
        };
        let requests = self.requests.iter().map(compile).collect::<Result<_, _>>()?;
        Ok(Workload { requests, rows: Arc::clone(&self.rows) })
    }

    /// The engine's options for a target.
    ///
    /// # Errors
    /// When the target cannot be resolved or makes a request invalid.
    pub fn options(&self, target: &Target) -> Result<Options, ScenarioError> {
        let exchange = Exchange::Http(Arc::new(self.workload(&target.host)?));
        Ok(Options {
            reuse: self.reuse,
            connect_timeout: self.connect_timeout,
            request_timeout: self.request_timeout,
            connect_rate: self.connect_rate,
            sources: self.sources.clone(),
            ..Options::new(target.resolve()?, exchange)
        })
    }

    /// The most connections that any step holds.
    #[must_use]
    pub fn max_connections(&self) -> u32 {
        self.steps.iter().map(|step| step.plan.connections).max().unwrap_or(0)
    }
}
