//! The memory store under the conformance suite.

use proptest::prelude::*;
use tidegate_algorithms::time::Now;
use tidegate_store::memory::{HashKey, Memory};
use tidegate_store::{Answer, Counters, Intent};

use crate::differential::{self, Model, Step};
use crate::suite::{self, charge};
use crate::{Subject, block_on};

struct InMemory(Counters);

impl InMemory {
    fn new(max_bytes: usize) -> Self {
        Self(Counters::Memory(Memory::with_key(max_bytes, HashKey([7; 16]))))
    }
}

impl Subject for InMemory {
    fn counters(&self) -> &Counters {
        &self.0
    }

    async fn at(&self, now: Now) -> Now {
        now
    }
}

macro_rules! cases {
    ($($case:ident),+ $(,)?) => {$(
        #[test]
        fn $case() {
            block_on(suite::$case(&InMemory::new(1 << 20)));
        }
    )+};
}

cases! {
    admits_the_quota_and_again_after_the_promised_wait,
    fault_16_all_or_nothing,
    a_denial_shows_what_remains_without_it,
    shadow_is_charged_and_never_denies,
    a_peek_spends_nothing,
    a_cost_above_the_quota_is_never_admissible,
    a_quota_of_zero_denies_everything,
    a_refund_restores,
    permits_are_held_renewed_released_and_lapse,
    charges_of_one_key_are_one_spend,
    a_request_without_limits_is_allowed,
    a_changed_limit_keeps_what_was_used,
    fault_08_a_clock_that_jumps_back_neither_locks_out_nor_refills,
    fault_13_keys_are_opaque_bytes,
}

proptest! {
    /// Time may jump back. Few keys in many shards: nothing is swept, so not even a state that
    /// expired before the jump may differ.
    #[test]
    fn agrees_with_the_pure_functions(steps in differential::steps(6, true)) {
        block_on(compare(InMemory::new(1 << 30), steps));
    }

    /// Time only advances. More keys in few shards: expired entries are swept all along, and that
    /// may not show.
    #[test]
    fn agrees_while_sweeping(steps in differential::steps(40, false)) {
        block_on(compare(InMemory::new(1 << 20), steps));
    }

    /// A restart in between, into another number of shards, does not show: every kind of state is
    /// in the snapshot, and says the same afterwards.
    #[test]
    fn agrees_after_a_restart(before in differential::steps(40, false), after in differential::steps(40, false)) {
        block_on(async {
            let (subject, mut model) = (InMemory::new(1 << 20), Model::default());
            for step in before {
                differential::compare(&subject, &mut model, &step).await;
            }
            let restarted = restart(&subject, model.now());
            for step in after {
                differential::compare(&restarted, &mut model, &step).await;
            }
        });
    }
}

fn restart(subject: &InMemory, now: Now) -> InMemory {
    let Counters::Memory(memory) = &subject.0 else { panic!("the memory store") };
    let mut bytes = Vec::new();
    memory.snapshot(&mut bytes, now).expect("a vector takes everything");
    let restored = Memory::restore(3 << 20, &mut bytes.as_slice(), now).expect("just written");
    InMemory(Counters::Memory(restored))
}

async fn compare(subject: InMemory, steps: Vec<Step>) {
    let mut model = Model::default();
    for step in steps {
        differential::compare(&subject, &mut model, &step).await;
    }
}

/// The sweep of the property test above is real.
#[test]
fn sweeping_drops_what_has_expired() {
    let memory = Memory::with_key(1 << 20, HashKey([7; 16]));
    let limit = suite::token_bucket(10, 1);
    let mut answer = Answer::default();
    for number in 0..20_000_u64 {
        let key = number.to_be_bytes();
        let now = Now::at(suite::START + number * 1_000_000);
        memory.decide(now, &[charge(&limit, &key, 1)], Intent::Spend(Default::default()), &mut answer);
        assert!(answer.allowed);
    }
    let stats = memory.stats();
    assert_eq!(stats.evicted_live, 0);
    assert_eq!(stats.entries + stats.expired, 20_000);
    // A unit comes back in 100 ms, in which 100 keys arrive; the rest has expired.
    assert!(stats.entries < 1_500, "{} entries stay", stats.entries);
}
