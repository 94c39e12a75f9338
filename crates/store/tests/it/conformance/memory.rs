//! The memory store under the conformance suite.

use proptest::prelude::*;
use tidegate_algorithms::time::Now;
use tidegate_store::memory::{HashKey, Memory};
use tidegate_store::{Answer, Counters, Intent};

use crate::conformance::block_on;
use crate::conformance::differential::{self, Model, Step};
use crate::conformance::suite::{self, charge};

fn store(max_bytes: usize) -> Counters {
    Counters::Memory(Memory::with_key(max_bytes, HashKey([7; 16])))
}

macro_rules! cases {
    ($($case:ident)+) => {$(
        #[test]
        fn $case() {
            block_on(suite::$case(&store(1 << 20)));
        }
    )+};
}

every_case!(cases);

proptest! {
    /// Callers' clocks may be behind each other. Few keys in many shards, each in its own: nothing is swept,
    /// and a shard's time is its key's.
    #[test]
    fn agrees_with_the_pure_functions(steps in differential::steps(6, true)) {
        block_on(compare(store(1 << 30), steps));
    }

    /// Time only advances. More keys in few shards: expired entries are swept all along, and that
    /// may not show.
    #[test]
    fn agrees_while_sweeping(steps in differential::steps(40, false)) {
        block_on(compare(store(1 << 20), steps));
    }

    /// Requests that are decided together get the verdicts of the same one after another.
    #[test]
    fn together_is_as_one_by_one(runs in prop::collection::vec(prop::collection::vec((0..20_u8, 0..4_u64), 1..40), 1..8)) {
        let [together, one_by_one] = [(); 2].map(|()| Memory::with_key(1 << 20, HashKey([7; 16])));
        let limit = suite::token_bucket(5, 1);
        let intent = Intent::Spend(Default::default());
        for (number, run) in (0..).zip(&runs) {
            let now = Now::at(suite::START + number * 300_000_000);
            let charges: Vec<_> =
                run.iter().map(|(key, cost)| charge(&limit, std::slice::from_ref(key), *cost)).collect();
            let (mut verdicts, mut answer) = (Vec::new(), Answer::default());
            together.decide_each(now, &charges, intent, &mut verdicts);
            prop_assert_eq!(verdicts.len(), charges.len());
            for (charge, verdict) in charges.iter().zip(&verdicts) {
                one_by_one.decide(now, &[*charge], intent, &mut answer);
                prop_assert_eq!(&answer.verdicts[0], verdict);
            }
        }
        prop_assert_eq!(together.stats(), one_by_one.stats());
    }

    /// A restart in between, into another number of shards, does not show: every kind of state is
    /// in the snapshot, and says the same afterwards.
    #[test]
    fn agrees_after_a_restart(before in differential::steps(40, false), after in differential::steps(40, false)) {
        block_on(async {
            let (stopped, mut model) = (store(1 << 20), Model::default());
            for step in before {
                differential::compare(&stopped, &mut model, &step).await;
            }
            let restarted = restart(&stopped, model.now());
            for step in after {
                differential::compare(&restarted, &mut model, &step).await;
            }
        });
    }
}

fn restart(store: &Counters, now: Now) -> Counters {
    let Counters::Memory(memory) = store else { panic!("the memory store") };
    let mut bytes = Vec::new();
    memory.snapshot(&mut bytes, now).expect("a vector takes everything");
    let restored = Memory::restore(3 << 20, &mut bytes.as_slice(), now).expect("just written");
    Counters::Memory(restored.memory)
}

async fn compare(store: Counters, steps: Vec<Step>) {
    let mut model = Model::default();
    for step in steps {
        differential::compare(&store, &mut model, &step).await;
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
