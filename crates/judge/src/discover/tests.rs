//! The search against simulated services whose capacity and knee are known.

use proptest::prelude::*;

use super::zones::Zone;
use super::*;
use crate::measurement::Bench;
use crate::simulated::Service;

fn run(mut service: Service, settings: Settings) -> (Outcome, usize) {
    let discovery = discover(&mut service, settings).unwrap();
    (discovery.outcome(), discovery.steps().len())
}

fn quick() -> Settings {
    Settings { ceiling: 2_000.0, ..Settings::default() }
}

/// The proof: c workers at a fixed 10 ms give c / 10 ms within 3 %, the knee within one step.
#[test]
fn fixed_workers_give_their_capacity_and_knee() {
    for workers in [4, 16, 50, 100] {
        let service = Service::new(workers, 10_000.0);
        let truth = service.capacity();
        let (outcome, steps) = run(service, quick());
        let capacity = outcome.capacity.unwrap();
        assert!((capacity.throughput / truth - 1.0).abs() < 0.03, "{workers}: {capacity:?}");
        assert_eq!(capacity.bound, Bound::Reached);
        assert!(capacity.repeats >= 3);
        let knee = outcome.knee.unwrap();
        let low = f64::from(workers) / 1.13 - 1.0;
        let high = f64::from(workers) * 1.13 + 1.0;
        assert!((low..=high).contains(&knee.concurrency), "{workers}: {knee:?}");
        let row = outcome.levels.iter().find(|level| level.load == knee.concurrency).unwrap();
        assert_eq!(knee.throughput, row.throughput().unwrap().mean, "one figure for one level");
        assert!(outcome.gates.iter().all(|g| g.passed), "{:?}", outcome.gates);
        assert_eq!(outcome.stop, Stop::Found);
        assert!(steps <= 60, "{workers}: {steps} steps");
    }
}

#[test]
fn a_falling_curve_has_its_knee_near_its_peak() {
    let mut service = Service::new(32, 2_000.0);
    service.coherency = 2e-4;
    let (outcome, _) = run(service, quick());
    let knee = outcome.knee.unwrap();
    // At n connections up to 32: n / (2 ms x (1 + 2e-4 n (n - 1))); the peak is at 32, the workers.
    assert!((24.0..=45.0).contains(&knee.concurrency), "{knee:?}");
    assert!(outcome.zones.iter().any(|z| z.zone == Zone::Degraded), "{:?}", outcome.zones);
    assert_eq!(outcome.zones[0].zone, Zone::Optimal);
}

#[test]
fn a_ceiling_below_the_knee_is_at_least() {
    let (outcome, _) = run(Service::new(1_000, 10_000.0), Settings { ceiling: 64.0, ..quick() });
    assert_eq!((outcome.stop, outcome.knee), (Stop::Ceiling, None));
    assert_eq!(outcome.capacity.unwrap().bound, Bound::AtLeast);
}

#[test]
fn a_generator_bound_step_is_never_the_servers_figure() {
    let mut service = Service::new(1_000, 2_000.0);
    (service.generator_threads, service.generator_us) = (1, 200.0);
    let (outcome, _) = run(service, quick());
    // The generator can send 5,000/s; the server could answer 500,000/s.
    assert_eq!(outcome.stop, Stop::Generator);
    let capacity = outcome.capacity.unwrap();
    assert_eq!(capacity.bound, Bound::AtLeast);
    assert!(capacity.throughput < 4_900.0, "{capacity:?}");
    assert!(outcome.knee.is_none());
    assert!(outcome.levels.iter().any(Level::generator_bound));
}

/// Recorded: 64 connections, 41 in flight by rate x latency, sends 0.7 ms late: a thread that is busy and
/// capped at 95 % of its core looks at replies while the connections wait for it.
#[test]
fn connections_that_idle_by_a_busy_generator_are_its_limit() {
    let measured = Service::new(100, 10_000.0).run(&crate::simulated::closed(64)).unwrap();
    let mut record = StepRecord::of(&measured);
    (record.little.deviation, record.mean_in_flight) = (-0.36, 41.0);
    record.generator.send_lag_p99_us = 700;
    for (busy, bound) in [(0.94, true), (0.50, false)] {
        record.generator.busiest_thread = busy;
        assert_eq!(gates::generator_bound(&record), bound, "{busy} busy");
    }
    record.generator.busiest_thread = 0.94;
    record.established = 41;
    assert!(!gates::generator_bound(&record), "the connections were not there");
}

/// (connections, in flight by count, deviation from Little's law, send lag us, reply p99 us, busiest thread,
/// its share without a core): whether the generator was the limit. The first three were measured, and were
/// refused for the generator's sake although it had done nothing wrong.
#[test]
fn the_generator_is_the_limit_only_when_it_was_short_of_cores_and_that_shows() {
    type Row = (f64, f64, f64, u64, u64, f64, f64, bool, &'static str);
    let table: [Row; 11] = [
        (
            101.0,
            101.0,
            -0.40,
            200,
            3_000,
            0.11,
            0.12,
            false,
            "a server out of descriptors: its connections hang",
        ),
        (64.0, 63.8, -0.50, 400, 50_000, 0.04, 0.15, false, "an interpreter's one thread"),
        (64.0, 63.9, 0.0, 1_200, 30_000, 0.36, 0.37, false, "late by a twenty-fifth of the reply's time"),
        (64.0, 63.9, 0.0, 4_000, 30_000, 0.36, 0.37, true, "its cores were taken, and it shows"),
        (64.0, 63.9, 0.0, 4_000, 30_000, 0.36, 0.05, false, "it had its cores: the lag is a stall's"),
        (64.0, 63.9, 0.0, 4_000, 30_000, 0.93, 0.0, true, "a thread of it used its core up"),
        (64.0, 63.9, 0.0, 900, 1_000, 0.93, 0.0, false, "below a millisecond nothing is late"),
        (64.0, 41.0, -0.36, 700, 50_000, 0.94, 0.0, true, "connections idle between reply and send"),
        (64.0, 41.0, -0.36, 700, 50_000, 0.50, 0.0, false, "idle connections, and cores to spare"),
        (64.0, 63.9, 0.0, 10, 50_000, 0.98, 0.0, true, "no idle time is left: no more could be sent"),
        (64.0, 63.9, 0.0, 10, 50_000, 0.92, 0.30, false, "short of cores and in time"),
    ];
    for (connections, in_flight, deviation, lag, p99, busy, without, bound, what) in table {
        let step = crate::simulated::closed(connections as u32);
        let mut record = StepRecord::of(&Service::new(1_000, 10_000.0).run(&step).unwrap());
        (record.mean_in_flight, record.little.deviation) = (in_flight, deviation);
        (record.generator.send_lag_p99_us, record.response.p99_us) = (lag, p99);
        record.generator.busiest_thread = busy;
        record.generator.run_delay_seconds = without * record.seconds * f64::from(record.generator.threads);
        assert_eq!(gates::generator_bound(&record), bound, "{what}");
    }
}

#[test]
fn the_open_loop_finds_the_highest_rate_that_keeps_the_objective() {
    // M/D/8 at 5 ms: 1,600/s at most; p99 < 20 ms is lost shortly before.
    let mut service = Service::new(8, 5_000.0);
    service.rtt_us = 0.0;
    let settings = Settings::slo("p99 < 20ms".parse().unwrap(), 500);
    let (outcome, _) = run(service, settings.clone());
    let capacity = outcome.capacity.unwrap();
    assert!((1_350.0..1_600.0).contains(&capacity.throughput), "{capacity:?}");
    assert!(capacity.interval.high <= 1_700.0 && capacity.repeats >= 3, "{capacity:?}");
    let knee = outcome.knee.unwrap();
    assert!(knee.p99_us < 20_000.0 && knee.concurrency < 30.0, "{knee:?}");

    let (never, _) = run(Service::new(8, 50_000.0), settings);
    assert_eq!((never.stop, never.capacity), (Stop::ObjectiveNeverHolds, None));
}

#[test]
fn an_objective_moves_the_knee_of_the_closed_loop() {
    // 10 ms x (1 + 1e-4 n (n - 1)): the peak is at 100 connections, 13 ms are reached near 55.
    let settings = Settings { objectives: vec!["p99 < 13ms".parse().unwrap()], ..quick() };
    let mut service = Service::new(500, 10_000.0);
    service.coherency = 1e-4;
    let (outcome, _) = run(service, settings);
    let knee = outcome.knee.unwrap();
    assert!(knee.p99_us < 13_000.0 && (45.0..58.0).contains(&knee.concurrency), "{knee:?}");
}

#[test]
fn listed_levels_are_measured_as_listed() {
    let settings = Settings { levels: vec![100.0, 500.0, 1_000.0], repeats: 1, ..Settings::default() };
    let (outcome, steps) = run(Service::new(50, 10_000.0), settings);
    assert_eq!((steps, outcome.stop), (3, Stop::LevelsDone));
    assert_eq!(outcome.levels.iter().map(|l| l.load).collect::<Vec<_>>(), [100.0, 500.0, 1_000.0]);
    assert!(!outcome.gates.iter().find(|g| g.id == 'c').unwrap().passed, "one repeat is too few");
}

#[test]
fn bounds_on_steps_and_time_hold() {
    let (outcome, steps) = run(Service::new(50, 10_000.0), Settings { max_steps: 7, ..quick() });
    assert_eq!((steps, outcome.stop), (7, Stop::Steps));
    let (outcome, steps) = run(Service::new(50, 10_000.0), Settings { max_total_ms: 31_000, ..quick() });
    assert_eq!((steps, outcome.stop), (5, Stop::Time));
}

#[test]
fn short_steps_fail_their_gate() {
    let (outcome, _) = run(Service::new(8, 1_000.0), Settings { measure_ms: 500, ..quick() });
    assert!(!outcome.gates.iter().find(|g| g.id == 'c').unwrap().passed);
}

#[test]
fn zones_follow_the_errors() {
    let mut service = Service::new(100, 10_000.0);
    service.ports = 150;
    let settings = Settings { levels: vec![50.0, 100.0, 400.0], repeats: 1, ..Settings::default() };
    let (outcome, _) = run(service, settings);
    let zones: Vec<Zone> = outcome.zones.iter().map(|z| z.zone).collect();
    assert_eq!(zones, [Zone::Optimal, Zone::Broken], "{:?}", outcome.zones);
}

/// Throughput by level, as it was measured and published, with zones that ran optimal, degraded, stressed,
/// degraded, stressed.
#[test]
fn zones_never_get_better_with_more_load() {
    let measured = [
        (1.0, 16_278.0),
        (32.0, 113_575.0),
        (54.0, 111_781.0),
        (64.0, 129_368.0),
        (70.0, 115_028.0),
        (76.0, 120_816.0),
        (91.0, 113_206.0),
        (128.0, 126_216.0),
    ];
    let levels: Vec<Level> = measured
        .iter()
        .map(|&(load, rate)| {
            let step = crate::simulated::closed(load as u32);
            let mut record = StepRecord::of(&Service::new(1_000, 10_000.0).run(&step).unwrap());
            record.throughput.mean = rate;
            Level::new(load, 0, &record)
        })
        .collect();
    let spans = |capacity| zones::spans(&levels, &Settings::default(), Some(64.0), Some(capacity));
    let named = |capacity| spans(capacity).iter().map(|z| (z.zone, z.from, z.to)).collect::<Vec<_>>();
    assert_eq!(named(129_368.0), [(Zone::Optimal, 1.0, 64.0), (Zone::Stressed, 70.0, 128.0)]);
    assert_eq!(named(150_000.0), [(Zone::Optimal, 1.0, 64.0), (Zone::Degraded, 70.0, 128.0)]);
    assert_eq!(zones::at(&spans(129_368.0), 91.0), Zone::Stressed);
    assert_eq!(zones::at(&spans(129_368.0), 4_000.0), Zone::Stressed);
}

#[test]
fn a_level_whose_repeats_differ_says_so() {
    let at = |rates: &[f64]| {
        let step = crate::simulated::closed(2);
        let mut record = StepRecord::of(&Service::new(1_000, 10_000.0).run(&step).unwrap());
        let mut level: Option<Level> = None;
        for &rate in rates {
            record.throughput.mean = rate;
            match &mut level {
                Some(level) => level.add(0, &record),
                None => level = Some(Level::new(2.0, 0, &record)),
            }
        }
        level.unwrap().is_unsteady()
    };
    assert!(at(&[42_000.0, 106_000.0]), "0 to 476,153 was printed");
    assert!(!at(&[100.0, 104.0, 98.0]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Whatever the service, the search ends within its bounds and keeps its own rules.
    #[test]
    fn any_service_is_searched_within_bounds(
        seed: u64, workers in 1_u32..200, service_us in 500.0_f64..20_000.0, spread in 0.0_f64..1.0,
        coherency in 0.0_f64..1e-4, ports in 20_u32..2_000,
    ) {
        let mut service = Service::new(workers, service_us).seeded(seed);
        (service.spread, service.coherency, service.ports) = (spread, coherency, ports);
        let settings = Settings { ceiling: 500.0, measure_ms: 1_000, warmup_ms: 200, max_steps: 40, ..Settings::default() };
        let (outcome, steps) = run(service, settings);
        prop_assert!(steps <= 40);
        prop_assert!(outcome.levels.windows(2).all(|w| w[0].load < w[1].load));
        prop_assert!(outcome.zones.windows(2).all(|w| w[0].to < w[1].from && w[0].zone < w[1].zone));
        if let Some(capacity) = outcome.capacity {
            prop_assert!(capacity.interval.contains(capacity.throughput));
        }
    }
}

#[test]
fn steps_that_hold_few_latencies_are_lengthened_within_a_bound() {
    let settings = Settings { levels: vec![8.0, 64.0], repeats: 2, measure_ms: 5_000, ..quick() };
    let mut discovery = Discovery::new(settings.clone());
    let mut bench = Service::new(8, 1_000_000.0);
    let mut lengths = Vec::new();
    while let Some(plan) = discovery.next_step() {
        lengths.push(plan.measure_ms);
        let measurement = bench.run(&plan).unwrap();
        discovery.observe(&measurement);
    }
    assert_eq!(lengths[0], 5_000, "nothing is known before the first step");
    assert!(lengths[1..].iter().all(|ms| (5_001..=20_000).contains(ms)), "{lengths:?}");
    assert_eq!(lengths.last(), Some(&20_000), "8 s of waiting ask for more than the bound");
    let asked = |levels: Vec<f64>| Discovery::new(Settings { levels, ..settings }).next_step().unwrap();
    assert_eq!(asked(vec![64.0]).measure_ms, 5_000);
}
