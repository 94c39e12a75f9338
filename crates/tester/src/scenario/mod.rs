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
mod steps;

use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc, time::Duration};

use sha2::{Digest as _, Sha256};
use thiserror::Error;
use tidegate_algorithms::pacing::Profile;
use tidegate_wire::http1::{RequestTemplate, TemplateError, Text};

use crate::load::{
    Checks, Exchange, Options, Request, Reuse, Rows, Scheme, Target, TargetError, Tls, TlsError, Trust,
    Workload,
};
use tidegate_judge::{measurement::StepPlan, threshold::Threshold};

pub use builtin::{built_in, names};

/// Tables of a scenario that say what is asked and which replies count.
const WORK: [&str; 3] = ["request", "good", "denied"];

/// A digest (SHA-256, hexadecimal) of the work that a scenario is: what is sent and in which proportion, which
/// replies count how, the data, and whether connections are kept. Steps, rates and the target's address are
/// no part of it, so that reports of different loads, hosts and versions can be compared.
///
/// # Errors
/// When the text is not TOML.
pub fn digest(text: &str, data: Option<&str>) -> Result<String, toml::de::Error> {
    let mut table: toml::Table = text.parse()?;
    let reuse = table.get("connection").and_then(|connection| connection.get("reuse")).cloned();
    table.retain(|key, _| WORK.contains(&key));
    if let Some(reuse) = reuse {
        table.insert("reuse".to_owned(), reuse);
    }
    let mut hash = Sha256::new();
    // A table's keys are in order, so that the order of a file's lines decides nothing.
    hash.update(table.to_string());
    hash.update([0]);
    hash.update(data.unwrap_or_default());
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

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
    /// HTTP/2 where the URL says HTTP.
    pub http2: bool,
    /// Whom to trust where the URL says TLS.
    pub trust: Trust,
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
    /// Body of bytes without variables, in its place.
    pub body_bytes: Option<Vec<u8>>,
    /// Command and arguments for a RESP server, with variables.
    pub command: Vec<String>,
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
    /// TLS to the target cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A request is not valid with this target's host.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl RequestSpec {
    /// The HTTP request towards a host.
    ///
    /// # Errors
    /// When the host, the path, a header or a variable is not valid.
    pub fn template(&self, host: &str) -> Result<RequestTemplate, TemplateError> {
        let headers: Vec<(String, String)> =
            self.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let body = self.body.as_deref();
        let template = RequestTemplate::compile(&self.method, host, &self.path, &headers, body)?;
        Ok(match &self.body_bytes {
            Some(bytes) => template.with_body(bytes.clone()),
            None => template,
        })
    }
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
            let template = spec.template(host)?;
            let command = spec.command.iter().map(|word| Text::parse(word)).collect::<Result<_, _>>()?;
            Ok(Request { template, command, weight: spec.weight, checks: spec.checks.clone() })
        };
        let requests = self.requests.iter().map(compile).collect::<Result<_, _>>()?;
        Ok(Workload { requests, rows: Arc::clone(&self.rows) })
    }

    /// The engine's options for a target.
    ///
    /// # Errors
    /// When the target cannot be resolved or makes a request invalid.
    pub fn options(&self, target: &Target) -> Result<Options, ScenarioError> {
        let workload = Arc::new(self.workload(&target.host)?);
        let (exchange, alpn): (_, &[u8]) = match target.scheme {
            Scheme::Http if !self.http2 => (Exchange::Http(workload), b"http/1.1"),
            Scheme::Http | Scheme::Http2 => (Exchange::Http2 { workload, grpc: false }, b"h2"),
            Scheme::Grpc => (Exchange::Http2 { workload, grpc: true }, b"h2"),
            Scheme::Tcp => {
                (target.echo_bytes().map_or(Exchange::TcpConnect, |bytes| Exchange::TcpEcho { bytes }), b"")
            }
            Scheme::Resp => (Exchange::Resp(workload), b""),
        };
        let tls = target.tls.then(|| Tls::new(&target.name, alpn, &self.trust)).transpose()?;
        Ok(Options {
            reuse: self.reuse,
            connect_timeout: self.connect_timeout,
            request_timeout: self.request_timeout,
            connect_rate: self.connect_rate,
            sources: self.sources.clone(),
            tls,
            ..Options::new(target.resolve()?, exchange)
        })
    }

    /// What goes over a connection in words: the first request, and how many there are beside it.
    #[must_use]
    pub fn requests_in_words(&self, exchange: &Exchange) -> String {
        let word = |request: &RequestSpec| match exchange {
            Exchange::Resp(_) => request.command.join(" "),
            Exchange::Http(_) | Exchange::Http2 { .. } => format!("{} {}", request.method, request.path),
            Exchange::TcpConnect => "a connection".to_owned(),
            Exchange::TcpEcho { bytes } => format!("{bytes} bytes to be echoed"),
        };
        let first = self.requests.first().map_or(String::new(), word);
        match self.requests.len() {
            0 | 1 => first,
            more => format!("{first} and {} more", more - 1),
        }
    }

    /// The most connections that any step holds.
    #[must_use]
    pub fn max_connections(&self) -> u32 {
        self.steps.iter().map(|step| step.plan.connections).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_the_work_and_of_nothing_else() {
        let of = |text: &str, data| digest(text, data).unwrap();
        let get = "name = \"a\"\n[[request]]\npath = \"/\"\n[[step]]\nconnections = 1\nduration_s = 1\n";
        let more = "[[step]]\nconnections = 8\nduration_s = 2\n[[request]]\npath = \"/\"\n";
        assert_eq!(of(get, None), of(more, None), "steps and names decide nothing");
        assert_eq!(of(get, None).len(), 64);
        for other in [
            get.replace("\"/\"", "\"/other\""),
            get.replace("path", "method = \"POST\"\npath"),
            get.replace("[[step]]", "[good]\nstatus = [\"200\"]\n[[step]]"),
            get.replace("[[request]]", "[connection]\nreuse = \"per-request\"\n[[request]]"),
        ] {
            assert_ne!(of(get, None), of(&other, None), "{other}");
        }
        assert_ne!(of(get, None), of(get, Some("id\n1\n")));
        assert!(digest("not toml", None).is_err());
    }
}
