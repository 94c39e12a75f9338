//! Concurrency against a list of permits: acquire, renew, release, lapse.

use proptest::prelude::*;
use tidegate_algorithms::limit::concurrency::{Permit, Permits};
use tidegate_algorithms::limit::{Limit, PermitId, Slots, State, Wait};
use tidegate_algorithms::time::{Now, Tick};

#[derive(Clone, Debug)]
enum Step {
    Acquire(u64),
    Renew(usize),
    Release(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..=4_u64).prop_map(Step::Acquire),
        1 => (0..8_usize).prop_map(Step::Renew),
        2 => (0..8_usize).prop_map(Step::Release),
        3 => (0..60_u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn units_held_never_pass_the_limit(limit in 0..=8_u64, lease in 1..=100_u64, steps in steps()) {
        let slots = Slots { limit, lease };
        let limit = Limit::Concurrency(slots);
        let mut state = State::Fresh;
        let mut held: Vec<Permit> = Vec::new();
        let mut at = 1_000_u64;
        for (number, step) in steps.into_iter().enumerate() {
            let now = Now::at(at);
            let id = |index: usize| held.get(index).map_or(PermitId(u64::MAX), |permit| permit.id);
            match step {
                Step::Pass(nanos) => at += nanos,
                Step::Acquire(units) => {
                    let used: u64 = held.iter().map(|permit| permit.units).sum();
                    let verdict = limit.check(&mut state, now, units);
                    prop_assert_eq!(verdict.allowed, used + units <= slots.limit);
                    let spent = if verdict.allowed { units } else { 0 };
                    prop_assert_eq!(verdict.remaining, slots.limit - used - spent);
                    if verdict.allowed {
                        let id = PermitId(number as u64);
                        limit.charge(&mut state, now, units, id);
                        held.push(Permit { id, units, lapses: Tick(at + lease) });
                    }
                    if let Wait::For(wait) = verdict.wait {
                        let held_at = |at: u64| -> u64 {
                            held.iter().filter(|p| p.lapses > Tick(at)).map(|p| p.units).sum()
                        };
                        prop_assert!(held_at(at + wait) + units <= slots.limit);
                        prop_assert!(held_at(at + wait - 1) + units > slots.limit);
                    }
                }
                Step::Renew(index) => {
                    let id = id(index);
                    prop_assert_eq!(slots.renew(&mut state, now, id), index < held.len());
                    held.iter_mut().filter(|p| p.id == id).for_each(|p| p.lapses = Tick(at + lease));
                }
                Step::Release(index) => {
                    let id = id(index);
                    prop_assert_eq!(slots.release(&mut state, now, id), index < held.len());
                    held.retain(|permit| permit.id != id);
                }
            }
            held.retain(|permit| permit.lapses > Tick(at));
            let mut expected: Vec<Permit> = held.clone();
            expected.sort_by_key(|permit| (permit.lapses, permit.id.0));
            let mut kept: Vec<Permit> = match &state {
                State::Concurrency(permits) => permits.held().filter(|p| p.lapses > Tick(at)).copied().collect(),
                _ => Vec::new(),
            };
            prop_assert!(kept.is_sorted_by_key(|permit| permit.lapses));
            kept.sort_by_key(|permit| (permit.lapses, permit.id.0));
            prop_assert_eq!(&kept, &expected);
            let restored = Permits::restore(kept.iter().copied());
            prop_assert!(restored.held().eq(kept.iter()));
        }
    }
}

#[test]
fn fault_44_a_crashed_holders_permit_comes_back_when_its_lease_ends() {
    let slots = Slots { limit: 1, lease: 500 };
    let limit = Limit::Concurrency(slots);
    let mut state = State::Fresh;
    assert!(limit.check(&mut state, Now::at(1_000), 1).allowed);
    limit.charge(&mut state, Now::at(1_000), 1, PermitId(7));
    assert_eq!(limit.check(&mut state, Now::at(1_499), 1).wait, Wait::For(1));
    assert!(limit.check(&mut state, Now::at(1_500), 1).allowed);
    assert!(
        !slots.release(&mut state, Now::at(1_500), PermitId(7)),
        "it lapsed, and is not given back twice"
    );
}

#[test]
fn restored_permits_are_put_in_order() {
    let permit = |id, lapses| Permit { id: PermitId(id), units: 1, lapses: Tick(lapses) };
    let restored = Permits::restore([permit(1, 30), permit(2, 10), permit(3, 20)]);
    assert!(restored.held().is_sorted_by_key(|permit| permit.lapses));
}
