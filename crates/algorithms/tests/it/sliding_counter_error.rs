//! How far the sliding counter is from exact, measured over several kinds of traffic.
//!
//! Beside the counter runs the exact log, on the same requests; and from the list of all that the
//! counter admitted it is counted whether the last window really had room. The table is published in `docs/algorithms.md`; the test fails, and prints the new one, when they differ.
//! Everything is seeded, so the figures are the same on every machine.

use std::collections::VecDeque;

use tidegate_algorithms::limit::{Limit, PermitId, SlidingCounter, SlidingLog, State};
use tidegate_algorithms::random::Random;
use tidegate_algorithms::time::{Now, SECOND};

const LIMIT: u64 = 100;
const WINDOW: u64 = 60 * SECOND;
const START: u64 = 1_700_006_400 * SECOND;
const WINDOWS: u64 = 500;

/// What one kind of traffic showed.
#[derive(Debug, Default)]
struct Measured {
    requests: u64,
    /// Allowed although the last window had no room.
    wrongly_allowed: u64,
    /// Admitted by the counter, and by the log.
    admitted: u64,
    admitted_by_log: u64,
    /// The most units that passed in any window.
    most: u64,
}

/// Bounds in parts per thousand: of the requests, of what the log admits, and of the limit.
struct Stated {
    wrongly_allowed: u64,
    admitted: std::ops::RangeInclusive<u64>,
    most: u64,
}

/// Decides one request of one unit.
fn admits(limit: &Limit, state: &mut State, at: u64) -> bool {
    let allowed = limit.check(state, Now::at(at), 1).allowed;
    if allowed {
        limit.charge(state, Now::at(at), 1, PermitId(0));
    }
    allowed
}

fn measure(arrivals: impl Iterator<Item = u64>) -> Measured {
    let counter = Limit::SlidingCounter(SlidingCounter { limit: LIMIT, seconds: 60 });
    let log = Limit::SlidingLog(SlidingLog { limit: LIMIT, window: WINDOW });
    let (mut counted, mut logged) = (State::Fresh, State::Fresh);
    let mut measured = Measured::default();
    let mut passed: VecDeque<u64> = VecDeque::new();
    for at in arrivals.take_while(|at| *at < START + WINDOWS * WINDOW) {
        while passed.front().is_some_and(|first| at - first >= WINDOW) {
            passed.pop_front();
        }
        let room = (passed.len() as u64) < LIMIT;
        let allowed = admits(&counter, &mut counted, at);
        if allowed {
            passed.push_back(at);
        }
        measured.requests += 1;
        measured.wrongly_allowed += u64::from(allowed && !room);
        measured.admitted += u64::from(allowed);
        measured.admitted_by_log += u64::from(admits(&log, &mut logged, at));
        measured.most = measured.most.max(passed.len() as u64);
    }
    measured
}

/// Uniform in (0, 1], so that its logarithm is finite.
fn above_zero(random: &mut Random) -> f64 {
    ((random.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// Requests at a steady rate, `load` times the limit.
fn uniform(load: f64) -> impl Iterator<Item = u64> {
    let gap = (WINDOW as f64 / (LIMIT as f64 * load)) as u64;
    (0..).map(move |n| START + n * gap)
}

/// Requests that know nothing of each other, `load` times the limit on average.
fn poisson(load: f64) -> impl Iterator<Item = u64> {
    let mut random = Random::seeded(1);
    let mean = WINDOW as f64 / (LIMIT as f64 * load);
    let mut at = START;
    std::iter::repeat_with(move || {
        at += (-above_zero(&mut random).ln() * mean) as u64;
        at
    })
}

/// `size` requests within a second, then silence for 0 to 2 windows.
fn bursts(size: u64) -> impl Iterator<Item = u64> {
    let mut random = Random::seeded(2);
    let mut at = START;
    std::iter::repeat_with(move || {
        at += random.bits() % (2 * WINDOW);
        at
    })
    .flat_map(move |at| (0..size).map(move |n| at + n * (SECOND / size)))
    .scan(0, |last, at| {
        *last = at.max(*last);
        Some(*last)
    })
}

/// Spends a quota at the very end of every other window, then whatever is given.
fn late_then_greedy() -> impl Iterator<Item = u64> {
    (0..).flat_map(|pair| {
        let boundary = START + (2 * pair + 1) * WINDOW;
        let late = (0..LIMIT).map(move |_| boundary - 1);
        let greedy = (0..4 * LIMIT).map(move |n| boundary + n * (WINDOW / (4 * LIMIT)));
        late.chain(greedy)
    })
}

/// Spends a quota at the very start of every third window, and again just as it has left.
fn early_then_again() -> impl Iterator<Item = u64> {
    (0..).flat_map(|turn| {
        let start = START + 3 * turn * WINDOW;
        (0..2 * LIMIT).map(move |n| start + n / LIMIT * WINDOW)
    })
}

fn rows() -> Vec<(&'static str, Measured, Stated)> {
    let stated = |wrongly_allowed, admitted, most| Stated { wrongly_allowed, admitted, most };
    vec![
        ("uniform, 0.9 x limit", measure(uniform(0.9)), stated(0, 1_000..=1_000, 1_000)),
        ("uniform, 2 x limit", measure(uniform(2.0)), stated(10, 980..=1_020, 1_010)),
        ("Poisson, 0.9 x limit", measure(poisson(0.9)), stated(80, 970..=1_030, 1_200)),
        ("Poisson, 1.5 x limit", measure(poisson(1.5)), stated(120, 980..=1_020, 1_200)),
        ("bursts of half the limit", measure(bursts(LIMIT / 2)), stated(50, 950..=1_050, 1_500)),
        ("bursts of twice the limit", measure(bursts(2 * LIMIT)), stated(50, 900..=1_100, 1_950)),
        ("late burst, then greedy", measure(late_then_greedy()), stated(250, 1_000..=2_000, 2_000)),
        ("early burst, and again", measure(early_then_again()), stated(0, 500..=500, 1_000)),
    ]
}

/// The table as it is published.
fn table(rows: &[(&str, Measured, Stated)]) -> String {
    let mut table = String::from(
        "| traffic | requests | wrongly allowed | admitted, log = 100 % | most in any window |\n|---|---:|---:|---:|---:|\n",
    );
    for (traffic, measured, _) in rows {
        let share = |part: u64, whole: u64| format!("{:.1} %", 100.0 * part as f64 / whole as f64);
        table += &format!(
            "| {traffic} | {} | {} | {} | {:.2} x limit |\n",
            measured.requests,
            share(measured.wrongly_allowed, measured.requests),
            share(measured.admitted, measured.admitted_by_log),
            measured.most as f64 / LIMIT as f64,
        );
    }
    table
}

#[test]
fn the_error_is_within_the_stated_bounds_and_published() {
    let rows = rows();
    let table = table(&rows);
    println!("{table}");
    for (traffic, measured, stated) in &rows {
        let allowed = measured.wrongly_allowed * 1_000;
        assert!(allowed <= stated.wrongly_allowed * measured.requests, "{traffic}: {measured:?}");
        let (least, most) = (stated.admitted.start(), stated.admitted.end());
        let admitted = measured.admitted * 1_000;
        assert!(admitted >= least * measured.admitted_by_log, "{traffic}: {measured:?}");
        assert!(admitted <= most * measured.admitted_by_log, "{traffic}: {measured:?}");
        assert!(measured.most * 1_000 <= stated.most * LIMIT, "{traffic}: {measured:?}");
    }
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/algorithms.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    assert!(docs.contains(&table), "docs/algorithms.md does not have this table:\n{table}");
}

#[test]
fn never_twice_the_limit_and_the_bound_is_reached() {
    // With a request every nanosecond of the boundary's two sides there is no worse traffic: the
    // quota in the last nanosecond of a window, then each unit as soon as it is given.
    let limit = Limit::SlidingCounter(SlidingCounter { limit: LIMIT, seconds: 60 });
    let mut state = State::Fresh;
    let spend = |state: &mut State, at: u64| {
        let verdict = limit.check(state, Now::at(at), 1);
        if verdict.allowed {
            limit.charge(state, Now::at(at), 1, PermitId(0));
        }
        verdict
    };
    let boundary = START + WINDOW;
    let mut passed = 0;
    while spend(&mut state, boundary - 1).allowed {
        passed += 1;
    }
    let mut at = boundary;
    while at < boundary - 1 + WINDOW {
        match spend(&mut state, at).wait {
            tidegate_algorithms::limit::Wait::For(wait) => at += wait,
            _ => passed += 1,
        }
    }
    assert_eq!(passed, 2 * LIMIT - 1);
}
