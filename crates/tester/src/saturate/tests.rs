//! The order of a run, on a simulated service: no terminal, no socket.

use super::*;
use tidegate_judge::diagnose::CauseName;
use tidegate_judge::discover::Stop as Ended;
use tidegate_judge::measurement::Measurement;
use tidegate_judge::report::{step_line, summary};
use tidegate_judge::simulated::{Service, closed};

/// Counts what it is told, and may end the run after some steps.
#[derive(Default)]
struct Log {
    begun: Vec<u32>,
    ended: usize,
    stop_after: Option<(usize, Stop)>,
}

impl<B> Spectator<B> for Log {
    fn begins(&mut self, _bench: &mut B, number: usize, plan: &StepPlan, so_far: &Discovery) {
        assert_eq!(number, so_far.steps().len());
        self.begun.push(plan.connections);
    }

    fn ended(&mut self, so_far: &Discovery) {
        self.ended = so_far.steps().len();
        if let Some((after, stop)) = &self.stop_after
            && self.ended == *after
        {
            stop.stop();
        }
    }
}

/// Nobody's address: nothing of this machine is taken for the server's.
fn unseen() -> Seen {
    Seen::of("192.0.2.1:80".parse().unwrap(), None, 1, &[])
}

fn context() -> Context {
    Context { target: "simulated".to_owned(), ..Context::default() }
}

#[test]
fn a_search_ends_with_its_report_and_an_observation_for_each_step() {
    let mut bench = Watched::new(Service::new(8, 10_000.0), unseen());
    let course = Course::Search(Settings { ceiling: 128.0, ..Settings::default() });
    let mut log = Log::default();
    let finished = run(&mut bench, &course, &Stop::default(), &mut log);
    assert_eq!(finished.observations.len(), finished.discovery.steps().len());
    assert_eq!((log.begun.len(), log.ended), (log.ended, finished.discovery.steps().len()));
    let report = finished.report(context(), &["throughput > 1000".parse().unwrap()]).unwrap();
    assert_eq!(report.stop, Ended::Found);
    assert!((report.capacity.unwrap().throughput - 800.0).abs() < 24.0);
    let said = summary(&report);
    assert!(said.starts_with("The server does 7") || said.starts_with("The server does 8"), "{said}");
    assert!(said.contains("Cause: unknown") && said.contains("MISSED"), "{said}");
}

#[test]
fn a_stop_keeps_what_was_measured() {
    let stop = Stop::default();
    let mut bench = Watched::new(Service::new(8, 10_000.0), unseen());
    let mut log = Log { stop_after: Some((3, stop.clone())), ..Log::default() };
    let finished = run(&mut bench, &Course::Search(Settings::default()), &stop, &mut log);
    assert_eq!(finished.discovery.steps().len(), 3);
    assert_eq!(finished.report(context(), &[]).unwrap().stop, Ended::Interrupted);
}

#[test]
fn steps_of_a_scenario_run_as_they_are_and_in_order() {
    let mut bench = Watched::new(Service::new(8, 10_000.0), unseen());
    let course = Course::Steps([2, 16, 4, 2].map(closed).to_vec());
    assert_eq!(course.most_connections(), 16);
    let mut log = Log::default();
    let finished = run(&mut bench, &course, &Stop::default(), &mut log);
    assert_eq!(log.begun, [2, 16, 4, 2]);
    assert_eq!(finished.report(context(), &[]).unwrap().stop, Ended::LevelsDone);
}

/// Fails at its third step.
struct Breaking(Service, usize);

impl Bench for Breaking {
    type Error = &'static str;

    fn run(&mut self, plan: &StepPlan) -> Result<Measurement, Self::Error> {
        self.1 += 1;
        if self.1 == 3 {
            return Err("the cable was pulled");
        }
        self.0.run(plan).map_err(|never| match never {})
    }
}

#[test]
fn a_step_that_cannot_run_does_not_lose_the_others() {
    let mut bench = Watched::new(Breaking(Service::new(8, 10_000.0), 0), unseen());
    let finished =
        run(&mut bench, &Course::Search(Settings::default()), &Stop::default(), &mut Log::default());
    assert_eq!(finished.failure, Some("the cable was pulled"));
    assert_eq!(finished.discovery.steps().len(), 2);
}

#[test]
fn a_step_that_the_generator_limited_is_not_given_as_the_servers() {
    let mut service = Service::new(4_000, 1_000.0);
    (service.generator_threads, service.generator_us) = (1, 400.0);
    let mut bench = Watched::new(service, unseen());
    let finished = run(&mut bench, &Course::Steps(vec![closed(256)]), &Stop::default(), &mut Log::default());
    let line = step_line(1, &finished.discovery.steps()[0]);
    assert!(line.starts_with("step 1: 256 connections: not counted: the generator was the limit"), "{line}");
    assert!(!line.contains("/s,"), "{line}");
    let report = finished.report(context(), &[]).unwrap();
    assert_eq!((report.cause.name, report.capacity), (CauseName::GeneratorCpu, None));
}

/// A machine with a core to spare for the generator.
struct Spare;

impl Spectator<Service> for Spare {
    fn begins(&mut self, _: &mut Service, _: usize, _: &StepPlan, _: &Discovery) {}

    fn ended(&mut self, _: &Discovery) {}

    fn add_thread(&mut self, bench: &mut Service) -> bool {
        bench.generator_threads += 1;
        true
    }
}

/// One thread that needs 400 us for a request, then two: twice the throughput, and the report says so.
#[test]
fn one_more_thread_settles_whether_the_generator_was_the_limit() {
    let mut service = Service::new(4_000, 1_000.0);
    (service.generator_threads, service.generator_us) = (1, 400.0);
    let mut bench = Watched::new(service, unseen());
    let finished = run(&mut bench, &Course::Steps(vec![closed(256)]), &Stop::default(), &mut Spare);
    assert_eq!((finished.discovery.steps().len(), finished.observations.len()), (1, 1));
    let gain = finished.extra_worker_gain.unwrap();
    assert!((gain - 1.0).abs() < 0.1, "{gain}");
    let report = finished.report(context(), &[]).unwrap();
    assert_eq!((report.context.extra_worker_gain, report.cause.name), (Some(gain), CauseName::GeneratorCpu));
    assert!(report.cause.evidence.iter().any(|line| line.starts_with("one more worker adds ")));
    // A server that is the limit itself is not asked.
    let mut bench = Watched::new(Service::new(8, 10_000.0), unseen());
    let finished = run(&mut bench, &Course::Steps(vec![closed(64)]), &Stop::default(), &mut Spare);
    assert_eq!(finished.extra_worker_gain, None);
}
