//! A forward's task for one partition.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use tidegate_algorithms::backoff::Backoff;
use tidegate_log::{ReadError, ReadLines};
use tidegate_net::clock::monotonic;
use tidegate_net::drain::Stage;
use tidegate_wire::metrics::{describe, forward};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Destination, ForwardConfig, ForwardState, NONE, Place, group};
use crate::endpoint::{Answer, Endpoint, PostError};
use crate::intake::Intake;
use crate::limits::Limits;
use crate::refusal::Refusal;

/// Most lines of a batch.
const BATCH_LINES: u64 = 5_000;
/// Most bytes of a batch's lines, unless one line has more.
const BATCH_BYTES: usize = 1 << 20;
/// Longest try.
const DEADLINE: Duration = Duration::from_secs(30);
/// Time between two commits.
const COMMIT_GAP: Duration = Duration::from_secs(1);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Bytes of a skipped line that are logged.
const SHOWN: usize = 300;

/// The process ends.
struct Draining;

pub(super) struct Forwarder<L> {
    intake: Arc<Intake<L>>,
    config: ForwardConfig,
    state: Arc<ForwardState>,
    partition: u16,
    /// Where to read on.
    next: u64,
    /// Lines before this offset are counted as missing, if they were not delivered.
    counted_to: u64,
    backoff: Backoff,
    authorization: Option<HeaderValue>,
}

impl<L: Limits> Forwarder<L> {
    pub(super) fn new(
        intake: Arc<Intake<L>>,
        config: ForwardConfig,
        state: Arc<ForwardState>,
        partition: u16,
    ) -> Self {
        let next = state.places[usize::from(partition)].next.load(Relaxed);
        let seed = intake.clock().tick().0 ^ u64::from(partition);
        let backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT, seed);
        Self { intake, config, state, partition, next, counted_to: 0, backoff, authorization: None }
    }

    fn place(&self) -> &Place {
        &self.state.places[usize::from(self.partition)]
    }

    /// Forwards until the process drains.
    pub(super) async fn run(mut self) {
        let mut endpoint = match Endpoint::new(self.config.url.clone()) {
            Ok(endpoint) => endpoint,
            Err(error) => return tracing::error!(forward = self.config.name, %error, "nothing is forwarded"),
        };
        self.read_token().await;
        // Running until the process drains is how this ends.
        let Draining = self.forward(&mut endpoint).await;
        self.commit().await;
    }

    async fn forward(&mut self, endpoint: &mut Endpoint) -> Draining {
        let (log, drain) = (Arc::clone(self.intake.log()), self.intake.drain());
        let (mut committed, mut due) = (self.next, Instant::from_std(monotonic()));
        loop {
            if self.next != committed && Instant::from_std(monotonic()) >= due {
                self.commit().await;
                committed = self.next;
                due = Instant::from_std(monotonic()) + COMMIT_GAP;
            }
            let read = match self.read().await {
                Ok(read) => read,
                Err(Draining) => return Draining,
            };
            if read.count > 0 {
                let oldest = describe(first_line(&read.lines)).map_or(NONE, |line| line.millis);
                self.place().oldest.store(oldest, Relaxed);
                if let Err(Draining) = self.deliver(endpoint, &read).await {
                    return Draining;
                }
                self.advance(read.next_offset);
                continue;
            }
            self.place().oldest.store(NONE, Relaxed);
            tokio::select! {
                () = log.wait_past(self.partition, self.next) => {}
                () = sleep_until(due), if self.next != committed => {}
                () = drain.reached(Stage::Draining) => return Draining,
            }
        }
    }

    fn advance(&mut self, next: u64) {
        self.next = next;
        self.place().next.store(next, Relaxed);
    }

    /// The next lines; none if there are none yet. Lines that are gone are counted and passed over.
    async fn read(&mut self) -> Result<ReadLines, Draining> {
        loop {
            let (log, partition, at) = (Arc::clone(self.intake.log()), self.partition, self.next);
            let read =
                self.intake.on_a_thread(move || log.read(partition, at, BATCH_LINES, BATCH_BYTES)).await;
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
                Err(Refusal::NoReader) => return Err(Draining),
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
    async fn deliver(&mut self, endpoint: &mut Endpoint, read: &ReadLines) -> Result<(), Draining> {
        let lines: Vec<&[u8]> = read.lines.split_inclusive(|byte| *byte == b'\n').collect();
        // The next lines to send are on top.
        let mut parts = vec![(0, lines.len())];
        while let Some((start, end)) = parts.pop() {
            let some = &lines[start..end];
            let answer = self.send(endpoint, some, read.next_offset).await?;
            if answer.status.is_success() {
                let rejected = match self.config.to {
                    Destination::Otlp => forward::otlp::rejected(&answer.body).min(some.len() as u64),
                    Destination::RemoteWrite => 0,
                };
                self.state.delivered.fetch_add(some.len() as u64 - rejected, Relaxed);
                self.skip(rejected, &answer, b"");
            } else if let [line] = some {
                self.skip(1, &answer, line);
            } else {
                let middle = start + some.len() / 2;
                parts.push((middle, end));
                parts.push((start, middle));
            }
        }
        Ok(())
    }

    /// Counts lines that the other side will never take.
    fn skip(&self, lines: u64, answer: &Answer, line: &[u8]) {
        if lines == 0 {
            return;
        }
        let skipped = self.state.skipped.fetch_add(lines, Relaxed) + lines;
        // The first ones are told; of many, now and then one.
        if skipped <= 10 || skipped.is_power_of_two() {
            let line = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).into_owned();
            let (status, said) = (answer.status.as_u16(), answer.said());
            tracing::warn!(forward = self.config.name, status, said = %said.escape_debug(), line, skipped, "the other side refuses lines: they are skipped");
        }
    }

    /// Sends some lines until there is an answer to them: a success, or a refusal that another try would not change.
    async fn send(
        &mut self,
        endpoint: &mut Endpoint,
        lines: &[&[u8]],
        batch_end: u64,
    ) -> Result<Answer, Draining> {
        let body = self.encode(lines);
        let drain = self.intake.drain();
        loop {
            let mut fields = self.config.to.fields();
            fields.extend(self.authorization.clone().map(|value| (header::AUTHORIZATION, value)));
            let sent = tokio::select! {
                sent = endpoint.post(&fields, body.clone(), DEADLINE) => sent,
                () = drain.reached(Stage::Draining) => return Err(Draining),
            };
            match sent {
                Ok(answer) if is_final(answer.status) => {
                    if self.backoff.failures() > 0 {
                        tracing::info!(
                            forward = self.config.name,
                            partition = self.partition,
                            "lines are taken again"
                        );
                    }
                    self.backoff.succeeded();
                    return Ok(answer);
                }
                failed => {
                    self.failed(endpoint, &failed);
                    let kept = self.intake.log().offsets(self.partition).unwrap_or_default();
                    self.count_missing(batch_end..kept.start);
                    self.wait(failed.ok().and_then(|answer| answer.retry_after)).await?;
                    self.read_token().await;
                }
            }
        }
    }

    fn encode(&self, lines: &[&[u8]]) -> Bytes {
        let lines = lines.iter().copied();
        match self.config.to {
            Destination::Otlp => forward::otlp::encode(lines).into(),
            Destination::RemoteWrite => {
                let request = forward::remote_write::encode(lines);
                // Invariant: a batch is far below the 4 GiB that a block may have.
                snap::raw::Encoder::new().compress_vec(&request).unwrap_or_default().into()
            }
        }
    }

    fn failed(&self, endpoint: &Endpoint, failed: &Result<Answer, PostError>) {
        self.state.failed.fetch_add(1, Relaxed);
        if self.backoff.failures() == 0 {
            let why = match failed {
                Ok(answer) => format!("{} {}", answer.status, answer.said()),
                Err(error) => error.to_string(),
            };
            let (forward, partition) = (&self.config.name, self.partition);
            tracing::warn!(forward, partition, url = %endpoint.url(), why = %why.escape_debug(), "lines cannot be forwarded: they stay in the log, and are tried again");
        }
    }

    /// Waits after a failure, at least as long as it was asked for within reason.
    async fn wait(&mut self, asked: Option<Duration>) -> Result<(), Draining> {
        let wait = self.backoff.failed();
        let wait = asked.map_or(wait, |asked| asked.clamp(wait, LONGEST_WAIT));
        let drain = self.intake.drain();
        tokio::select! {
            () = sleep(wait) => Ok(()),
            () = drain.reached(Stage::Draining) => Err(Draining),
        }
    }

    /// Reads the token's file, so that one that was exchanged is used for the next try.
    async fn read_token(&mut self) {
        let Some(path) = self.config.token_file.clone() else { return };
        let read = self.intake.on_a_thread(move || std::fs::read_to_string(path)).await;
        let value = match read {
            Ok(Ok(token)) => HeaderValue::try_from(format!("Bearer {}", token.trim())).ok(),
            Ok(Err(error)) => {
                tracing::error!(forward = self.config.name, %error, "the token's file cannot be read");
                None
            }
            Err(_) => None,
        };
        self.authorization = value.map(|mut value| {
            value.set_sensitive(true);
            value
        });
    }

    async fn commit(&self) {
        let (log, partition, next) = (Arc::clone(self.intake.log()), self.partition, self.next);
        let group = group(&self.config.name);
        let kept = self.intake.on_a_thread(move || log.commit(&group, partition, next)).await;
        if let Ok(Err(error)) = kept {
            // What was delivered since the last commit is delivered again after a restart.
            tracing::error!(forward = self.config.name, partition, %error, "how far lines were forwarded could not be kept");
        }
    }
}

fn first_line(lines: &[u8]) -> &[u8] {
    lines.split_inclusive(|byte| *byte == b'\n').next().unwrap_or_default()
}

/// Whether another try would be answered the same.
fn is_final(status: StatusCode) -> bool {
    status.is_success() || [400, 413, 422].contains(&status.as_u16())
}
