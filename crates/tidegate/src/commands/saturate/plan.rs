//! From flags to what is run: the scenario's text, the course and the thresholds.
//!
//! A URL without a scenario becomes a scenario of one GET request, so that there is one way to run.
//! A scenario brings its own steps; a search takes its requests, checks and thresholds only.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use tidegate_tester::cluster::Job;
use tidegate_tester::discover::{Mode, Settings};
use tidegate_tester::load::Target;
use tidegate_tester::saturate::Course;
use tidegate_tester::scenario::{self, Scenario};
use tidegate_tester::threshold::Threshold;

use super::Args;

/// All that a run needs.
pub(super) struct Plan {
    pub(super) job: Job,
    pub(super) course: Course,
    pub(super) thresholds: Vec<Threshold>,
    /// Steps of the course whose rate changes within the step.
    pub(super) profiles: Vec<usize>,
    /// The scenario's name.
    pub(super) scenario: String,
}

pub(super) fn plan(args: &Args) -> anyhow::Result<Plan> {
    let (text, data) = match &args.scenario {
        Some(name) => scenario_text(name)?,
        None => (one_request(args)?, None),
    };
    let job = Job {
        url: args.url.clone(),
        scenario: text,
        data,
        threads: 1,
        sources: args.sources.clone(),
        max_connecting: 512,
        seed: args.seed,
        profile_of_step: None,
        share: (0, 1),
    };
    let (scenario, _) = job.resolve()?;
    let mut thresholds = args.threshold.clone();
    for threshold in scenario.thresholds.iter().chain(scenario.steps.iter().flat_map(|s| &s.thresholds)) {
        thresholds.push(translated(threshold)?);
    }
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
    Ok(Plan { job, course, thresholds, profiles, scenario: scenario.name })
}

/// A scenario's threshold in the language of reports.
fn translated(threshold: &scenario::Threshold) -> anyhow::Result<Threshold> {
    let text = threshold.to_string().replace("p99.9 ", "p999 ");
    text.parse().with_context(|| format!("the scenario's threshold `{threshold}` has no place in a report"))
}

fn settings(args: &Args) -> Settings {
    let ms = |seconds: f64| (seconds.max(0.0) * 1e3) as u64;
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

/// The scenario's text and its data file's.
fn scenario_text(name: &str) -> anyhow::Result<(String, Option<String>)> {
    if let Some(text) = scenario::built_in(name) {
        return Ok((text.to_owned(), None));
    }
    let known = || scenario::names().collect::<Vec<_>>().join(", ");
    let text = fs::read_to_string(name).with_context(|| {
        format!("{name:?} is neither a file nor one of the built-in scenarios {}", known())
    })?;
    let mut data = None;
    let folder = Path::new(name).parent().unwrap_or(Path::new("."));
    Scenario::parse(&text, |file| {
        let text = fs::read_to_string(folder.join(file))?;
        data = Some(text.clone());
        Ok(text)
    })?;
    Ok((text, data))
}

/// One GET request to the URL, as a scenario. Its step is not run: the search makes its own.
fn one_request(args: &Args) -> anyhow::Result<String> {
    let table = |pairs: Vec<(&str, toml::Value)>| {
        toml::Table::from_iter(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)))
    };
    let reuse = if args.connection_per_request { "per-request" } else { "keep-alive" };
    let mut connection = table(vec![("reuse", reuse.into())]);
    if let Some(seconds) = args.timeout_seconds {
        connection.insert("request_timeout_ms".to_owned(), ((seconds * 1e3) as i64).into());
    }
    let path = Target::parse(&args.url)?.path;
    Ok(toml::to_string(&table(vec![
        ("name", "saturate".into()),
        ("connection", connection.into()),
        ("request", vec![table(vec![("path", path.into())])].into()),
        ("step", vec![table(vec![("connections", 1.into()), ("duration_s", 1.0.into())])].into()),
    ]))?)
}
