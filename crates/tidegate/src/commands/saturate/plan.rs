//! From flags to what is run: the scenario's text, the course and the thresholds.
//!
//! A URL without a scenario becomes a scenario of one GET request, so that there is one way to run.
//! A scenario brings its own steps; a search takes its requests, checks and thresholds only.

use tidegate_judge::discover::{Mode, Settings};
use tidegate_judge::threshold::Threshold;
use tidegate_tester::cluster::Job;
use tidegate_tester::saturate::Course;
use tidegate_tester::scenario::digest;

use super::Saturate;
use crate::commands::load::{named_scenario, request_timeout};

/// All that a run needs.
pub(super) struct SaturationPlan {
    pub(super) job: Job,
    pub(super) course: Course,
    pub(super) thresholds: Vec<Threshold>,
    /// Steps of the course whose rate changes within the step.
    pub(super) profiles: Vec<usize>,
    /// The scenario's name.
    pub(super) scenario: String,
    /// What is sent, in words.
    pub(super) requests: String,
    /// Digest of what is sent and of what counts.
    pub(super) digest: String,
}

pub(super) fn plan(args: &Saturate) -> anyhow::Result<SaturationPlan> {
    let (text, data) = match &args.scenario {
        Some(name) => {
            args.request.only_connection()?;
            named_scenario(name)?
        }
        None => (one_request(args)?, None),
    };
    let job = Job {
        http2: args.request.http2(),
        trust: args.request.trust()?,
        sources: args.sources.clone(),
        ..Job::new(args.url.clone(), text, data, args.seed)
    };
    let (scenario, options) = job.resolve()?;
    let mut thresholds = args.threshold.clone();
    thresholds.extend(&scenario.thresholds);
    thresholds.extend(scenario.steps.iter().flat_map(|step| &step.thresholds));
    let searches = args.scenario.is_none() || args.closed || args.open || !args.levels.is_empty();
    let (course, profiles) = if searches {
        (Course::Search(settings(args)), Vec::new())
    } else {
        let changing = scenario.steps.iter().enumerate().filter(|(_, step)| step.profile.is_some());
        (
            Course::Steps(scenario.steps.iter().map(|step| step.plan.clone()).collect()),
            changing.map(|(index, _)| index).collect(),
        )
    };
    let digest = digest(&job.scenario, job.data.as_deref())?;
    let requests = scenario.requests_in_words(&options.exchange);
    Ok(SaturationPlan { job, course, thresholds, profiles, scenario: scenario.name, requests, digest })
}

fn settings(args: &Saturate) -> Settings {
    let mode = if args.open {
        Mode::Open { connections: args.connections, poisson: true }
    } else {
        Mode::Closed { think_us: (args.think_ms.max(0.0) * 1e3) as u64 }
    };
    let common = match (args.open, args.slo.first()) {
        (true, Some(&slo)) => Settings::slo(slo, args.connections),
        _ => Settings { ceiling: f64::from(args.max_connections), ..Settings::default() },
    };
    let ceiling = if args.open { args.max_rate } else { common.ceiling };
    Settings {
        mode,
        ceiling,
        levels: args.levels.clone(),
        warmup_ms: ms(args.warmup_seconds),
        measure_ms: ms(args.step_seconds),
        repeats: usize::from(args.repeats),
        max_repeats: 2 * usize::from(args.repeats),
        objectives: args.slo.clone(),
        max_total_ms: ms(args.max_minutes * 60.0),
        ..common
    }
}

/// One GET request to the URL, as a scenario. Its step is not run: the search makes its own.
fn one_request(args: &Saturate) -> anyhow::Result<String> {
    let request = args.request.table(&args.url)?;
    let reuse = if args.connection_per_request { "per-request" } else { "keep-alive" };
    let wait = request_timeout(args.timeout_seconds);
    Ok(format!(
        "name = \"saturate\"\n[connection]\nreuse = \"{reuse}\"\n{wait}{request}\
         [[step]]\nconnections = 1\nduration_s = 1.0\n"
    ))
}

fn ms(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e3) as u64
}
