//! Questions about requests that were counted, and their answers as JSON and as CSV.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};
use tidegate_algorithms::time::Wall;

use super::{Analytics, Counted, Labels, Span, Step, Tally};

/// Most rows of an answer.
const MAX_ROWS: usize = 10_000;

const PARAMETERS: &str = "by, step, from, to, route, key, format, each once";

/// What requests are told apart by in an answer, in the order of its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Route,
    Key,
    Upstream,
    Server,
    Status,
}

const BY: [(&str, By); 5] = [
    ("route", By::Route),
    ("key", By::Key),
    ("upstream", By::Upstream),
    ("server", By::Server),
    ("status", By::Status),
];

/// The numbers of a row.
const NUMBERS: [&str; 10] = [
    "requests",
    "succeeded",
    "rate_limited",
    "client_errors",
    "failed",
    "bytes",
    "mean_ms",
    "p50_ms",
    "p95_ms",
    "p99_ms",
];

/// A question about requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnalyticsQuery {
    by: Vec<By>,
    /// Rows for each of them; `None`: one for all the time.
    step: Option<Step>,
    /// Seconds since 1970, the first that counts and the first that does not.
    from: u64,
    to: u64,
    route: Option<String>,
    key: Option<String>,
    /// Whether the answer is CSV.
    pub wants_csv: bool,
}

/// What is wrong with a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryMistake {
    /// The parameter.
    pub parameter: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub accepted: &'static str,
}

impl AnalyticsQuery {
    /// Reads the parameters of a query; without `from` it is about the last hour.
    ///
    /// # Errors
    /// At the first parameter that is wrong, not known or there twice.
    pub fn read(parameters: &[(String, String)], now: Wall) -> Result<Self, QueryMistake> {
        let now = now.0 / 1_000_000_000;
        let (from, to) = (now.saturating_sub(3_600), now + 1);
        let mut query =
            Self { by: Vec::new(), step: None, from, to, route: None, key: None, wants_csv: false };
        for (index, (name, text)) in parameters.iter().enumerate() {
            let wrong = |accepted| QueryMistake {
                parameter: name.clone(),
                problem: format!("is {text:?}"),
                accepted,
            };
            if parameters[..index].iter().any(|(other, _)| other == name) {
                return Err(QueryMistake { problem: "is there twice".to_owned(), ..wrong(PARAMETERS) });
            }
            let time = || second(text).ok_or_else(|| wrong("a date, or a time as in 2026-11-23T08:00:00Z"));
            match name.as_str() {
                "by" => {
                    let words = text.split(',').filter(|word| !word.is_empty());
                    let known = |word| BY.iter().find(|(known, _)| *known == word).map(|(_, by)| *by);
                    let by: Option<Vec<By>> = words.map(known).collect();
                    query.by = by.ok_or_else(|| wrong("some of route,key,upstream,server,status"))?;
                }
                "step" => {
                    query.step = Some(match text.as_str() {
                        "minute" => Step::Minute,
                        "hour" => Step::Hour,
                        "day" => Step::Day,
                        _ => return Err(wrong("minute, hour, day")),
                    });
                }
                "from" => query.from = time()?,
                "to" => query.to = time()?,
                "route" => query.route = Some(text.clone()),
                "key" => query.key = Some(text.clone()),
                "format" => {
                    query.wants_csv = match text.as_str() {
                        "json" => false,
                        "csv" => true,
                        _ => return Err(wrong("json, csv")),
                    };
                }
                _ => return Err(QueryMistake { problem: "is not known".to_owned(), ..wrong(PARAMETERS) }),
            }
        }
        Ok(query)
    }

    fn includes(&self, labels: &Labels) -> bool {
        let fits = |wanted: &Option<String>, is: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| is == Some(wanted))
        };
        fits(&self.route, labels.route.as_deref()) && fits(&self.key, labels.key.as_deref())
    }

    /// What `labels` are in the answer. `others` are that in each column but the status.
    fn columns(&self, labels: &Labels) -> Vec<String> {
        let text = |by: &By| match by {
            By::Status => labels.status.to_string(),
            _ if labels.is_other => "others".to_owned(),
            By::Route => labels.route.as_deref().unwrap_or_default().to_owned(),
            By::Key => labels.key.as_deref().unwrap_or_default().to_owned(),
            By::Upstream => labels.server.as_ref().map(|(name, _)| name.to_string()).unwrap_or_default(),
            By::Server => labels.server.as_ref().map(|(_, target)| target.to_string()).unwrap_or_default(),
        };
        self.by.iter().map(text).collect()
    }
}

/// The second of a date or of a time.
fn second(text: &str) -> Option<u64> {
    let at = match text.parse::<Date>() {
        Ok(date) if !text.contains(['T', 't', ' ']) => {
            date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second()
        }
        _ => text.parse::<Timestamp>().ok()?.as_second(),
    };
    u64::try_from(at).ok()
}

/// A row: requests by what became of them, and their tally.
#[derive(Debug, Default)]
struct Row {
    all: Tally,
    succeeded: u64,
    rate_limited: u64,
    client_errors: u64,
    failed: u64,
}

impl Row {
    fn add(&mut self, status: u16, tally: &Tally) {
        let count = match status {
            429 => &mut self.rate_limited,
            400..=499 => &mut self.client_errors,
            500.. => &mut self.failed,
            _ => &mut self.succeeded,
        };
        *count += tally.requests;
        self.all.merge(tally);
    }

    /// By [`NUMBERS`].
    fn numbers(&self) -> [Value; 10] {
        let ms = |micros: u64| json!(micros as f64 / 1_000.0);
        let Tally { requests, bytes, micros, latencies } = &self.all;
        [
            json!(requests),
            json!(self.succeeded),
            json!(self.rate_limited),
            json!(self.client_errors),
            json!(self.failed),
            json!(bytes),
            ms(micros / requests.max(&1)),
            ms(latencies.quantile(0.5)),
            ms(latencies.quantile(0.95)),
            ms(latencies.quantile(0.99)),
        ]
    }
}

type Rows = BTreeMap<(Option<u64>, Vec<String>), Row>;

impl Counted {
    /// The finest spans that reach back to `from`; hours and days with the minute under way.
    fn spans(&self, step: Step) -> impl Iterator<Item = (u64, &Span)> {
        let place = Step::ALL.iter().position(|known| *known == step).unwrap_or_default();
        let under_way = self.spans[0].back().filter(|_| step != Step::Minute);
        self.spans[place].iter().chain(under_way).map(move |span| (step.begin(span.begin), &**span))
    }

    fn finest(&self, from: u64) -> Step {
        let reaches = |step: &&Step| {
            let is_kept = |place: usize| self.spans[place].len() < step.kept();
            let place = Step::ALL.iter().position(|known| known == *step).unwrap_or_default();
            is_kept(place) || self.spans[place].front().is_some_and(|first| first.begin <= from)
        };
        Step::ALL.iter().find(reaches).copied().unwrap_or(Step::Day)
    }
}

impl Analytics {
    fn rows(&self, query: &AnalyticsQuery) -> (Rows, Step, usize) {
        // A copy, so that requests do not wait for the answer.
        let counted = self.counted().clone();
        let step = query.step.unwrap_or_else(|| counted.finest(query.from));
        let mut rows = Rows::new();
        let mut left_out = 0;
        // A span counts that is at least in part within the times.
        let is_asked_for = |begin: u64| begin + step.seconds() > query.from && begin < query.to;
        for (begin, span) in counted.spans(step).filter(|(begin, _)| is_asked_for(*begin)) {
            for (labels, tally) in span.series.iter().filter(|(labels, _)| query.includes(labels)) {
                let key = (query.step.map(|_| begin), query.columns(labels));
                if rows.len() >= MAX_ROWS && !rows.contains_key(&key) {
                    left_out += 1;
                    continue;
                }
                rows.entry(key).or_default().add(labels.status, tally);
            }
        }
        (rows, step, left_out)
    }

    /// The names of an answer's columns.
    fn columns(query: &AnalyticsQuery) -> Vec<&'static str> {
        let of_labels = BY.iter().filter(|(_, by)| query.by.contains(by));
        let of_labels = of_labels.map(|(name, _)| *name);
        query.step.map(|_| "begin").into_iter().chain(of_labels).chain(NUMBERS).collect()
    }

    /// The answer to `query`.
    #[must_use]
    pub fn json(&self, query: &AnalyticsQuery) -> Value {
        let query = &in_order(query);
        let (rows, step, left_out) = self.rows(query);
        let columns = Self::columns(query);
        let row = |cells: Vec<Value>| -> Value {
            let named = columns.iter().map(|name| (*name).to_owned()).zip(cells);
            Value::Object(named.collect::<Map<String, Value>>())
        };
        let rows: Vec<Value> = rows.iter().map(|(key, counts)| row(cells(key, counts))).collect();
        let resolution = match step {
            Step::Minute => "minute",
            Step::Hour => "hour",
            Step::Day => "day",
        };
        json!({
            "from": time(query.from),
            "to": time(query.to),
            "resolution": resolution,
            "rows": rows,
            "series_left_out": left_out,
        })
    }

    /// The same as CSV (RFC 4180).
    #[must_use]
    pub fn csv(&self, query: &AnalyticsQuery) -> String {
        let query = &in_order(query);
        let (rows, ..) = self.rows(query);
        let mut text = Self::columns(query).join(",");
        text.push_str("\r\n");
        for (key, counts) in &rows {
            for (index, cell) in cells(key, counts).iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                match cell {
                    Value::String(cell) => quoted(cell, &mut text),
                    // Writing to a string never fails.
                    number => drop(write!(text, "{number}")),
                }
            }
            text.push_str("\r\n");
        }
        text
    }
}

/// The question with its labels in the order of the columns, each once.
fn in_order(query: &AnalyticsQuery) -> AnalyticsQuery {
    let by = BY.iter().map(|(_, by)| *by).filter(|by| query.by.contains(by)).collect();
    AnalyticsQuery { by, ..query.clone() }
}

fn cells((begin, labels): &(Option<u64>, Vec<String>), counts: &Row) -> Vec<Value> {
    let begin = begin.map(|begin| Value::String(time(begin)));
    let labels = labels.iter().map(|label| Value::String(label.clone()));
    begin.into_iter().chain(labels).chain(counts.numbers()).collect()
}

fn time(second: u64) -> String {
    let at = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
    at.map(|at| at.to_string()).unwrap_or_default()
}

/// A cell of text. One that a spreadsheet would take for a formula is kept from being one.
fn quoted(cell: &str, text: &mut String) {
    let is_formula = cell.starts_with(['=', '+', '-', '@']);
    if !is_formula && !cell.contains([',', '"', '\r', '\n']) {
        text.push_str(cell);
        return;
    }
    text.push('"');
    if is_formula {
        text.push('\'');
    }
    text.push_str(&cell.replace('"', "\"\""));
    text.push('"');
}
