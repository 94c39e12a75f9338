//! A pipeline's answers, in the order of its commands, and its throttle commands decided together.
//!
//! ```text
//!   command ──> Session ──> PipelineBatch: | a | PONG | b | a | c |   until it is full or the pipeline ends
//!                                            └────────┴───┴───┴──── decided together, then all replies at once
//! ```
//!
//! Together, because what a decision costs is mostly waiting, and waits can overlap. In this process it
//! waits for memory: the store takes a run of commands at once, in their order, and fetches all their
//! cache lines side by side. A shared store takes a round trip: commands that are started together wait in its
//! queue together, and it decides them as a batch. There, two of the same key stay one after the other,
//! because which of them is denied is theirs to know: a key's commands form a chain, and chains run side
//! by side.
//!
//! Memory: at most [`MAX_TOGETHER`] commands, whose keys are no longer than a key may be, and
//! [`FULL_BYTES`] of other replies and one more; beside them those of one transaction, [`MAX_QUEUED`]
//! commands, which are decided [`MAX_TOGETHER`] at a time.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use tidegate_algorithms::limit::Verdict;
use tidegate_net::stats::Route;
use tidegate_store::StoreError;
use tidegate_wire::resp::{Command, Encoder, Protocol};

use super::outcome::{Answered, CommandOutcome};
use super::shared::RespState;
use super::throttle::{Dialect, ThrottleError};
use crate::ad_hoc::Spend;

/// Most commands of one connection that are decided at once: 128 busy connections fit into what a
/// guarded store takes at a time.
const MAX_TOGETHER: usize = 32;
/// Bytes of other replies with which a batch is full.
const FULL_BYTES: usize = 16 << 10;
/// Most commands of a transaction.
const MAX_QUEUED: usize = 1_000;

/// Commands of a pipeline that wait for their replies to be written.
#[derive(Debug, Default)]
pub(super) struct PipelineBatch {
    entries: Vec<BatchEntry>,
    /// The keys of the throttle commands.
    keys: Vec<u8>,
    /// The replies that are known already.
    replies: Vec<u8>,
    /// The verdicts on the throttle commands, while it is settled.
    verdicts: Vec<Verdict>,
}

#[derive(Debug)]
struct BatchEntry {
    route: Route,
    answer: Pending,
}

/// What a command will be answered.
#[derive(Debug)]
enum Pending {
    /// The decision on it; the period, in seconds, is its client's.
    Decision { dialect: Dialect, period: u64, spend: Spend },
    /// So many bytes of the known replies, after those of the commands before it.
    Known { bytes: usize, outcome: CommandOutcome },
}

impl PipelineBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let verdicts = self.verdicts.capacity() * size_of::<Verdict>();
        self.entries.capacity() * size_of::<BatchEntry>()
            + self.keys.capacity()
            + self.replies.capacity()
            + verdicts
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it is to be settled before more is added.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= MAX_TOGETHER || self.replies.len() >= FULL_BYTES
    }

    /// Whether a transaction may have one more command.
    pub(super) fn takes_more(&self) -> bool {
        self.entries.len() < MAX_QUEUED && self.replies.len() < FULL_BYTES
    }

    /// Adds the commands of a transaction.
    pub(super) fn append(&mut self, transaction: Self) {
        let Self { entries, keys, replies, .. } = transaction;
        let offset = self.keys.len();
        self.entries.extend(entries.into_iter().map(|mut entry| {
            if let Pending::Decision { spend, .. } = &mut entry.answer {
                spend.moved_by(offset);
            }
            entry
        }));
        self.keys.extend_from_slice(&keys);
        self.replies.extend_from_slice(&replies);
    }

    /// Adds a throttle command; one that makes no sense is answered with an error.
    pub(super) fn throttle(
        &mut self,
        route: Route,
        dialect: Dialect,
        shared: &RespState,
        command: Command<'_>,
    ) {
        let spend = dialect.request(command).and_then(|request| {
            let counters = shared.counters(dialect);
            let spend = counters.spend(request.key, request.limit, request.quantity, &mut self.keys)?;
            Ok(Pending::Decision { dialect, period: request.period, spend })
        });
        match spend {
            Ok(answer) => self.entries.push(BatchEntry { route, answer }),
            // Errors are the same in every version of the protocol.
            Err(error) => {
                self.answer(Protocol::Resp2, |out| (route, error.answer(out)));
            }
        }
    }

    /// Adds a command that `write` answers at once.
    pub(super) fn answer(
        &mut self,
        protocol: Protocol,
        write: impl FnOnce(&mut Encoder<'_>) -> (Route, CommandOutcome),
    ) -> CommandOutcome {
        let start = self.replies.len();
        let (route, outcome) = write(&mut Encoder::new(&mut self.replies, protocol));
        let bytes = self.replies.len() - start;
        self.entries.push(BatchEntry { route, answer: Pending::Known { bytes, outcome } });
        outcome
    }

    /// Decides what is to be decided, appends all replies to `out` and their outcomes to `answered`. It is
    /// empty then.
    pub(super) async fn settle(&mut self, shared: &RespState, out: &mut Vec<u8>, answered: &mut Answered) {
        if self.decide_now(shared) {
            self.write(self.verdicts.iter().copied().map(Ok), out, answered);
        } else {
            let verdicts = self.decide_side_by_side(shared).await;
            self.write(verdicts.into_iter(), out, answered);
        }
        self.entries.clear();
        self.keys.clear();
        self.replies.clear();
        self.verdicts.clear();
        // A transaction may have been large.
        self.entries.shrink_to(MAX_TOGETHER);
        self.keys.shrink_to(FULL_BYTES);
        self.replies.shrink_to(FULL_BYTES);
        self.verdicts.shrink_to(MAX_TOGETHER);
    }

    /// Has what is to be decided decided by a store that need not be waited for. False if it has to be: it says so
    /// of the first run already, so that nothing was charged.
    fn decide_now(&mut self, shared: &RespState) -> bool {
        let Self { entries, keys, verdicts, .. } = self;
        let mut runs = entries.chunk_by(|one, next| one.dialect() == next.dialect());
        runs.all(|run| match run[0].dialect() {
            Some(dialect) => {
                let spends = run.iter().filter_map(BatchEntry::spend);
                shared.counters(dialect).decide_each_now(spends, keys, verdicts)
            }
            None => true,
        })
    }

    /// The same by a store that has to be waited for.
    async fn decide_side_by_side(&self, shared: &RespState) -> Vec<Result<Verdict, StoreError>> {
        let decisions = self.entries.iter().filter_map(|entry| Some((entry.dialect()?, entry.spend()?)));
        let decisions: Vec<NumberedSpend<'_>> =
            decisions.enumerate().map(|(index, (dialect, spend))| (index, dialect, spend)).collect();
        let mut verdicts = Vec::with_capacity(decisions.len());
        // A transaction may have more than are decided at once.
        for together in decisions.chunks(MAX_TOGETHER) {
            let mut chains: Vec<Vec<NumberedSpend<'_>>> = Vec::new();
            let mut of_key: HashMap<&[u8], usize> = HashMap::new();
            for place in together {
                let chain = *of_key.entry(place.2.key(&self.keys)).or_insert(chains.len());
                if chain == chains.len() {
                    chains.push(Vec::new());
                }
                chains[chain].push(*place);
            }
            let chains = chains.into_iter().map(|chain| self.run(chain, shared));
            verdicts.extend(all(chains).await.into_iter().flatten());
        }
        verdicts.sort_unstable_by_key(|(index, _)| *index);
        verdicts.into_iter().map(|(_, verdict)| verdict).collect()
    }

    async fn run(
        &self,
        chain: Vec<NumberedSpend<'_>>,
        shared: &RespState,
    ) -> Vec<(usize, Result<Verdict, StoreError>)> {
        let mut decided = Vec::with_capacity(chain.len());
        for (index, dialect, spend) in chain {
            decided.push((index, shared.counters(dialect).decide(spend, &self.keys).await));
        }
        decided
    }

    /// Appends the replies; `verdicts` has one for each that was to be decided.
    fn write(
        &self,
        mut verdicts: impl Iterator<Item = Result<Verdict, StoreError>>,
        out: &mut Vec<u8>,
        answered: &mut Answered,
    ) {
        let mut known = &self.replies[..];
        for BatchEntry { route, answer } in &self.entries {
            let outcome = match answer {
                Pending::Known { bytes, outcome } => {
                    let (reply, rest) = known.split_at(*bytes);
                    out.extend_from_slice(reply);
                    known = rest;
                    *outcome
                }
                Pending::Decision { dialect, period, .. } => {
                    // Integers are the same in every version of the protocol.
                    let mut out = Encoder::new(out, Protocol::Resp2);
                    match verdicts.next() {
                        Some(Ok(verdict)) => {
                            dialect.reply(&verdict, *period, &mut out);
                            CommandOutcome::Done
                        }
                        Some(Err(error)) => ThrottleError::from(error).answer(&mut out),
                        // Invariant: there is a verdict for each.
                        None => CommandOutcome::Failed,
                    }
                }
            };
            answered.push(*route, outcome);
        }
    }
}

/// Which of the decisions, and what it is about.
type NumberedSpend<'a> = (usize, Dialect, &'a Spend);

impl BatchEntry {
    fn dialect(&self) -> Option<Dialect> {
        match self.answer {
            Pending::Decision { dialect, .. } => Some(dialect),
            Pending::Known { .. } => None,
        }
    }

    fn spend(&self) -> Option<&Spend> {
        match &self.answer {
            Pending::Decision { spend, .. } => Some(spend),
            Pending::Known { .. } => None,
        }
    }
}

/// The outputs of all `futures`, in their order. Each is polled whenever one is woken: they are few, and
/// a batch answers them at the same time.
async fn all<T>(futures: impl Iterator<Item = impl Future<Output = T> + Send>) -> Vec<T> {
    let mut running: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        let mut pending = false;
        for (future, output) in running.iter_mut().filter(|(_, output)| output.is_none()) {
            match Pin::new(future).poll(cx) {
                Poll::Ready(value) => *output = Some(value),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}
