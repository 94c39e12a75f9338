//! A stub's behaviour towards a request, as a function of its arrival: no socket, no clock.
//!
//! A pool of c workers is a heap of c times at which each is free next: a request starts at the
//! earliest of them or at its arrival, whichever is later. That *is* a FIFO queue with c servers,
//! exact to the nanosecond and without a thread to wake.
//!
//! Standstills do not pass through here: the event loop itself stops (see `server`), as a real
//! process does.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use super::options::{Beyond, FaultKind, MAX_LEAK, StubOptions};
use crate::epoch::nanos;

const SECOND: u64 = 1_000_000_000;
/// Admission by rate: the burst, in seconds of the rate.
const BURST_SECONDS: f64 = 0.1;

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyFate {
    /// When its reply goes out, in nanoseconds since the epoch.
    pub(super) at: u64,
    pub(super) status: u16,
    pub(super) fault: Option<FaultKind>,
    /// Turned away: no delay, no upstream, no work.
    pub(super) refused: bool,
}

/// State that all threads share.
pub(super) struct Behaviour {
    options: StubOptions,
    plain: bool,
    /// Arrival of the first request, `u64::MAX` before it.
    first: AtomicU64,
    in_flight: AtomicU64,
    shared: Mutex<BehaviourState>,
}

struct BehaviourState {
    requests: u64,
    free_at: BinaryHeap<Reverse<u64>>,
    tokens: f64,
    refilled: u64,
    leaked: VecDeque<Box<[u8]>>,
    leaked_bytes: usize,
}

impl Behaviour {
    pub(super) fn new(options: StubOptions) -> Self {
        let tokens = match options.admission {
            Some(admission) => match admission.beyond {
                Beyond::Rate(rate) => rate * BURST_SECONDS,
                _ => 0.0,
            },
            None => 0.0,
        };
        let shared = BehaviourState {
            requests: 0,
            free_at: (0..options.workers).map(|_| Reverse(0)).collect(),
            tokens,
            refilled: 0,
            leaked: VecDeque::new(),
            leaked_bytes: 0,
        };
        Self {
            plain: options.is_plain(),
            options,
            first: AtomicU64::new(u64::MAX),
            in_flight: AtomicU64::new(0),
            shared: Mutex::new(shared),
        }
    }

    /// A request arrived at `now`.
    pub(super) fn arrive(&self, now: u64) -> ReplyFate {
        let mut fate = ReplyFate { at: now, status: 200, fault: None, refused: false };
        if self.plain {
            return fate;
        }
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let first = self.first.fetch_min(now, Ordering::Relaxed).min(now);
        let mut shared = self.shared.lock();
        shared.requests += 1;
        if let Some(admission) = self.options.admission {
            let admitted = match admission.beyond {
                Beyond::Requests(count) => shared.requests <= count,
                Beyond::Rate(rate) => shared.take_token(now, rate),
                Beyond::InFlight(count) => in_flight < count,
            };
            if !admitted {
                return ReplyFate { status: admission.status, refused: true, ..fate };
            }
        }
        if let Some(fault) =
            self.options.fault.filter(|fault| shared.requests.is_multiple_of(fault.every.max(1)))
        {
            fate.fault = Some(fault.kind);
            if let FaultKind::Status(status) = fault.kind {
                fate.status = status;
            }
        }
        shared.leak(self.options.leak_bytes as usize);
        let drift =
            u128::from(nanos(self.options.drift_per_second)) * u128::from(now - first) / u128::from(SECOND);
        let service = nanos(self.options.delay).saturating_add(u64::try_from(drift).unwrap_or(u64::MAX));
        let start = match shared.free_at.pop() {
            Some(Reverse(free)) => {
                let start = free.max(now);
                shared.free_at.push(Reverse(start.saturating_add(service)));
                start
            }
            None => now,
        };
        fate.at = start.saturating_add(service);
        fate
    }

    /// A request that arrived has left, answered or not.
    pub(super) fn leave(&self) {
        if !self.plain {
            // Each arrival leaves once, so that this cannot go below zero.
            self.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// If `now` lies in a standstill, its end.
    pub(super) fn standstill(&self, now: u64) -> Option<u64> {
        let first = self.first.load(Ordering::Relaxed);
        let since = now.checked_sub(first)?;
        if let Some(freeze) = self.options.freeze {
            let (from, length) = (nanos(freeze.after), nanos(freeze.length));
            if since >= from && since - from < length {
                return Some(first + from + length);
            }
        }
        if let Some(stall) = self.options.stall {
            let (every, length) = (nanos(stall.every).max(1), nanos(stall.length));
            let round = since / every;
            if round > 0 && since % every < length {
                return Some(first + round * every + length);
            }
        }
        None
    }

    /// When the next standstill begins, so that no wait sleeps into it.
    pub(super) fn next_standstill(&self, now: u64) -> Option<u64> {
        let first = self.first.load(Ordering::Relaxed);
        let since = now.checked_sub(first)?;
        let freeze = self.options.freeze.map(|freeze| nanos(freeze.after)).filter(|from| *from > since);
        let stall = self.options.stall.map(|stall| {
            let every = nanos(stall.every).max(1);
            (since / every + 1) * every
        });
        freeze.into_iter().chain(stall).min().map(|offset| first + offset)
    }
}

impl BehaviourState {
    fn take_token(&mut self, now: u64, rate: f64) -> bool {
        let passed = now.saturating_sub(self.refilled) as f64 / SECOND as f64;
        self.refilled = self.refilled.max(now);
        self.tokens = (self.tokens + passed * rate).min((rate * BURST_SECONDS).max(1.0));
        let admitted = self.tokens >= 1.0;
        if admitted {
            self.tokens -= 1.0;
        }
        admitted
    }

    fn leak(&mut self, bytes: usize) {
        if bytes > 0 && self.leaked_bytes + bytes <= MAX_LEAK {
            self.leaked_bytes += bytes;
            // Written, so that it is resident and not merely reserved.
            self.leaked.push_back(vec![1; bytes].into_boxed_slice());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub::options::{Admission, Freeze, Stall};
    use proptest::prelude::*;
    use std::time::Duration;

    fn behaviour(change: impl FnOnce(&mut StubOptions)) -> Behaviour {
        let mut options = StubOptions::new(([127, 0, 0, 1], 0).into());
        change(&mut options);
        Behaviour::new(options)
    }

    #[test]
    fn a_pool_serves_in_order_and_no_more_at_a_time_than_it_has_workers() {
        let pool = behaviour(|options| {
            options.workers = 2;
            options.delay = Duration::from_nanos(10);
        });
        let ends: Vec<u64> = [0, 1, 2, 3, 40].map(|now| pool.arrive(now).at).to_vec();
        assert_eq!(ends, [10, 11, 20, 21, 50]);
    }

    #[test]
    fn admission_turns_away_beyond_its_bound() {
        let refused = |beyond, arrivals: &[u64]| -> Vec<bool> {
            let gate = behaviour(|options| options.admission = Some(Admission { status: 503, beyond }));
            arrivals.iter().map(|&now| gate.arrive(now).refused).collect()
        };
        assert_eq!(refused(Beyond::Requests(2), &[1, 2, 3]), [false, false, true]);
        assert_eq!(refused(Beyond::InFlight(2), &[1, 2, 3]), [false, false, true]);
        // 20 per second: a burst of two, then one each 50 ms.
        assert_eq!(
            refused(Beyond::Rate(20.0), &[0, 0, 0, SECOND / 20, SECOND / 20]),
            [false, false, true, false, true]
        );
    }

    #[test]
    fn standstills_count_from_the_first_request() {
        let stub = behaviour(|options| {
            options.freeze =
                Some(Freeze { after: Duration::from_nanos(100), length: Duration::from_nanos(50) });
            options.stall =
                Some(Stall { every: Duration::from_nanos(1_000), length: Duration::from_nanos(10) });
        });
        assert_eq!(stub.standstill(500), None, "nothing has arrived");
        stub.arrive(1_000);
        assert_eq!(stub.next_standstill(1_000), Some(1_100));
        assert_eq!(
            [1_099, 1_100, 1_149, 1_150].map(|now| stub.standstill(now)),
            [None, Some(1_150), Some(1_150), None]
        );
        assert_eq!([2_000, 2_009, 2_010].map(|now| stub.standstill(now)), [Some(2_010), Some(2_010), None]);
        assert_eq!(stub.next_standstill(2_500), Some(3_000));
    }

    proptest! {
        #[test]
        fn a_pool_is_a_fifo_queue_with_c_servers(workers in 1u32..5, gaps in prop::collection::vec(0u64..30, 1..60)) {
            let pool = behaviour(|options| {
                options.workers = workers;
                options.delay = Duration::from_nanos(20);
            });
            let mut now = 0;
            let ends: Vec<(u64, u64)> = gaps.iter().map(|gap| { now += gap; (now, pool.arrive(now).at) }).collect();
            for (index, &(arrived, end)) in ends.iter().enumerate() {
                prop_assert!(end >= arrived + 20);
                let busy = ends.iter().filter(|(_, other)| *other > end - 20 && *other <= end).count();
                prop_assert!(busy <= workers as usize, "{} at work at a time", busy);
                if index > 0 {
                    prop_assert!(end >= ends[index - 1].1, "first come, first served");
                }
            }
        }
    }
}
