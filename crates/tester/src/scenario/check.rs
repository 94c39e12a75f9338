//! From a scenario as written to a scenario that can run, or to all of its mistakes.

use std::{net::IpAddr, sync::Arc, time::Duration};

use tidegate_algorithms::pacing::{MAX_RATE, Profile};

use super::{Mistake, RequestSpec, Scenario, Step, data, raw};
use crate::{
    load::{Checks, HeaderCheck, Reuse, Rows, StatusSet},
    measurement::{Loop, StepPlan},
    threshold::Threshold,
};

const MAX_CONNECTIONS: u64 = 1_000_000;
const MAX_SECONDS: f64 = 86_400.0;
const MAX_TIMEOUT_MS: u64 = 600_000;
/// Most addresses that one scenario connects from.
const MAX_SOURCES: usize = 4_096;

/// Collects mistakes while values are made.
#[derive(Default)]
struct Checker {
    mistakes: Vec<Mistake>,
}

pub(super) fn check(
    raw: raw::Scenario,
    read_data: impl FnOnce(&str) -> std::io::Result<String>,
) -> Result<Scenario, Vec<Mistake>> {
    let mut checker = Checker::default();
    if raw.name.is_empty() || raw.name.len() > 100 {
        checker.mistake("name", "1 to 100 bytes");
    }
    let thresholds = checker.thresholds("thresholds", &raw.thresholds);
    let timeout = |checker: &mut Checker, key: &str, value: Option<u64>| {
        let value = value.unwrap_or(10_000);
        checker.within(&format!("connection.{key}"), value, 1, MAX_TIMEOUT_MS, "ms");
        Duration::from_millis(value)
    };
    let connect_timeout = timeout(&mut checker, "connect_timeout_ms", raw.connection.connect_timeout_ms);
    let request_timeout = timeout(&mut checker, "request_timeout_ms", raw.connection.request_timeout_ms);
    if let Some(rate) = raw.connection.connect_rate {
        checker.rate("connection.connect_rate", rate);
    }
    let sources = checker.sources(&raw.connection.sources);
    let rows = checker.rows(raw.data.as_deref(), read_data);
    if raw.request.is_empty() {
        checker.mistake("request", "at least one [[request]] is needed");
    }
    let requests: Vec<RequestSpec> = raw
        .request
        .into_iter()
        .enumerate()
        .map(|(index, request)| checker.request(index, request, &raw.good, &raw.denied))
        .collect();
    if raw.step.is_empty() {
        checker.mistake("step", "at least one [[step]] is needed");
    }
    let steps = raw.step.iter().enumerate().flat_map(|(index, step)| checker.step(index, step)).collect();
    let scenario = Scenario {
        name: raw.name,
        about: raw.about,
        thresholds,
        reuse: match raw.connection.reuse {
            Some(raw::Reuse::PerRequest) => Reuse::PerRequest,
            Some(raw::Reuse::KeepAlive) | None => Reuse::KeepAlive,
        },
        connect_timeout,
        request_timeout,
        connect_rate: raw.connection.connect_rate,
        sources,
        requests,
        rows,
        steps,
    };
    // Templates that fail alone were reported above; here only what needs the data too.
    if let Ok(workload) = scenario.workload("host") {
        for column in workload.missing_columns() {
            checker.mistake("request", &format!("{{{{row.{column}}}}} is no column of the data"));
        }
    }
    if checker.mistakes.is_empty() { Ok(scenario) } else { Err(checker.mistakes) }
}

impl Checker {
    fn mistake(&mut self, path: &str, problem: &str) {
        self.mistakes.push(Mistake { path: path.to_owned(), problem: problem.to_owned() });
    }

    fn within(&mut self, path: &str, value: u64, low: u64, high: u64, unit: &str) {
        if !(low..=high).contains(&value) {
            self.mistake(path, &format!("{value} is outside {low} to {high} {unit}"));
        }
    }

    fn seconds(&mut self, path: &str, value: f64, low: f64) -> u64 {
        if !(low..=MAX_SECONDS).contains(&value) {
            self.mistake(path, &format!("{value} is outside {low} to {MAX_SECONDS} s"));
            return 1;
        }
        (value * 1e3).round() as u64
    }

    fn rate(&mut self, path: &str, value: f64) {
        if !(value > 0.0 && value <= MAX_RATE) {
            self.mistake(path, &format!("{value} is outside 0 (excluded) to {MAX_RATE} per second"));
        }
    }

    fn rows(
        &mut self,
        path: Option<&str>,
        read_data: impl FnOnce(&str) -> std::io::Result<String>,
    ) -> Arc<Rows> {
        let Some(path) = path else {
            return Arc::default();
        };
        let rows = read_data(path).map_err(|error| error.to_string());
        let rows = rows.and_then(|text| data::parse(&text).map_err(|error| error.to_string()));
        rows.unwrap_or_else(|error| {
            self.mistake("data", &format!("{path}: {error}"));
            Arc::default()
        })
    }

    fn thresholds(&mut self, path: &str, texts: &[String]) -> Vec<Threshold> {
        let mut thresholds = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            match text.parse::<Threshold>() {
                Ok(threshold) => thresholds.push(threshold),
                Err(error) => self.mistake(&format!("{path}[{index}]"), &error.to_string()),
            }
        }
        thresholds
    }

    fn sources(&mut self, texts: &[String]) -> Vec<IpAddr> {
        let mut all = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            match text.parse::<IpAddr>() {
                Ok(address) => all.push(address),
                Err(_) => {
                    let problem = format!("{text:?} is not an IP address of this machine");
                    self.mistake(&format!("connection.sources[{index}]"), &problem);
                }
            }
        }
        if all.len() > MAX_SOURCES {
            self.mistake("connection.sources", &format!("more than {MAX_SOURCES} addresses"));
        }
        all
    }

    fn request(
        &mut self,
        index: usize,
        raw: raw::Request,
        good: &raw::Good,
        denied: &raw::Denied,
    ) -> RequestSpec {
        let path = format!("request[{index}]");
        let weight = raw.weight.unwrap_or(1);
        self.within(&format!("{path}.weight"), weight.into(), 1, 1_000_000, "");
        let checks =
            self.checks(&path, raw.good.as_ref().unwrap_or(good), raw.denied.as_ref().unwrap_or(denied));
        let spec = RequestSpec {
            weight,
            method: raw.method.unwrap_or_else(|| "GET".to_owned()),
            path: raw.path,
            headers: raw.headers,
            body: raw.body,
            checks,
        };
        let headers: Vec<(String, String)> = spec.headers.clone().into_iter().collect();
        let compiled = tidegate_wire::http1::RequestTemplate::compile(
            &spec.method,
            "host",
            &spec.path,
            &headers,
            spec.body.as_deref(),
        );
        if let Err(error) = compiled {
            self.mistake(&path, &error.to_string());
        }
        spec
    }

    fn checks(&mut self, path: &str, good: &raw::Good, denied: &raw::Denied) -> Checks {
        let default = Checks::default();
        let headers = good.headers.iter();
        Checks {
            good_status: match &good.status {
                Some(texts) => self.statuses(&format!("{path}.good.status"), texts),
                None => default.good_status,
            },
            headers: headers
                .map(|(name, text)| HeaderCheck { name: name.clone(), contains: text.clone() })
                .collect(),
            body_contains: good.body_contains.clone(),
            body_lacks: good.body_lacks.clone(),
            denied_status: match &denied.status {
                Some(texts) => self.statuses(&format!("{path}.denied.status"), texts),
                None => default.denied_status,
            },
            denied_body: denied.body_contains.clone(),
        }
    }

    fn statuses(&mut self, path: &str, texts: &[String]) -> StatusSet {
        let mut set = StatusSet::EMPTY;
        for text in texts {
            let range = match text.strip_suffix("xx") {
                Some(class) => class.parse::<u16>().ok().map(|class| (class * 100, class * 100 + 99)),
                None => text.parse::<u16>().ok().map(|status| (status, status)),
            };
            match range.filter(|(low, high)| (100..=599).contains(low) && *high <= 599) {
                Some((low, high)) => set = set.union(&StatusSet::range(low, high)),
                None => {
                    self.mistake(path, &format!("{text:?} is not a status 100 to 599 or a class 1xx to 5xx"))
                }
            }
        }
        set
    }

    fn step(&mut self, index: usize, raw: &raw::Step) -> Vec<Step> {
        let path = format!("step[{index}]");
        let measure_ms = self.seconds(&format!("{path}.duration_s"), raw.duration_s, 0.001);
        let warmup_ms = self.seconds(&format!("{path}.warmup_s"), raw.warmup_s.unwrap_or(0.0), 0.0);
        let think = raw.think_ms.unwrap_or(0.0);
        if !(0.0..=3_600_000.0).contains(&think) {
            self.mistake(&format!("{path}.think_ms"), &format!("{think} is outside 0 to 3600000 ms"));
        }
        if raw.requests.is_some() && raw.requests_per_connection.is_some() {
            self.mistake(&path, "requests and requests_per_connection exclude each other");
        }
        let (rate, profile) = self.profile(&path, raw);
        if rate.is_some() && raw.think_ms.is_some() {
            self.mistake(&path, "think_ms belongs to a closed loop, a rate to an open one");
        }
        if rate.is_none() && raw.arrivals.is_some() {
            self.mistake(&path, "arrivals need a rate");
        }
        let discipline = match rate {
            Some(rate) => Loop::Open { rate, poisson: raw.arrivals == Some(raw::Arrivals::Poisson) },
            None => Loop::Closed { think_us: (think * 1e3) as u64 },
        };
        let thresholds = self.thresholds(&format!("{path}.thresholds"), &raw.thresholds);
        let levels = match &raw.connections {
            raw::Levels::One(level) => vec![*level],
            raw::Levels::Many(levels) => levels.clone(),
        };
        if levels.is_empty() || levels.len() > 1_000 {
            self.mistake(&format!("{path}.connections"), "1 to 1000 levels");
        }
        let mut steps = Vec::new();
        for &connections in &levels {
            self.within(&format!("{path}.connections"), connections, 1, MAX_CONNECTIONS, "connections");
            let per_connection = raw.requests_per_connection.map(|count| count.saturating_mul(connections));
            let level = if levels.len() > 1 || raw.name.is_none() {
                format!("{connections} connections")
            } else {
                String::new()
            };
            let name = [raw.name.as_deref().unwrap_or_default(), &level].join(" ").trim().to_owned();
            steps.push(Step {
                name,
                plan: StepPlan {
                    connections: u32::try_from(connections).unwrap_or(u32::MAX),
                    discipline,
                    warmup_ms,
                    measure_ms,
                    max_requests: raw.requests.or(per_connection).unwrap_or(0),
                },
                profile: profile.clone(),
                thresholds: thresholds.clone(),
            });
        }
        steps
    }

    /// The rate to state, and the profile if the rate changes.
    fn profile(&mut self, path: &str, raw: &raw::Step) -> (Option<f64>, Option<Profile>) {
        let seconds = raw.duration_s;
        let profile = match (raw.rate, raw.ramp_to, raw.spike_to, &raw.rates) {
            (None, None, None, None) => return (None, None),
            (Some(rate), None, None, None) => {
                self.rate(&format!("{path}.rate"), rate);
                return (Some(rate), None);
            }
            (Some(rate), Some(to), None, None) => Profile::ramp(rate, to, seconds),
            (Some(rate), None, Some(peak), None) => Profile::spike(rate, peak, [seconds / 3.0; 3]),
            (None, None, None, Some(rates)) => {
                let total: f64 = rates.iter().map(|(_, seconds)| seconds).sum();
                if (total - seconds).abs() > 0.001 {
                    let problem = format!("the lengths add up to {total} s, duration_s is {seconds}");
                    self.mistake(&format!("{path}.rates"), &problem);
                }
                Profile::steps(rates)
            }
            _ => {
                self.mistake(path, "one of: rate; rate and ramp_to; rate and spike_to; rates");
                return (None, None);
            }
        };
        match profile {
            Ok(profile) if profile.total() > 0.0 => {
                (Some(profile.total() / profile.seconds()), Some(profile))
            }
            Ok(_) => {
                self.mistake(path, "the rate is 0 throughout");
                (None, None)
            }
            Err(error) => {
                self.mistake(path, &error.to_string());
                (None, None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::ScenarioError;
    use proptest::prelude::*;

    const GOOD: &str = "name = 'x'\n[[request]]\npath = '/'\n[[step]]\nconnections = 1\nduration_s = 1\n";

    fn mistakes(text: &str) -> Vec<String> {
        match Scenario::parse(text, |_| Ok("id\n1\n".to_owned())) {
            Err(ScenarioError::Mistakes(mistakes)) => mistakes.iter().map(Mistake::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn all_mistakes_are_reported_at_once_with_place_and_range() {
        let text = "name = ''\nthresholds = ['p99 < 1']\ndata = 'd.csv'\n\
            [connection]\nconnect_timeout_ms = 0\nsources = ['here']\n\
            [[request]]\npath = 'x'\nweight = 0\ngood = { status = ['2xx', '600'] }\n\
            [[request]]\npath = '/{{row.none}}'\n\
            [[step]]\nconnections = [0, 5]\nduration_s = 0\nthink_ms = 1\nrate = 5\n";
        let found = mistakes(text);
        for part in [
            "name: 1 to 100 bytes",
            "thresholds[0]: `1` is no value for p99",
            "connection.connect_timeout_ms: 0 is outside 1 to 600000 ms",
            "connection.sources[0]: \"here\" is not an IP address",
            "request[0].weight: 0 is outside 1 to 1000000",
            "request[0].good.status: \"600\" is not a status",
            "request[0]: path \"x\" must begin",
            "step[0].duration_s: 0 is outside 0.001 to 86400 s",
            "step[0].connections: 0 is outside 1 to 1000000",
            "step[0]: think_ms belongs to a closed loop",
        ] {
            assert!(found.iter().any(|mistake| mistake.starts_with(part)), "{part} is not in {found:#?}");
        }
        assert_eq!(found.len(), 10, "{found:#?}");
    }

    #[test]
    fn a_column_that_the_data_lacks_is_a_mistake() {
        let text = GOOD.replace("path = '/'", "path = '/{{row.id}}/{{row.none}}'").replacen(
            '\n',
            "\ndata = 'd'\n",
            1,
        );
        assert_eq!(mistakes(&text), ["request: {{row.none}} is no column of the data"]);
    }

    #[test]
    fn unknown_keys_are_refused_with_their_line() {
        let error = Scenario::parse(&GOOD.replace("duration_s", "seconds"), |_| unreachable!()).unwrap_err();
        assert!(error.to_string().contains("line 6"), "{error}");
    }

    #[test]
    fn rates_make_profiles() {
        let step = |more: &str| {
            let text = format!("{GOOD}{more}");
            Scenario::parse(&text, |_| unreachable!()).unwrap().steps.remove(0)
        };
        assert_eq!(step("rate = 5").plan.discipline, Loop::Open { rate: 5.0, poisson: false });
        let ramp = step("rate = 100\nramp_to = 300\narrivals = 'poisson'");
        assert_eq!(ramp.plan.discipline, Loop::Open { rate: 200.0, poisson: true });
        assert_eq!(ramp.profile.unwrap().total(), 200.0);
        assert_eq!(step("rates = [[10, 0.5], [30, 0.5]]").profile.unwrap().total(), 20.0);
        assert!(step("rate = 10\nspike_to = 40").profile.is_some());
    }

    proptest! {
        #[test]
        fn any_text_gives_a_scenario_or_mistakes(text in ".{0,80}", number in any::<f64>()) {
            let broken = format!("{GOOD}rate = {number:?}\n{text}");
            prop_assert!(Scenario::parse(&broken, |_| Ok(String::new())).is_ok_and(|s| !s.steps.is_empty())
                || Scenario::parse(&broken, |_| Ok(String::new())).is_err());
        }
    }
}
