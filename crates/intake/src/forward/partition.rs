//! A forward's task for one partition.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_algorithms::backoff::Backoff;
use tidegate_log::{ReadError, ReadLines};
use tidegate_net::clock::monotonic;
use tidegate_net::drain::{Drain, Stage};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::refused;
use super::sent::Untaken;
use super::sink::{Sink, Topics};
use super::{ForwardConfig, ForwardState, group};
use crate::intake::Intake;
use crate::readers::Turn;
use crate::refusal::Refusal;

/// Most lines of a batch.
const BATCH_LINES: u64 = 5_000;
/// Most bytes of a batch's lines, unless one line has more.
const BATCH_BYTES: usize = 1 << 20;
/// Time between two commits.
const COMMIT_GAP: Duration = Duration::from_secs(1);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The task is to end.
struct Ending;

/// When a task is to end: the process drains, or its forward is not configured any more.
#[derive(Clone)]
pub(super) struct ForwardEnd {
    pub(super) drain: Drain,
    pub(super) stop: watch::Receiver<bool>,
}

impl ForwardEnd {
    async fn reached(&self) {
        let mut stop = self.stop.clone();
        tokio::select! {
            () = self.drain.reached(Stage::Draining) => {}
            // The sender of `stop` lives as long as the process.
            () = async { drop(stop.wait_for(|stop| *stop).await) } => {}
        }
    }
}

pub(super) struct Forwarder {
    intake: Arc<Intake>,
    config: ForwardConfig,
    state: Arc<ForwardState>,
    partition: u16,
    end: ForwardEnd,
    /// Where to read on.
    next: u64,
    /// Lines before this offset are counted as missing, if they were not delivered.
    counted_to: u64,
    backoff: Backoff,
}

impl Forwarder {
    pub(super) fn new(
        intake: Arc<Intake>,
        config: ForwardConfig,
        state: Arc<ForwardState>,
        partition: u16,
        end: ForwardEnd,
    ) -> Self {
        let next = state.places[usize::from(partition)].load(Relaxed);
        let seed = intake.clock().tick().0 ^ u64::from(partition);
        let backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT, seed);
        Self { intake, config, state, partition, end, next, counted_to: 0, backoff }
    }

    fn place(&self) -> &AtomicU64 {
        &self.state.places[usize::from(self.partition)]
    }

    /// Forwards until its end, and keeps how far it came.
    pub(super) async fn run(mut self, topics: Option<&'static dyn Topics>) {
        let mut sink = match Sink::new(&self.intake, &self.config, topics, self.partition) {
            Ok(sink) => sink,
            Err(error) => return tracing::error!(forward = self.config.name, %error, "nothing is forwarded"),
        };
        let Ending = self.forward(&mut sink).await;
        self.commit().await;
        sink.close().await;
    }

    async fn forward(&mut self, sink: &mut Sink) -> Ending {
        let (log, end) = (Arc::clone(self.intake.log()), self.end.clone());
        let (mut committed, mut due) = (self.next, Instant::from_std(monotonic()));
        loop {
            if self.next != committed && Instant::from_std(monotonic()) >= due {
                self.commit().await;
                committed = self.next;
                due = Instant::from_std(monotonic()) + COMMIT_GAP;
            }
            let read = match self.read().await {
                Ok(read) => read,
                Err(Ending) => return Ending,
            };
            if read.count > 0 {
                if let Err(Ending) = self.deliver(sink, &read).await {
                    return Ending;
                }
                self.advance(read.next_offset);
                continue;
            }
            tokio::select! {
                () = log.wait_past(self.partition, self.next) => {}
                () = sleep_until(due), if self.next != committed => {}
                () = end.reached() => return Ending,
            }
        }
    }

    fn advance(&mut self, next: u64) {
        self.next = next;
        self.place().store(next, Relaxed);
    }

    /// The next lines; `None` while there are no new ones. Lines that are gone are counted and passed over.
    async fn read(&mut self) -> Result<ReadLines, Ending> {
        loop {
            let (log, partition, at) = (Arc::clone(self.intake.log()), self.partition, self.next);
            let read = self
                .intake
                .on_a_thread(Turn::Forward, move || log.read(partition, at, BATCH_LINES, BATCH_BYTES))
                .await;
            let error = match read {
                Ok(Ok(read)) => {
                    if let Some(missing) = &read.missing {
                        self.count_missing(missing.clone());
                    }
                    if read.count == 0 && read.next_offset != self.next {
                        self.advance(read.next_offset);
                        continue;
                    }
                    return Ok(read);
                }
                Ok(Err(ReadError::Gone { oldest })) => {
                    self.count_missing(self.next..oldest);
                    self.advance(oldest);
                    continue;
                }
                Ok(Err(error)) => error.to_string(),
                Err(Refusal::NoReader) => return Err(Ending),
                Err(refusal) => refusal.to_string(),
            };
            tracing::error!(
                forward = self.config.name,
                partition,
                at,
                error,
                "lines to forward cannot be read"
            );
            self.wait(None).await?;
        }
    }

    /// Counts lines that are gone and were not delivered.
    fn count_missing(&mut self, gone: Range<u64>) {
        let first = gone.start.max(self.counted_to);
        let lines = gone.end.saturating_sub(first);
        if lines > 0 {
            self.counted_to = gone.end;
            let before = self.state.missing.fetch_add(lines, Relaxed);
            if (before + lines).ilog2() != before.checked_ilog2().unwrap_or(u32::MAX) {
                let (forward, partition) = (&self.config.name, self.partition);
                tracing::error!(
                    forward,
                    partition,
                    ?gone,
                    "lines are gone that were not forwarded: more intake.retain_bytes, or mend the other side"
                );
            }
        }
    }

    /// Sends lines until each was taken or is skipped.
    async fn deliver(&mut self, sink: &mut Sink, read: &ReadLines) -> Result<(), Ending> {
        let lines: Vec<&[u8]> = read.lines.split_inclusive(|byte| *byte == b'\n').collect();
        // After a refusal half as many lines go at once, and after a success twice as many: of lines that are all
        // refused each is tried once, and one that is refused among others costs few tries.
        let (mut at, mut many) = (0, lines.len());
        while at < lines.len() {
            let end = lines.len().min(at + many);
            let Some((taken, why)) = self.send(sink, &lines[at..end], read.next_offset).await? else {
                (at, many) = (end, many.saturating_mul(2));
                continue;
            };
            at += taken;
            many = ((end - at) / 2).max(1);
            if end - at == 1 {
                self.set_aside(lines[at], read.first_offset + at as u64, &why).await;
                at += 1;
            }
        }
        Ok(())
    }

    /// Sends some lines until all are taken, or the rest of them is refused for good: then how many were taken before
    /// it, and why.
    async fn send(
        &mut self,
        sink: &mut Sink,
        lines: &[&[u8]],
        batch_end: u64,
    ) -> Result<Option<(usize, String)>, Ending> {
        let end = self.end.clone();
        let mut taken = 0;
        loop {
            let sent = tokio::select! {
                sent = sink.send(&lines[taken..]) => sent,
                () = end.reached() => return Err(Ending),
            };
            taken += sent.taken;
            let delivered = (sent.taken as u64).saturating_sub(sent.left_out + sent.superseded);
            self.state.delivered.fetch_add(delivered, Relaxed);
            self.state.superseded.fetch_add(sent.superseded, Relaxed);
            self.skip(sent.left_out, None, &sent.said);
            let (why, retry_after) = match sent.untaken {
                None => return Ok(self.resumed(None)),
                Some(Untaken::Refused(why)) => return Ok(self.resumed(Some((taken, why)))),
                Some(Untaken::Failed { why, retry_after }) => (why, retry_after),
            };
            self.failed(&why);
            let kept = self.intake.log().offsets(self.partition).unwrap_or_default();
            self.count_missing(batch_end..kept.start);
            self.wait(retry_after).await?;
        }
    }

    /// Notes that the other side has answered, with `answer`.
    fn resumed<T>(&mut self, answer: T) -> T {
        if self.backoff.failures() > 0 {
            tracing::info!(forward = self.config.name, partition = self.partition, "lines are taken again");
        }
        self.backoff.succeeded();
        answer
    }

    /// Puts a line where a person finds it that the other side will never take.
    async fn set_aside(&self, line: &[u8], offset: u64, said: &str) {
        self.skip(1, Some(offset), said);
        let (file, line) = (refused::file(self.intake.log().folder(), &self.config.name), line.to_vec());
        let kept = self.intake.on_a_thread(Turn::Forward, move || refused::add(&file, &line)).await;
        if let Ok(Err(error)) = kept {
            tracing::error!(forward = self.config.name, offset, %error, "a line that was refused is only in the log");
        }
    }

    /// Counts lines that the other side will never take; the offset of a single one.
    fn skip(&self, lines: u64, offset: Option<u64>, said: &str) {
        if lines == 0 {
            return;
        }
        let skipped = self.state.skipped.fetch_add(lines, Relaxed) + lines;
        // The first ones are told; of many, now and then one.
        if skipped <= 10 || skipped.is_power_of_two() {
            let (forward, partition) = (&self.config.name, self.partition);
            let became = if offset.is_some() {
                "set aside in intake/refused"
            } else {
                "lost to it, and it does not say which"
            };
            tracing::warn!(forward, partition, offset, said = %said.escape_debug(), skipped, "the other side refuses lines: they are {became}");
        }
    }

    fn failed(&self, why: &str) {
        self.state.failed.fetch_add(1, Relaxed);
        if self.backoff.failures() == 0 {
            let ForwardConfig { name: forward, to } = &self.config;
            let partition = self.partition;
            tracing::warn!(forward, partition, %to, why = %why.escape_debug(), "lines cannot be forwarded: they stay in the log, and are tried again");
        }
    }

    /// Waits after a failure, at least as long as it was asked for within reason.
    async fn wait(&mut self, asked: Option<Duration>) -> Result<(), Ending> {
        let wait = self.backoff.failed();
        let wait = asked.map_or(wait, |asked| asked.clamp(wait, LONGEST_WAIT));
        let end = self.end.clone();
        tokio::select! {
            () = sleep(wait) => Ok(()),
            () = end.reached() => Err(Ending),
        }
    }

    async fn commit(&self) {
        let (log, partition, next) = (Arc::clone(self.intake.log()), self.partition, self.next);
        let group = group(&self.config.name);
        let kept = self.intake.on_a_thread(Turn::Forward, move || log.commit(&group, partition, next)).await;
        if let Ok(Err(error)) = kept {
            // What was delivered since the last commit is delivered again after a restart.
            tracing::error!(forward = self.config.name, partition, %error, "how far lines were forwarded could not be kept");
        }
    }
}
