//! The steps of a scenario file: levels, lengths, rates that may change within a step.

use tidegate_algorithms::pacing::Profile;

use super::{Step, check::ScenarioChecker, raw};
use tidegate_judge::measurement::{Loop, StepPlan};

const MAX_CONNECTIONS: u64 = 1_000_000;

impl ScenarioChecker {
    pub(super) fn step(&mut self, index: usize, raw: &raw::RawStep) -> Vec<Step> {
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
            Some(rate) => Loop::Open { rate, poisson: raw.arrivals == Some(raw::RawArrivals::Poisson) },
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
    fn profile(&mut self, path: &str, raw: &raw::RawStep) -> (Option<f64>, Option<Profile>) {
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
