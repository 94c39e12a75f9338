//! The last hour of what the console draws, so that a page that opens at night shows the evening.
//!
//! Every ten seconds the metrics page is made, and of it are kept the numbers of a few families: what requests were answered,
//! how long decisions took, what the intake took, what the gateway and the edge did. They are kept as the page has them, sums since
//! the process began, so that whoever reads them makes rates of them as of two readings of the page. Written to no disk: a process
//! that begins anew has no past.
//!
//! Bounds: [`KEPT`] readings, of each [`MAX_SERIES`] numbers: 2 MB at most, in practice less than a quarter of that. What has a
//! series for each listener is kept as one sum, so that hundreds of listeners leave no other series out.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tidegate_admin::Metrics;
use tidegate_admin::api::KeptHistory;
use tidegate_net::clock::wall;
use tokio::time::sleep;

/// How often numbers are kept.
const PERIOD: Duration = Duration::from_secs(10);
/// Readings that are kept: an hour, with both its ends.
const KEPT: usize = 361;
/// Most series; what comes later is left out.
const MAX_SERIES: usize = 512;

/// Families of which every series is kept.
const WHOLE: [&str; 2] = ["tidegate_requests_decided_total", "tidegate_intake_metrics_total"];
/// Families of durations, and what the labels of decisions have in them.
const DURATIONS: [&str; 2] =
    ["tidegate_http_request_duration_seconds_bucket", "tidegate_resp_command_duration_seconds_bucket"];
const DECISIONS: [&str; 5] = [
    "route=\"/api/v1/ratelimit\"",
    "route=\"/v1/decisions\"",
    "route=\"/v1/check\"",
    "RateLimit",
    "throttle\"",
];

/// A family of which sums are kept, and not each series.
#[derive(Debug)]
struct SummedFamily {
    name: &'static str,
    /// Series with this label and value are summed; all of them if it is empty.
    of: &'static str,
    /// The labels by whose values there are several sums. Their values are no text of users.
    by: &'static [&'static str],
}

const SUMMED: [SummedFamily; 5] = [
    SummedFamily {
        name: "tidegate_http_requests_total",
        of: "server=\"gateway\"",
        by: &["server", "status"],
    },
    SummedFamily { name: "tidegate_edge_placed_total", of: "", by: &[] },
    SummedFamily { name: "tidegate_edge_refused_total", of: "", by: &[] },
    SummedFamily { name: "tidegate_edge_failed_attempts_total", of: "", by: &[] },
    SummedFamily { name: "tidegate_edge_bytes_total", of: "", by: &["direction"] },
];

/// The last hour.
#[derive(Debug, Default)]
pub(super) struct PastNumbers {
    /// Known once all that it counts is bound.
    metrics: OnceLock<Arc<Metrics>>,
    kept: Mutex<KeptNumbers>,
}

/// Readings over time.
#[derive(Debug, Default)]
struct KeptNumbers {
    /// Where a series' number is in a reading.
    places: HashMap<String, usize>,
    readings: VecDeque<NumbersAt>,
}

/// The numbers of one moment, as many as there were series then; each was 0 before.
#[derive(Debug)]
struct NumbersAt {
    at_unix_ms: u64,
    numbers: Vec<u64>,
}

impl PastNumbers {
    /// Keeps numbers of this page from now on.
    pub(super) fn of(&self, metrics: &Arc<Metrics>) {
        // Invariant: a process has one page.
        drop(self.metrics.set(Arc::clone(metrics)));
    }

    /// Keeps them, for as long as it is polled.
    pub(super) async fn follow(&self) {
        loop {
            if let Some(metrics) = self.metrics.get() {
                let page = metrics.open_metrics();
                self.kept.lock().add(&page, wall().0 / 1_000_000);
            }
            sleep(PERIOD).await;
        }
    }
}

impl KeptHistory for PastNumbers {
    fn last_hour(&self) -> Value {
        self.kept.lock().to_json()
    }
}

impl KeptNumbers {
    fn add(&mut self, page: &str, at_unix_ms: u64) {
        let mut numbers = vec![0; self.places.len()];
        for (series, number) in page.lines().filter_map(read) {
            let place = match self.places.get(&*series).copied() {
                Some(place) => place,
                None if self.places.len() < MAX_SERIES => {
                    self.places.insert(series.into_owned(), numbers.len());
                    numbers.push(0);
                    numbers.len() - 1
                }
                None => continue,
            };
            numbers[place] += number;
        }
        if self.readings.len() >= KEPT {
            self.readings.pop_front();
        }
        self.readings.push_back(NumbersAt { at_unix_ms, numbers });
    }

    /// The series that have grown at all; the others are 0 at every time.
    fn to_json(&self) -> Value {
        let at: Vec<u64> = self.readings.iter().map(|reading| reading.at_unix_ms).collect();
        let numbers = |place: usize| -> Vec<u64> {
            let of = |reading: &NumbersAt| reading.numbers.get(place).copied().unwrap_or(0);
            self.readings.iter().map(of).collect()
        };
        let mut named: Vec<_> = self.places.iter().map(|(series, place)| (series, *place)).collect();
        named.sort_unstable_by_key(|(_, place)| *place);
        let series: Vec<Value> = named
            .into_iter()
            .map(|(series, place)| (series, numbers(place)))
            .filter(|(_, numbers)| numbers.iter().any(|number| *number > 0))
            .map(|(series, numbers)| json!({ "series": series, "numbers": numbers }))
            .collect();
        json!({ "at_unix_ms": at, "series": series })
    }
}

impl SummedFamily {
    /// The sum that a series is part of; none if it is not summed.
    fn sum(&self, labels: &str) -> Option<Cow<'static, str>> {
        if !labels.contains(self.of) {
            return None;
        }
        let named = |label: &&str| Some(format!("{label}=\"{}\"", value(labels, label)?));
        let by: Vec<String> = self.by.iter().map(named).collect::<Option<_>>()?;
        if by.is_empty() {
            return Some(Cow::Borrowed(self.name));
        }
        Some(Cow::Owned(format!("{}{{{}}}", self.name, by.join(","))))
    }
}

/// The value of a label. A value of another one has no bare quotation mark, so that it is not taken for it.
fn value<'l>(labels: &'l str, label: &str) -> Option<&'l str> {
    let (_, after) = labels.split_once(&format!("{label}=\""))?;
    Some(after.split_once('"')?.0)
}

/// The series and the number of a line that is kept, or the sum that it is part of.
fn read(line: &str) -> Option<(Cow<'_, str>, u64)> {
    let (family, labels) = line.split_once('{')?;
    if let Some(summed) = SUMMED.iter().find(|summed| summed.name == family) {
        let (labels, number) = labels.rsplit_once(' ')?;
        return Some((summed.sum(labels)?, number.parse().ok()?));
    }
    let is_kept = WHOLE.contains(&family)
        || DURATIONS.contains(&family) && DECISIONS.iter().any(|decision| line.contains(*decision));
    if !is_kept {
        return None;
    }
    let (series, number) = line.rsplit_once(' ')?;
    Some((Cow::Borrowed(series), number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: &str = r#"tidegate_requests_decided_total{protocol="http",result="allowed"}"#;
    const DENIED: &str = r#"tidegate_requests_decided_total{protocol="http",result="denied"}"#;

    #[test]
    fn what_the_console_draws_is_kept_for_an_hour_and_nothing_else_is() {
        let bucket = |route: &str| {
            format!(
                r#"tidegate_http_request_duration_seconds_bucket{{le="+Inf",server="api",route="{route}"}}"#
            )
        };
        let (asked, other) = (bucket("/v1/check"), bucket("/v1/policies"));
        let mut kept = KeptNumbers::default();
        for number in 0..KEPT as u64 + 5 {
            let denied = if number < 7 { String::new() } else { format!("{DENIED} 2\n") };
            let page = format!(
                "# TYPE x counter\n{ALLOWED} {number}\n{asked} {number}\n{other} {number}\n\
                 tidegate_decisions_total{{policy=\"a\",result=\"denied\"}} 3\n\
                 tidegate_intake_metrics_total{{protocol=\"json\"}} 0\n{denied}"
            );
            kept.add(&page, 10_000 * number);
        }
        let told = kept.to_json();
        let at = told["at_unix_ms"].as_array().unwrap();
        assert_eq!((at.len(), &at[0], &at[KEPT - 1]), (KEPT, &json!(50_000), &json!(3_650_000)));
        let series = told["series"].as_array().unwrap();
        let names: Vec<&str> = series.iter().map(|it| it["series"].as_str().unwrap()).collect();
        assert_eq!(names, [ALLOWED, asked.as_str(), DENIED]);
        assert_eq!(series[0]["numbers"][0], 5);
        let denied: Vec<u64> =
            series[2]["numbers"].as_array().unwrap()[..3].iter().map(|it| it.as_u64().unwrap()).collect();
        assert_eq!(denied, [0, 0, 2], "it was 0 before there was any");
    }

    #[test]
    fn what_has_a_series_for_each_listener_or_route_is_one_sum_and_leaves_nothing_out() {
        let mut kept = KeptNumbers::default();
        let listeners = (0..MAX_SERIES).map(|port| {
            let listener = format!("listener=\"127.0.0.1:{port}\"");
            format!(
                "tidegate_edge_placed_total{{{listener},by=\"score\"}} 2\n\
                 tidegate_edge_placed_total{{{listener},by=\"affinity\"}} 1\n\
                 tidegate_edge_bytes_total{{{listener},direction=\"to_backend\"}} 5\n\
                 tidegate_edge_bytes_total{{{listener},direction=\"to_client\"}} 7\n"
            )
        });
        let page = listeners.collect::<String>()
            + r#"tidegate_http_requests_total{server="gateway",route="a \" status=\"1xx\"",status="2xx"} 3
tidegate_http_requests_total{server="gateway",route="b",status="2xx"} 4
tidegate_http_requests_total{server="gateway",route="b",status="5xx"} 1
tidegate_http_requests_total{server="api",route="/v1/check",status="2xx"} 9
"# + ALLOWED + " 8\n";
        for at in [0, 10_000] {
            kept.add(&page, at);
        }
        let told = kept.to_json();
        let series = told["series"].as_array().unwrap().iter();
        let numbers: HashMap<&str, &Value> =
            series.map(|it| (it["series"].as_str().unwrap(), &it["numbers"])).collect();
        let many = |each: usize| json!([each * MAX_SERIES, each * MAX_SERIES]);
        let gateway =
            |class: &str| format!(r#"tidegate_http_requests_total{{server="gateway",status="{class}"}}"#);
        let expected = [
            ("tidegate_edge_placed_total".to_owned(), many(3)),
            (r#"tidegate_edge_bytes_total{direction="to_backend"}"#.to_owned(), many(5)),
            (r#"tidegate_edge_bytes_total{direction="to_client"}"#.to_owned(), many(7)),
            (gateway("2xx"), json!([7, 7])),
            (gateway("5xx"), json!([1, 1])),
            (ALLOWED.to_owned(), json!([8, 8])),
        ];
        for (name, sums) in &expected {
            assert_eq!(numbers.get(name.as_str()), Some(&sums), "{name}: {told}");
        }
        assert_eq!(numbers.len(), expected.len(), "{told}");
    }

    #[test]
    fn series_beyond_the_most_are_left_out() {
        let mut kept = KeptNumbers::default();
        let lines: Vec<String> = (0..MAX_SERIES + 9)
            .map(|number| format!("tidegate_intake_metrics_total{{protocol=\"{number}\"}} 1"))
            .collect();
        let page = lines.join("\n");
        kept.add(&page, 0);
        kept.add(&page, 10_000);
        assert_eq!(kept.to_json()["series"].as_array().unwrap().len(), MAX_SERIES);
    }
}
