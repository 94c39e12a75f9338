//! From a scenario as written to a scenario that can run, or to all of its mistakes.

use std::{net::IpAddr, sync::Arc, time::Duration};

use tidegate_algorithms::pacing::MAX_RATE;
use tidegate_wire::http1::Text;

use super::{Mistake, RequestSpec, Scenario, data, raw};
use crate::load::{Checks, HeaderCheck, Reuse, Rows, StatusSet, Trust};
use tidegate_judge::threshold::Threshold;

const MAX_SECONDS: f64 = 86_400.0;
const MAX_TIMEOUT_MS: u64 = 600_000;
/// Most addresses that one scenario connects from.
const MAX_SOURCES: usize = 4_096;

/// Collects mistakes while values are made.
#[derive(Default)]
pub(super) struct ScenarioChecker {
    mistakes: Vec<Mistake>,
}

pub(super) fn check(
    raw: raw::RawScenario,
    read_data: impl FnOnce(&str) -> std::io::Result<String>,
) -> Result<Scenario, Vec<Mistake>> {
    let mut checker = ScenarioChecker::default();
    if raw.name.is_empty() || raw.name.len() > 100 {
        checker.mistake("name", "1 to 100 bytes");
    }
    let thresholds = checker.thresholds("thresholds", &raw.thresholds);
    let timeout = |checker: &mut ScenarioChecker, key: &str, value: Option<u64>| {
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
            Some(raw::RawReuse::PerRequest) => Reuse::PerRequest,
            Some(raw::RawReuse::KeepAlive) | None => Reuse::KeepAlive,
        },
        connect_timeout,
        request_timeout,
        connect_rate: raw.connection.connect_rate,
        sources,
        http2: raw.connection.http2,
        trust: Trust {
            authorities: raw.connection.authorities,
            pem: None,
            anyone: raw.connection.any_certificate,
        },
        requests,
        rows,
        steps,
    };
    // Templates that fail alone were reported above; here only what needs the data too.
    if let Ok(workload) = scenario.workload("host") {
        for column in workload.missing_columns() {
            checker.mistake("request", &format!("{{{{row.{column}}}}} is not a column of the data"));
        }
    }
    if checker.mistakes.is_empty() { Ok(scenario) } else { Err(checker.mistakes) }
}

impl ScenarioChecker {
    pub(super) fn mistake(&mut self, path: &str, problem: &str) {
        self.mistakes.push(Mistake { path: path.to_owned(), problem: problem.to_owned() });
    }

    pub(super) fn within(&mut self, path: &str, value: u64, low: u64, high: u64, unit: &str) {
        if !(low..=high).contains(&value) {
            self.mistake(path, &format!("{value} is outside {low} to {high} {unit}"));
        }
    }

    pub(super) fn seconds(&mut self, path: &str, value: f64, low: f64) -> u64 {
        if !(low..=MAX_SECONDS).contains(&value) {
            self.mistake(path, &format!("{value} is outside {low} to {MAX_SECONDS} s"));
            return 1;
        }
        (value * 1e3).round() as u64
    }

    pub(super) fn rate(&mut self, path: &str, value: f64) {
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

    pub(super) fn thresholds(&mut self, path: &str, texts: &[String]) -> Vec<Threshold> {
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
        raw: raw::RawRequest,
        good: &raw::Good,
        denied: &raw::Denied,
    ) -> RequestSpec {
        let path = format!("request[{index}]");
        let weight = raw.weight.unwrap_or(1);
        self.within(&format!("{path}.weight"), weight.into(), 1, 1_000_000, "");
        let checks =
            self.checks(&path, raw.good.as_ref().unwrap_or(good), raw.denied.as_ref().unwrap_or(denied));
        if raw.path.is_none() && raw.command.is_empty() {
            self.mistake(&path, "a path, or a command for a RESP server, is needed");
        }
        if raw.body.is_some() && raw.body_hex.is_some() {
            self.mistake(&path, "body and body_hex exclude each other");
        }
        let body_bytes = raw.body_hex.as_deref().map(|text| {
            bytes_of_hex(text).unwrap_or_else(|| {
                self.mistake(&format!("{path}.body_hex"), "pairs of hexadecimal digits are needed");
                Vec::new()
            })
        });
        // A RESP server is sent a PING where nothing else is asked for.
        let command = if raw.command.is_empty() { vec!["PING".to_owned()] } else { raw.command };
        for word in &command {
            if let Err(error) = Text::parse(word) {
                self.mistake(&format!("{path}.command"), &error.to_string());
            }
        }
        let spec = RequestSpec {
            weight,
            method: raw.method.unwrap_or_else(|| "GET".to_owned()),
            path: raw.path.unwrap_or_else(|| "/".to_owned()),
            headers: raw.headers,
            body: raw.body,
            body_bytes,
            command,
            checks,
        };
        if let Err(error) = spec.template("host") {
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
}

/// Pairs of hexadecimal digits, white space between them or not.
fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::ScenarioError;
    use proptest::prelude::*;
    use tidegate_judge::measurement::Loop;

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
        assert_eq!(mistakes(&text), ["request: {{row.none}} is not a column of the data"]);
    }

    #[test]
    fn bytes_and_commands_are_requests_too() {
        let read = |text: &str| Scenario::parse(text, |_| unreachable!());
        let scenario = read(&GOOD.replace("path = '/'", "path = '/'\nbody_hex = '0A ff'")).unwrap();
        assert_eq!(scenario.requests[0].body_bytes.as_deref(), Some(&[0x0a, 0xff][..]));
        assert_eq!(scenario.requests[0].command, ["PING"]);
        let scenario = read(&GOOD.replace("path = '/'", "command = ['GET', 'k{{counter}}']")).unwrap();
        assert_eq!((scenario.requests[0].path.as_str(), scenario.requests[0].command.len()), ("/", 2));
        let text =
            GOOD.replace("path = '/'", "body = 'a'\nbody_hex = '0'\n[[request]]\ncommand = ['{{no}}']");
        let found = mistakes(&text);
        for part in [
            "request[0]: a path, or a command",
            "request[0]: body and body_hex exclude",
            "request[0].body_hex: pairs of hexadecimal digits",
            "request[1].command: unknown variable",
        ] {
            assert!(found.iter().any(|mistake| mistake.starts_with(part)), "{part} is not in {found:#?}");
        }
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
