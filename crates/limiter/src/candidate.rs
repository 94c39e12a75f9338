//! What was found of a candidate's policies: counts, examples, and the counters that they are judged by.
//!
//! The counters are the candidate's own, in the memory of this node: they begin empty, and go with it. So nothing that is in
//! force is charged for a candidate, and a shared store never hears of it.
//!
//! Bounds: `MAX_BYTES` of counters; `MAX_EXAMPLES` of each difference, one for each policy and protocol.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidegate_algorithms::time::Wall;
use tidegate_store::memory::Memory;

/// Most bytes that the counters of a candidate take; beyond them the oldest keys begin anew.
const MAX_BYTES: usize = 16 << 20;

/// Most examples that are kept of each difference.
const MAX_EXAMPLES: usize = 10;

/// Most characters that are kept of the name of a client.
const MAX_CLIENT: usize = 128;

/// What a candidate would answer otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitDifference {
    /// Nothing.
    Same,
    /// It would deny a request that is allowed.
    WouldLimit,
    /// It would allow a request that is denied.
    WouldAllow,
}

impl LimitDifference {
    const ALL: [Self; 3] = [Self::Same, Self::WouldLimit, Self::WouldAllow];

    fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::WouldLimit => "would_limit",
            Self::WouldAllow => "would_allow",
        }
    }
}

/// Decisions by difference.
pub type LimitDifferenceCounts = [(&'static str, u64); 3];

/// Decisions that a candidate would make otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LimitExample {
    /// In which way.
    pub(crate) difference: &'static str,
    /// The policy that would deny, or that denies. `None`: no policy applies.
    pub(crate) policy: Option<Arc<str>>,
    /// By which protocol the request came.
    pub(crate) protocol: &'static str,
    /// Of the first such request: its client. `None`: it states none, or by a credential.
    pub(crate) client_id: Option<String>,
    /// What the policy looks at in it, its client left out, as the query of a URL. `None`: it has a credential, is too long or
    /// is no text.
    pub(crate) attributes: Option<String>,
    /// Requests like it: of the same difference, policy and protocol.
    pub(crate) requests: u64,
}

/// What was found so far of a candidate's policies.
#[derive(Clone, Debug)]
pub struct CandidateLimits {
    /// Of which candidate.
    pub revision: u64,
    /// Since when, by civil time.
    since: Wall,
    /// Decisions by difference.
    counts: LimitDifferenceCounts,
    /// Some decisions that would be made otherwise.
    examples: Vec<LimitExample>,
    /// Such decisions that no example counts.
    without_example: u64,
    /// Policies of the candidate whose limits are not judged.
    not_judged: Vec<Arc<str>>,
    /// Bytes that its counters take.
    pub bytes: u64,
}

impl CandidateLimits {
    /// The same for people.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let since = i64::try_from(self.since.0 / 1_000_000_000).unwrap_or(i64::MAX);
        let since = Timestamp::from_second(since).map(|since| since.to_string()).unwrap_or_default();
        let decisions: u64 = self.counts.iter().map(|(_, count)| count).sum();
        let counts: Map<String, Value> =
            self.counts.iter().map(|(word, count)| ((*word).to_owned(), Value::from(*count))).collect();
        json!({"since": since, "decisions": decisions, "by_difference": counts, "examples": self.examples,
            "without_example": self.without_example, "not_judged": self.not_judged, "bytes": self.bytes})
    }
}

/// The counts where no policies are judged.
pub(crate) fn no_limit_counts() -> LimitDifferenceCounts {
    LimitDifference::ALL.map(|difference| (difference.word(), 0))
}

/// A policy in an example, and what it looks at in the request.
pub(crate) struct ExampleOf {
    pub(crate) policy: Option<Arc<str>>,
    pub(crate) attributes: Option<String>,
}

/// The counters of a candidate's policies, and what was found by them.
#[derive(Debug)]
pub(crate) struct JudgedLimits {
    since: Wall,
    memory: Memory,
    counts: [AtomicU64; LimitDifference::ALL.len()],
    examples: Mutex<Vec<LimitExample>>,
    without_example: AtomicU64,
}

impl JudgedLimits {
    pub(crate) fn new(now: Wall) -> Self {
        Self {
            since: now,
            memory: Memory::new(MAX_BYTES),
            counts: Default::default(),
            examples: Mutex::default(),
            without_example: AtomicU64::default(),
        }
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn count(&self, difference: LimitDifference) {
        self.counts[difference as usize].fetch_add(1, Relaxed);
    }

    /// Keeps an example, or counts on one that is kept. No request waits for another one here.
    pub(crate) fn keep(
        &self,
        difference: LimitDifference,
        protocol: &'static str,
        found: ExampleOf,
        client: Option<&[u8]>,
    ) {
        let word = difference.word();
        let Some(mut examples) = self.examples.try_lock() else {
            self.without_example.fetch_add(1, Relaxed);
            return;
        };
        let mut alike = 0;
        for example in examples.iter_mut().filter(|example| example.difference == word) {
            if example.policy == found.policy && example.protocol == protocol {
                example.requests += 1;
                return;
            }
            alike += 1;
        }
        if alike == MAX_EXAMPLES {
            self.without_example.fetch_add(1, Relaxed);
            return;
        }
        // A terminal that shows them would obey control characters.
        let shown = |client: &[u8]| {
            let text: String = String::from_utf8_lossy(client).chars().take(MAX_CLIENT).collect();
            text.replace(char::is_control, "\u{fffd}")
        };
        examples.push(LimitExample {
            difference: word,
            policy: found.policy,
            protocol,
            client_id: client.map(shown),
            attributes: found.attributes,
            requests: 1,
        });
    }

    pub(crate) fn counts(&self) -> LimitDifferenceCounts {
        LimitDifference::ALL
            .map(|difference| (difference.word(), self.counts[difference as usize].load(Relaxed)))
    }

    pub(crate) fn found(&self, revision: u64, not_judged: Vec<Arc<str>>) -> CandidateLimits {
        let examples = self.examples.lock().clone();
        CandidateLimits {
            revision,
            since: self.since,
            counts: self.counts(),
            examples,
            without_example: self.without_example.load(Relaxed),
            not_judged,
            bytes: self.memory.stats().bytes,
        }
    }
}
