//! Reads a server's Prometheus page before and after a step.

use std::time::Duration;

use tidegate_tester::diagnose::evidence::ServerDelta;
use tidegate_tester::diagnose::evidence::prometheus::Samples;

/// How long the page may take.
const DEADLINE: Duration = Duration::from_secs(2);
/// Largest page that is read, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// A page as it was read; none when it could not be.
pub(super) type Page = Option<Samples>;

/// A page to read.
pub(super) struct Metrics {
    url: String,
    cores: f64,
    agent: ureq::Agent,
}

impl Metrics {
    pub(super) fn new(url: &str, cores: f64) -> Self {
        let config = ureq::Agent::config_builder().timeout_global(Some(DEADLINE)).build();
        Self { url: url.to_owned(), cores, agent: ureq::Agent::new_with_config(config) }
    }

    /// Reads the page once. A page that fails is evidence that is missing, not a failed run.
    pub(super) fn read(&self) -> Page {
        let mut reply = self.agent.get(&self.url).call().ok()?;
        let text = reply.body_mut().with_config().limit(MAX_BYTES).read_to_string().ok()?;
        Some(Samples::parse(&text))
    }

    /// What the server did since `before`, `seconds` ago.
    pub(super) fn delta(&self, before: &Page, seconds: f64) -> Option<ServerDelta> {
        Samples::server(before.as_ref()?, &self.read()?, seconds, self.cores)
    }
}
