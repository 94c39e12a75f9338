//! Reads the numbers of a policy or of an override: which fields an algorithm takes, their ranges,
//! and the bounds that hold over several of them.
//!
//! All fields are read even when one is wrong, so that everything is reported at once; a quota is
//! made only of a document without a mistake in its numbers.

use jiff::tz::TimeZone;

use crate::document::{DocumentReader, range, shown};
use crate::limit::{Bucket, calendar::Period, concurrency::MAX_PERMITS, sliding_log::MAX_ENTRIES};
use crate::policy::{
    Algorithm, MAX_LEASE_SECONDS, MAX_MISTAKES, MAX_SPAN, MAX_UNITS, MAX_UNITS_PER_SECOND,
    MAX_WINDOW_SECONDS, Quota, QuotaSpec,
};
use crate::time::SECOND;

const ALGORITHMS: &str = "\"token_bucket\", \"leaky_bucket\", \"fixed_window\", \"sliding_log\", \
                          \"sliding_counter\", \"concurrency\", \"calendar\"";

impl DocumentReader<'_> {
    /// Reads the numbers; those that are absent are as in `base`, if that has the same algorithm.
    pub(super) fn quota(&mut self, base: Option<&QuotaSpec>) -> Option<Quota> {
        let before = self.mistakes.len();
        let algorithm = match self.field("algorithm") {
            Some(_) => self.choice("algorithm", ALGORITHMS),
            None => Some(base.map_or(Algorithm::SlidingLog, |base| base.algorithm)),
        };
        let base = base.filter(|base| Some(base.algorithm) == algorithm);
        let limit = self.limit(algorithm, base);
        let window_seconds = self.belongs("window_seconds", algorithm).then(|| {
            self.required("window_seconds", 1, MAX_WINDOW_SECONDS, base.and_then(|base| base.window_seconds))
        });
        let burst = self.belongs("burst", algorithm).then(|| self.burst(algorithm, limit, base));
        let lease_seconds = self.belongs("lease_seconds", algorithm).then(|| {
            let base = base.and_then(|base| base.lease_seconds);
            self.number("lease_seconds", 1, MAX_LEASE_SECONDS).or(base).unwrap_or(60)
        });
        let period = self.belongs("period", algorithm).then(|| self.period(base));
        let zone = self.belongs("time_zone", algorithm).then(|| self.zone(base));
        let (time_zone, zone) = zone.flatten().unzip();
        let spec = QuotaSpec {
            algorithm: algorithm?,
            limit: limit?,
            window_seconds: window_seconds.flatten(),
            burst: burst.flatten(),
            lease_seconds,
            period: period.flatten(),
            time_zone,
        };
        self.bounded(&spec);
        let sound = self.mistakes.len() == before && before < MAX_MISTAKES;
        sound.then(|| Quota { limit: spec.limit(zone.unwrap_or(TimeZone::UTC)), spec })
    }

    /// The limit, whose bound depends on what the algorithm keeps for each unit.
    fn limit(&mut self, algorithm: Option<Algorithm>, base: Option<&QuotaSpec>) -> Option<u64> {
        let most = match algorithm {
            Some(Algorithm::SlidingLog) => MAX_ENTRIES,
            Some(Algorithm::Concurrency) => MAX_PERMITS,
            _ => MAX_UNITS,
        };
        let limit = self.required("limit", 0, MAX_UNITS, base.map(|base| base.limit))?;
        if limit > most {
            let mut accepted = range(0, most);
            if algorithm == Some(Algorithm::SlidingLog) {
                accepted.push_str(", since the log keeps each; for more, sliding_counter or token_bucket");
            }
            self.mistake("limit", format!("is {limit}"), accepted);
        }
        Some(limit)
    }

    fn burst(
        &mut self,
        algorithm: Option<Algorithm>,
        limit: Option<u64>,
        base: Option<&QuotaSpec>,
    ) -> Option<u64> {
        let default = |limit: u64| if algorithm == Some(Algorithm::LeakyBucket) { 1 } else { limit.max(1) };
        let chosen = base.and_then(|base| base.burst.filter(|burst| *burst != default(base.limit)));
        self.number("burst", 1, MAX_UNITS).or(chosen).or(limit.map(default))
    }

    /// Whether `field` is to be read: it belongs to the algorithm; or the algorithm is unknown and
    /// the field is there, to be judged alone. A field that does not belong to the algorithm is a mistake.
    fn belongs(&mut self, field: &str, algorithm: Option<Algorithm>) -> bool {
        let present = self.field(field).is_some();
        let Some(algorithm) = algorithm else { return present };
        let belongs = match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => ["window_seconds", "burst"].contains(&field),
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingCounter => {
                field == "window_seconds"
            }
            Algorithm::Concurrency => field == "lease_seconds",
            Algorithm::Calendar => ["period", "time_zone"].contains(&field),
        };
        if present && !belongs {
            let algorithm = serde_json::to_value(algorithm).unwrap_or_default();
            self.mistake(field, format!("has no meaning for {algorithm}"), "leave it out");
        }
        belongs
    }

    fn period(&mut self, base: Option<&QuotaSpec>) -> Option<Period> {
        let accepted = "\"day\", \"month\"";
        let base = base.and_then(|base| base.period);
        if self.field("period").is_none() && base.is_none() {
            self.mistake("period", "is missing", accepted);
        }
        self.choice("period", accepted).or(base)
    }

    fn zone(&mut self, base: Option<&QuotaSpec>) -> Option<(String, TimeZone)> {
        let accepted = "an IANA time zone such as \"UTC\" or \"Europe/Berlin\"";
        let base = base.and_then(|base| base.time_zone.as_deref());
        let name = match self.field("time_zone") {
            Some(value) => value.as_str(),
            None => base,
        };
        let zone = name.and_then(|name| Some((name.to_owned(), TimeZone::get(name).ok()?)));
        if zone.is_none() {
            let value = self.field("time_zone").map_or("missing".to_owned(), shown);
            self.mistake("time_zone", format!("is {value}"), accepted);
        }
        zone
    }

    /// The bounds of a bucket, which concern several fields at once: its arithmetic is in
    /// nanoseconds of debt (fault 14).
    fn bounded(&mut self, spec: &QuotaSpec) {
        let (Some(seconds), Some(burst)) = (spec.window_seconds, spec.burst) else { return };
        let most = seconds.saturating_mul(MAX_UNITS_PER_SECOND);
        if spec.limit > most {
            let accepted = format!("up to {most} per {seconds} s: {MAX_UNITS_PER_SECOND} a second");
            return self.mistake("limit", format!("is {}", spec.limit), accepted);
        }
        // The bucket's own burst is 0 if the limit is.
        let Bucket { interval, burst } = Bucket::new(spec.limit, burst, seconds.saturating_mul(SECOND));
        if u128::from(burst) * u128::from(interval) > u128::from(MAX_SPAN) {
            let problem = format!("is {burst}: the whole of it would take over 104 days to come back");
            self.mistake("burst", problem, format!("up to {} at this rate", MAX_SPAN / interval));
        }
    }
}
