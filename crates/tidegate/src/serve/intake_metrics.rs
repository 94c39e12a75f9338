//! The intake's numbers, as the metrics page has them.

use std::fmt;
use std::sync::Arc;

use tidegate_admin::{Families, Family};
use tidegate_intake::ClientSeries;
use tidegate_intake::alerts::Alerts;
use tidegate_intake::counters::{Counters, Leftover, Protocol, Reason};
use tidegate_intake::forward::Forwards;
use tidegate_intake::statsd::StatsdCounters;
use tidegate_log::{FLUSH_BOUNDS_US, Log, PartitionStatistics};

/// What came in and what was refused.
pub(super) struct IntakeMetrics(pub(super) Arc<Counters>);

impl Family for IntakeMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let Self(counters) = self;
        let help = "Batches that were acknowledged";
        families.counters("tidegate_intake_batches", help, |series| {
            Protocol::ALL
                .into_iter()
                .try_for_each(|it| series(&[("protocol", it.label())], counters.batches(it)))
        })?;
        let help = "Metrics of batches that were acknowledged";
        families.counters("tidegate_intake_metrics", help, |series| {
            Protocol::ALL
                .into_iter()
                .try_for_each(|it| series(&[("protocol", it.label())], counters.metrics(it)))
        })?;
        let help = "Metrics that were not acceptable, in batches of which others were kept";
        families.counter("tidegate_intake_rejected_metrics", help, counters.rejected())?;
        let help = "Batches that were sent again, and not kept again";
        families.counter("tidegate_intake_repeated_batches", help, counters.repeated())?;
        let help = "Batches that were forgotten before intake.repeat_window had passed, for want of room";
        families.counter("tidegate_intake_forgotten_batches", help, counters.forgotten())?;
        let help = "What came and no line can hold";
        families.counters("tidegate_intake_left_out", help, |series| {
            Leftover::ALL
                .into_iter()
                .try_for_each(|it| series(&[("what", it.label())], counters.leftovers(it)))
        })?;
        let help = "Requests that were refused";
        families.counters("tidegate_intake_refused", help, |series| {
            Reason::ALL.into_iter().try_for_each(|it| series(&[("reason", it.label())], counters.refused(it)))
        })
    }
}

/// What the alert rules have found.
pub(super) struct AlertMetrics(pub(super) Arc<Alerts>);

impl Family for AlertMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let Self(alerts) = self;
        let help = "Series beyond the threshold of an alert rule";
        families.gauges("tidegate_intake_alerts", help, |series| {
            alerts.counts().iter().try_for_each(|(name, counts)| {
                series(&[("alert", name), ("state", "pending")], counts.pending)?;
                series(&[("alert", name), ("state", "firing")], counts.firing)
            })
        })?;
        let help = "Notices of alerts, by what became of them, and tries to send some that failed";
        families.counters("tidegate_intake_alert_notices", help, |series| {
            alerts.notices().into_iter().try_for_each(|(what, count)| series(&[("what", what)], count))
        })?;
        let help = "Values that would have begun an alert and were passed over for want of room";
        families.counter("tidegate_intake_alerts_untracked", help, alerts.untracked())
    }
}

/// What StatsD has lost.
pub(super) struct StatsdMetrics(pub(super) Arc<StatsdCounters>);

impl Family for StatsdMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let Self(counters) = self;
        let help = "Metrics by StatsD that a limit or a full queue refused; their senders were not told";
        families.counter("tidegate_intake_statsd_lost_metrics", help, counters.lost())?;
        let help = "Datagrams that the kernel dropped because they were not taken in time";
        families.counter("tidegate_intake_statsd_dropped_datagrams", help, counters.dropped())?;
        let help = "Datagrams and connections from networks that may not send";
        families.counter("tidegate_intake_statsd_foreign", help, counters.foreign())
    }
}

/// How forwards fare.
pub(super) struct ForwardMetrics(pub(super) Arc<Forwards>);

impl Family for ForwardMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let forwards = self.0.states();
        let help = "Lines by what became of them: delivered, superseded by a later one of their series and time, skipped because the other side refused them, missing because they were gone; and tries that failed";
        families.counters("tidegate_intake_forward", help, |series| {
            forwards.iter().try_for_each(|it| {
                it.counts()
                    .into_iter()
                    .try_for_each(|(what, count)| series(&[("forward", it.name()), ("what", what)], count))
            })
        })?;
        let help = "Lines in the log that are not delivered yet";
        families.gauges("tidegate_intake_forward_waiting_lines", help, |series| {
            forwards.iter().try_for_each(|it| series(&[("forward", it.name())], it.waiting()))
        })?;
        let help = "Time since the arrival of the oldest line that is not delivered, whatever time it states; 0 if all are delivered";
        families.gauges("tidegate_intake_forward_oldest_age_seconds", help, |series| {
            forwards.iter().try_for_each(|it| series(&[("forward", it.name())], it.oldest_age().as_secs()))
        })
    }
}

/// How many series clients have.
pub(super) struct SeriesMetrics(pub(super) Arc<ClientSeries>);

impl Family for SeriesMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let Self(series) = self;
        let help = "Clients whose series are counted";
        families.gauge("tidegate_intake_series_clients", help, series.client_count() as u64)?;
        let help = "Series of the client that has the most; without intake.series_per_client an estimate";
        families.gauge("tidegate_intake_series_most", help, series.most())?;
        let help = "Metrics refused because their series is new and their client has no room for it";
        families.counter("tidegate_intake_series_refused_metrics", help, series.refused())?;
        let help = "Clients whose series were forgotten for want of room";
        families.counter("tidegate_intake_series_forgotten_clients", help, series.forgotten())
    }
}

/// How the log fares, partition by partition.
pub(super) struct LogMetrics(pub(super) Arc<Log>);

/// A number of a partition, under a name.
type PartitionNumber = (&'static str, &'static str, fn(&PartitionStatistics) -> u64);

const GAUGES: &[PartitionNumber] = &[
    ("tidegate_log_queue_bytes", "Bytes that wait for the disk or are being written", |it| it.queue_bytes),
    ("tidegate_log_queue_max_bytes", "Most bytes that may wait for the disk", |it| it.queue_limit_bytes),
    ("tidegate_log_troubled", "1 while the disk refuses lines", |it| u64::from(it.troubled)),
    ("tidegate_log_segments", "Segments, the one that is written to included", |it| it.segments),
    ("tidegate_log_disk_bytes", "Bytes that segments and their indexes take", |it| it.disk_bytes),
    ("tidegate_log_oldest_offset", "The oldest line that is kept", |it| it.oldest_offset),
    ("tidegate_log_next_offset", "The offset of the next line", |it| it.next_offset),
];

const COUNTERS: &[PartitionNumber] = &[
    ("tidegate_log_lines", "Lines written", |it| it.lines),
    ("tidegate_log_bytes", "Bytes of lines written", |it| it.bytes),
    ("tidegate_log_failed_writes", "Flushes that the disk refused", |it| it.failed_writes),
    ("tidegate_log_suspect_files", "Files given up because they could not be synced", |it| it.suspect_files),
    ("tidegate_log_lost_lines", "Lines acknowledged in memory that the disk refused", |it| it.lost_lines),
    ("tidegate_log_quarantined_files", "Damaged files set aside at the start", |it| it.quarantined_files),
    ("tidegate_log_quarantined_bytes", "Bytes that were put into quarantine", |it| it.quarantined_bytes),
    ("tidegate_log_removed_segments", "Segments that retention removed", |it| it.removed_segments),
    ("tidegate_log_damaged_blocks", "Blocks that could not be read back", |it| it.damaged_blocks),
];

impl Family for LogMetrics {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let partitions = self.0.statistics().partitions;
        let numbered: Vec<(String, &PartitionStatistics)> =
            partitions.iter().enumerate().map(|(number, it)| (number.to_string(), it)).collect();
        for (name, help, read) in GAUGES {
            families.gauges(name, help, |series| {
                numbered.iter().try_for_each(|(number, it)| series(&[("partition", number)], read(it)))
            })?;
        }
        for (name, help, read) in COUNTERS {
            families.counters(name, help, |series| {
                numbered.iter().try_for_each(|(number, it)| series(&[("partition", number)], read(it)))
            })?;
        }
        families.histograms("tidegate_log_flush_seconds", "Time that flushes took", |series| {
            numbered.iter().try_for_each(|(number, it)| {
                let bounds = FLUSH_BOUNDS_US.iter().map(|us| micros(*us)).chain([f64::INFINITY]);
                let buckets: Vec<(f64, u64)> = bounds.zip(it.flushes).collect();
                series(&[("partition", number)], micros(it.flush_us), &buckets)
            })
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time shown to people")]
fn micros(us: u64) -> f64 {
    us as f64 / 1e6
}
