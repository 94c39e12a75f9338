//! The gateway's access log in this process: opened again on SIGHUP, closed at the end, counted on the metrics page.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidegate_admin::{Families, Family};
use tidegate_gateway::access_log::{
    AccessLog, AccessLogSettings, Destination, LineFormat as Format, QUEUE_BYTES,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{self, LineFormat, LogPlace, LoggedShare};

/// How long the end of the process waits for a disk that does not take the last lines.
const PATIENCE: Duration = Duration::from_secs(5);

impl config::AccessLog {
    /// The log that these ask for, if they do.
    pub(super) fn wanted(&self) -> Option<AccessLogSettings> {
        let destination = match &self.to {
            LogPlace::Off => return None,
            LogPlace::Stdout => Destination::Stdout,
            LogPlace::File(path) => {
                Destination::File { path: path.clone(), max_bytes: self.max_bytes.0, keep: self.keep }
            }
        };
        let format = match self.format {
            LineFormat::Json => Format::Json,
            LineFormat::Combined => Format::Combined,
        };
        let rules = self.sample.iter().map(|LoggedShare(rule)| rule.clone()).collect();
        Some(AccessLogSettings { destination, format, rules })
    }
}

/// Opens the log's file again on each SIGHUP, as programs that rename logs expect it, until it is dropped.
///
/// # Errors
/// If the handler of SIGHUP cannot be installed.
pub async fn reopen(log: Option<Arc<AccessLog>>) -> io::Result<()> {
    let mut hangups = signal(SignalKind::hangup())?;
    while hangups.recv().await.is_some() {
        if let Some(log) = &log {
            log.reopen();
        }
    }
    Ok(())
}

/// Writes the last lines. Blocks.
pub(super) fn close(log: &AccessLog) {
    if !log.close(PATIENCE) {
        tracing::warn!(waited = ?PATIENCE, "the access log's last lines are lost: its file cannot be written");
    }
}

/// What has become of lines.
pub(super) struct AccessLogMetrics(pub(super) Arc<AccessLog>);

impl Family for AccessLogMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let stats = self.0.stats();
        let help = "Lines of the access log: dropped because the queue was full, failed because the file could not be written, or left out by a rule";
        families.counters("tidegate_access_log_lines", help, |series| {
            series(&[("result", "written")], stats.written)?;
            series(&[("result", "dropped")], stats.dropped)?;
            series(&[("result", "failed")], stats.failed)?;
            series(&[("result", "left_out")], stats.left_out)
        })?;
        let help = "Bytes of lines of the access log that wait to be written";
        families.gauge("tidegate_access_log_queued_bytes", help, stats.queued_bytes as u64)?;
        families.gauge(
            "tidegate_access_log_queue_max_bytes",
            "Most bytes of lines of the access log that may wait",
            QUEUE_BYTES as u64,
        )
    }
}
