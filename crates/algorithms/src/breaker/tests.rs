//! The breaker as its two users have it: the guard of a store (quick, one trial) and an upstream (the
//! defaults), with a list beside each window as the oracle.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const OK: Outcome = Outcome { failed: false, took: MS };
const BAD: Outcome = Outcome { failed: true, took: MS };

/// As the guard of a store has it.
fn quick() -> Settings {
    Settings {
        window: Window::Span(500 * MS),
        minimum_calls: 5,
        minimum_failures: 5,
        pause: 250 * MS,
        trials: 1,
        ..Settings::default()
    }
}

fn call(breaker: &mut Breaker, outcome: Outcome, now: Tick) -> Change {
    let pass = breaker.admit(now).expect("a call may be made");
    breaker.report(pass, outcome, now)
}

fn opened(settings: Settings) -> Breaker {
    let mut breaker = Breaker::new(settings);
    let calls = settings.minimum_calls;
    for number in 1..=calls {
        let change = call(&mut breaker, BAD, Tick(0));
        assert_eq!(change, if number == calls { Change::Opened } else { Change::None });
    }
    assert_eq!(breaker.phase(), Phase::Open);
    breaker
}

#[test]
fn successes_that_are_told_together_fill_the_window_and_change_nothing_else() {
    let settings = Settings { window: Window::Calls(20), ..Settings::default() };
    let mut breaker = Breaker::new(settings);
    let pass = breaker.standing_pass().expect("it is closed");
    assert_eq!((Pass::numbered(pass.number()), breaker.admit(Tick(0))), (pass, Some(pass)));
    breaker.succeeded(pass, 1_000_000);
    assert_eq!((breaker.recent(Tick(0)), breaker.is_untroubled()), ((20, 0, 0), true));
    assert_eq!(breaker.report(pass, BAD, Tick(0)), Change::None);
    assert_eq!((breaker.recent(Tick(0)), breaker.is_untroubled()), ((20, 1, 0), false));
    let mut open = opened(settings);
    assert!(open.standing_pass().is_none() && !open.is_untroubled());
    let before = open.recent(Tick(0));
    open.succeeded(pass, 5);
    assert_eq!(open.recent(Tick(0)), before);
    assert!(!Breaker::new(quick()).is_untroubled(), "the time of a success counts in a window by time");
}

#[test]
fn opens_after_five_failures_and_tries_once_a_pause() {
    let mut breaker = opened(quick());
    assert_eq!(breaker.admit(Tick(249 * MS)), None);
    assert_eq!(breaker.wait(Tick(100 * MS)), 150 * MS);
    assert_eq!(breaker.recent(Tick(10_000 * MS)), (5, 5, 0), "those that opened it");
    let trial = breaker.admit(Tick(251 * MS)).expect("the trial");
    assert_eq!(breaker.admit(Tick(252 * MS)), None, "one trial at a time");
    assert_eq!(breaker.recent(Tick(252 * MS)), (0, 0, 0), "no trial has ended");
    assert_eq!(breaker.report(trial, BAD, Tick(261 * MS)), Change::Reopened);
    assert_eq!(breaker.admit(Tick(500 * MS)), None);
    let trial = breaker.admit(Tick(511 * MS)).expect("the next trial");
    assert_eq!(breaker.report(trial, OK, Tick(512 * MS)), Change::Closed);
    assert!(breaker.admit(Tick(512 * MS)).is_some());
    assert!(!breaker.is_open());
    assert_eq!(breaker.wait(Tick(512 * MS)), 0);
}

#[test]
fn a_trial_that_never_reports_blocks_for_one_pause_only() {
    let mut breaker = opened(quick());
    let lost = breaker.admit(Tick(300 * MS)).expect("the trial");
    assert_eq!(breaker.admit(Tick(549 * MS)), None);
    assert!(breaker.admit(Tick(550 * MS)).is_some());
    assert_eq!(breaker.report(lost, OK, Tick(551 * MS)), Change::None, "it is too late");
}

#[test]
fn a_cancelled_trial_gives_its_place_to_the_next() {
    let mut breaker = opened(quick());
    let trial = breaker.admit(Tick(300 * MS)).expect("the trial");
    breaker.cancel(trial);
    assert!(breaker.admit(Tick(300 * MS)).is_some());
    assert_eq!(breaker.admit(Tick(300 * MS)), None);
}

#[test]
fn a_few_failures_among_many_calls_open_nothing() {
    let mut breaker = Breaker::new(quick());
    for number in 0..10_000_u64 {
        let outcome = if number % 3 == 1 { BAD } else { OK };
        assert_eq!(call(&mut breaker, outcome, Tick(number * MS / 10)), Change::None);
    }
}

#[test]
fn failures_far_apart_open_nothing() {
    let mut breaker = Breaker::new(quick());
    for number in 0..100 {
        assert_eq!(call(&mut breaker, BAD, Tick(number * 200 * MS)), Change::None);
    }
}

#[test]
fn outcomes_of_calls_from_before_it_opened_change_nothing() {
    let mut breaker = Breaker::new(quick());
    let old: Vec<Pass> = (0..20).filter_map(|_| breaker.admit(Tick(0))).collect();
    for pass in &old[..5] {
        breaker.report(*pass, BAD, Tick(MS));
    }
    let trial = breaker.admit(Tick(300 * MS)).expect("the trial");
    for pass in &old[5..] {
        assert_eq!(breaker.report(*pass, BAD, Tick(301 * MS)), Change::None);
    }
    assert_eq!(breaker.report(trial, OK, Tick(302 * MS)), Change::Closed);
    for pass in &old[5..] {
        assert_eq!(
            breaker.report(*pass, BAD, Tick(303 * MS)),
            Change::None,
            "nor those that are later still"
        );
    }
}

#[test]
fn by_number_it_opens_at_half_of_the_last_hundred() {
    let mut breaker = Breaker::new(Settings::default());
    for number in 0..200 {
        assert_eq!(call(&mut breaker, OK, Tick(number)), Change::None);
    }
    for number in 1..=49 {
        assert_eq!(call(&mut breaker, BAD, Tick(200 + number)), Change::None);
    }
    assert_eq!(breaker.recent(Tick(250)), (100, 49, 0));
    assert_eq!(call(&mut breaker, BAD, Tick(250)), Change::Opened);
}

#[test]
fn fewer_calls_than_the_minimum_are_not_judged() {
    let mut breaker = Breaker::new(Settings::default());
    for number in 1..20 {
        assert_eq!(call(&mut breaker, BAD, Tick(number)), Change::None);
    }
    assert_eq!(call(&mut breaker, BAD, Tick(20)), Change::Opened);
}

#[test]
fn slow_calls_open_it_as_failures_do() {
    let mut breaker = Breaker::new(Settings::default());
    let slow = Outcome::success(3 * SECOND + 1);
    for number in 1..20 {
        assert_eq!(call(&mut breaker, slow, Tick(number)), Change::None);
    }
    assert_eq!(call(&mut breaker, slow, Tick(20)), Change::Opened);

    let mut patient = Breaker::new(Settings { slow_percent: 101, ..Settings::default() });
    for number in 0..1_000 {
        assert_eq!(call(&mut patient, slow, Tick(number)), Change::None);
    }
}

#[test]
fn trials_are_judged_together_and_given_up_early() {
    let at = Tick(61 * SECOND);
    let mut breaker = opened(Settings::default());
    let trials: Vec<Pass> = (0..20).filter_map(|_| breaker.admit(at)).collect();
    assert_eq!(trials.len(), 10);
    for (number, pass) in trials.iter().enumerate() {
        let outcome = if number < 4 { BAD } else { OK };
        let change = breaker.report(*pass, outcome, at);
        assert_eq!(change, if number == 9 { Change::Closed } else { Change::None });
    }
    let mut breaker = opened(Settings::default());
    let trials: Vec<Pass> = (0..5).filter_map(|_| breaker.admit(at)).collect();
    let changes: Vec<Change> = trials.iter().map(|pass| breaker.report(*pass, BAD, at)).collect();
    assert_eq!(changes[4], Change::Reopened, "five of ten are enough, whatever the others say");
}

#[test]
fn a_trial_that_takes_its_time_keeps_nobody_out() {
    let at = Tick(61 * SECOND);
    let mut breaker = opened(Settings::default());
    let trials: Vec<Pass> = (0..10).filter_map(|_| breaker.admit(at)).collect();
    let (quick, long) = trials.split_at(6);
    let changes: Vec<Change> = quick.iter().map(|pass| breaker.report(*pass, OK, at)).collect();
    assert_eq!(changes[4], Change::None, "five failures could still follow");
    assert_eq!(changes[5], Change::Closed, "four cannot open it");
    for pass in long {
        assert_eq!(breaker.report(*pass, BAD, at), Change::None);
    }
    let strict = Settings { failure_percent: 10, ..Settings::default() };
    let mut breaker = opened(strict);
    let trials: Vec<Pass> = (0..10).filter_map(|_| breaker.admit(at)).collect();
    let changes: Vec<Change> = trials.iter().map(|pass| breaker.report(*pass, OK, at)).collect();
    assert_eq!((changes[8], changes[9]), (Change::None, Change::Closed), "each of the ten counts");
}

#[test]
fn a_passed_health_check_ends_the_pause() {
    let mut breaker = opened(Settings::default());
    assert_eq!(breaker.admit(Tick(MS)), None);
    breaker.end_pause(Tick(MS));
    assert_eq!(breaker.phase(), Phase::HalfOpen);
    assert!(breaker.admit(Tick(MS)).is_some());
    let mut closed = Breaker::new(Settings::default());
    closed.end_pause(Tick(SECOND));
    assert_eq!(closed.phase(), Phase::Closed);
}

/// Lets the trials of a round fail at the moment when they may be made, and returns that moment.
fn round(breaker: &mut Breaker, from: Tick, outcome: Outcome) -> Tick {
    let at = from.plus(breaker.wait(from));
    while breaker.is_open() && breaker.wait(at) == 0 {
        call(breaker, outcome, at);
    }
    at
}

#[test]
fn the_pause_begins_short_and_doubles_with_each_round_that_fails() {
    let mut breaker = opened(Settings::default());
    let (mut now, mut pauses) = (Tick(0), Vec::new());
    for _ in 0..8 {
        pauses.push(breaker.wait(now) / SECOND);
        now = round(&mut breaker, now, BAD);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    now = round(&mut breaker, now, OK);
    assert_eq!(breaker.phase(), Phase::Closed);
    // Closed for less than the last pause, it has not recovered.
    let fail = |breaker: &mut Breaker, now: Tick| {
        while !breaker.is_open() {
            call(breaker, BAD, now);
        }
        breaker.wait(now) / SECOND
    };
    now = now.plus(59 * SECOND);
    assert_eq!(fail(&mut breaker, now), 60);
    now = round(&mut breaker, now, OK).plus(60 * SECOND);
    assert_eq!(fail(&mut breaker, now), 1, "it was closed for as long");
}

#[test]
fn trials_that_take_longer_than_the_first_pause_are_judged_all_the_same() {
    for (outcome, expected) in [(BAD, Change::Reopened), (OK, Change::Closed)] {
        let mut breaker = opened(Settings::default());
        let at = Tick(SECOND);
        let trials: Vec<Pass> = (0..10).filter_map(|_| breaker.admit(at)).collect();
        assert_eq!(trials.len(), 10);
        // The servers take thirty seconds; others ask again meanwhile.
        for second in 2..31 {
            assert_eq!(breaker.admit(Tick(second * SECOND)), None, "no trials beside those under way");
        }
        let ended = Tick(31 * SECOND);
        let changes: Vec<Change> = trials.iter().map(|pass| breaker.report(*pass, outcome, ended)).collect();
        assert!(changes.contains(&expected), "{changes:?}");
        if outcome == BAD {
            assert_eq!(breaker.wait(ended), 2 * SECOND, "the pause grows");
        }
    }
}

#[test]
fn no_pause_is_longer_than_the_longest() {
    let fixed = Settings { first_pause: 5 * SECOND, pause: 5 * SECOND, ..Settings::default() };
    for settings in [fixed, Settings { first_pause: SECOND, pause: SECOND / 2, ..fixed }] {
        let mut breaker = opened(settings);
        assert_eq!(breaker.wait(Tick(0)), settings.pause);
        let now = round(&mut breaker, Tick(0), BAD);
        assert_eq!(breaker.wait(now), settings.pause);
    }
}

proptest! {
    /// A window by time holds every call of the last nine tenths of its span and none older than it.
    #[test]
    fn a_window_by_time_forgets_in_time(gaps in proptest::collection::vec(0u64..200, 1..300)) {
        let mut recent = Recent::new(Window::Span(1_000), 1);
        let (mut now, mut ends) = (5_000, Vec::new());
        for gap in gaps {
            now += gap;
            ends.push(now);
            let counted = recent.add(CallCounts::of(true, false), Tick(now)).calls as usize;
            let within = |age: u64| ends.iter().filter(|end| now - **end < age).count();
            prop_assert!(within(900) <= counted && counted <= within(1_000));
        }
    }

    /// A ring agrees with a list of the last n calls.
    #[test]
    fn a_window_by_number_agrees_with_a_list(
        size in 1u32..20, calls in proptest::collection::vec((any::<bool>(), any::<bool>()), 0..100)
    ) {
        let mut recent = Recent::new(Window::Calls(size), 1);
        for end in 1..=calls.len() {
            let (failed, slow) = calls[end - 1];
            let counts = recent.add(CallCounts::of(failed, slow), Tick(0));
            let last = &calls[end.saturating_sub(size as usize)..end];
            prop_assert_eq!(counts.calls as usize, last.len());
            prop_assert_eq!(counts.failed as usize, last.iter().filter(|call| call.0).count());
            prop_assert_eq!(counts.slow as usize, last.iter().filter(|call| call.1).count());
        }
    }

    /// Whatever happens, calls are admitted again at the latest one pause after the last outcome.
    #[test]
    fn it_never_locks_up(steps in proptest::collection::vec((0u8..4, 0u64..400), 1..200)) {
        let mut breaker = Breaker::new(quick());
        let (mut now, mut passes) = (Tick(0), Vec::new());
        for (step, gap) in steps {
            now = now.plus(gap * MS);
            match step {
                0 => passes.extend(breaker.admit(now)),
                1 => drop(passes.pop()),
                _ => if let Some(pass) = passes.pop() {
                    breaker.report(pass, if step == 2 { BAD } else { OK }, now);
                },
            }
        }
        prop_assert!(breaker.wait(now) <= 250 * MS);
        prop_assert!(breaker.admit(now.plus(breaker.wait(now))).is_some());
    }
}
