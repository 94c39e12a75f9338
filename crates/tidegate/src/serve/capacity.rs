//! The load of now beside what an accepted report of the tester says that can be kept up.
//!
//! Once a second the requests that the report's server has answered are read; the load is their rate over the last ten
//! seconds. Without an accepted report nothing is read.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tidegate_admin::api::{AcceptedCapacity, CapacityReports, NoExplanation};
use tidegate_admin::{Families, Family, Servers};
use tidegate_control::Configuration;
use tidegate_judge::report::Report;
use tidegate_net::clock::monotonic;
use tokio::time::sleep;

/// How often requests are counted.
const PERIOD: Duration = Duration::from_secs(1);
/// Counts that are kept: the load is that of the last ten seconds.
const KEPT: usize = 11;
/// Longest text of a report that is kept, in characters.
const MAX_TEXT: usize = 1_000;

const REPORT: &str = "a report of tidegate saturate --json";

/// The load of the server that the accepted report is for.
#[derive(Debug)]
pub(super) struct ServerLoad {
    configuration: Configuration,
    /// Known once all are bound.
    servers: OnceLock<Servers>,
    counted: Mutex<Counted>,
}

/// Requests that a server has answered, and when.
#[derive(Debug, Default)]
struct Counted {
    server: String,
    counts: VecDeque<(Instant, u64)>,
}

impl ServerLoad {
    pub(super) fn new(configuration: Configuration) -> Arc<Self> {
        Arc::new(Self { configuration, servers: OnceLock::new(), counted: Mutex::default() })
    }

    /// Counts these servers' requests from now on.
    pub(super) fn of(&self, servers: Servers) {
        // Invariant: a process has one list of them.
        drop(self.servers.set(servers));
    }

    /// Counts, for as long as it is polled.
    pub(super) async fn follow(&self) {
        loop {
            self.count(monotonic());
            sleep(PERIOD).await;
        }
    }

    fn accepted(&self) -> Option<AcceptedCapacity> {
        Some(AcceptedCapacity::stored(self.configuration.parts().documents())?.0)
    }

    fn count(&self, now: Instant) {
        let answered = self.accepted().and_then(|accepted| {
            let count = self.servers.get()?.answered(&accepted.server)?;
            Some((accepted.server, count))
        });
        let mut counted = self.counted();
        match answered {
            Some((server, count)) => counted.add(server, now, count),
            None => *counted = Counted::default(),
        }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        // A panic under the lock leaves counts that are as good as before.
        self.counted.lock()
    }
}

impl Counted {
    fn add(&mut self, server: String, now: Instant, count: u64) {
        if self.server != server {
            *self = Self { server, counts: VecDeque::new() };
        }
        if self.counts.len() >= KEPT {
            self.counts.pop_front();
        }
        self.counts.push_back((now, count));
    }

    /// Requests per second.
    fn rate(&self) -> Option<f64> {
        let ((first, before), (last, now)) = (self.counts.front()?, self.counts.back()?);
        let seconds = last.duration_since(*first).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate is a double")]
        let grown = now.saturating_sub(*before) as f64;
        (seconds > 0.0).then(|| grown / seconds)
    }
}

impl CapacityReports for ServerLoad {
    fn read(&self, server: &str, report: &str) -> Result<AcceptedCapacity, NoExplanation> {
        let wrong = |parameter: &str, problem: String, accepted| NoExplanation {
            parameter: parameter.to_owned(),
            problem,
            accepted,
        };
        if self.servers.get().is_none_or(|servers| servers.answered(server).is_none()) {
            let accepted = "a server of this process that has requests, by its label in the metrics: api";
            return Err(wrong("server", format!("is {server:?}"), accepted));
        }
        let report = Report::from_json(report).map_err(|error| wrong("", format!("is {error}"), REPORT))?;
        let per_second = kept_up(&report).filter(|rate| rate.is_finite() && *rate > 0.0);
        let Some(per_second) = per_second else {
            let accepted = "one that found how many requests are kept up";
            return Err(wrong("", "found no capacity".to_owned(), accepted));
        };
        let text = |text: &str| text.chars().take(MAX_TEXT).collect::<String>();
        Ok(AcceptedCapacity {
            server: server.to_owned(),
            per_second,
            is_knee: report.knee.is_some(),
            cause: report.cause.name.as_str().to_owned(),
            cause_summary: text(&report.cause.summary),
            sentence: text(&report.conclusion.sentence),
            target: text(&report.context.target),
            started: text(&report.context.started),
            version: text(&report.context.version),
        })
    }

    fn load(&self) -> Option<f64> {
        self.counted().rate()
    }
}

/// Replies per second at the knee, or where the most was kept up: the good ones and the denials among them, since a
/// server's load is both.
fn kept_up(report: &Report) -> Option<f64> {
    let capacity = report.capacity?;
    let good = report.knee.map_or(capacity.throughput, |knee| knee.throughput);
    let level = report.levels.iter().find(|level| level.load == capacity.load);
    let (denied, errors) = level.map_or((0.0, 0.0), |level| (level.denied_ratio, level.error_ratio));
    Some(good * (1.0 - errors) / (1.0 - denied - errors))
}

/// The load as the metrics page has it.
#[derive(Debug)]
pub(super) struct LoadMetrics(pub(super) Arc<ServerLoad>);

impl Family for LoadMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let Some(accepted) = self.0.accepted() else { return Ok(()) };
        let help = "Requests per second that the accepted capacity report says are kept up";
        families.gauge("tidegate_capacity_per_second", help, accepted.per_second)?;
        let Some(load) = self.0.load() else { return Ok(()) };
        let help = "Share of the accepted capacity that was asked for in the last ten seconds, of this node";
        families.gauge("tidegate_capacity_used_ratio", help, load / accepted.per_second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_the_rate_of_the_last_ten_seconds_of_one_server() {
        let began = monotonic();
        let mut counted = Counted::default();
        for second in 0..30 {
            let count = if second < 15 { 0 } else { 100 * (second - 15) };
            counted.add("api".to_owned(), began + Duration::from_secs(second), count);
            assert_eq!(counted.rate().is_some(), second > 0);
        }
        assert_eq!(counted.rate(), Some(100.0));
        assert_eq!(counted.counts.len(), KEPT);
        counted.add("gateway".to_owned(), began + Duration::from_secs(30), 7);
        assert_eq!(counted.rate(), None);
    }
}
