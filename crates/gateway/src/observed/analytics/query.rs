//! Questions about requests that were counted, and their answers as JSON and as CSV.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};
use tidegate_algorithms::time::Wall;
use tidegate_control::{Control, Error, Period, Span, Sums};

use super::labels::LabelNames;
use super::latency::quantile;
use super::{Analytics, Unstored, second as whole_second};

/// Most rows of an answer.
const MAX_ROWS: usize = 10_000;

const PARAMETERS: &str = "by, step, from, to, route, key, format, each once";

/// What requests are told apart by in an answer, in the order of its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupBy {
    Route,
    Key,
    Upstream,
    Server,
    Status,
}

const BY: [(&str, GroupBy); 5] = [
    ("route", GroupBy::Route),
    ("key", GroupBy::Key),
    ("upstream", GroupBy::Upstream),
    ("server", GroupBy::Server),
    ("status", GroupBy::Status),
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
    by: Vec<GroupBy>,
    /// How long the spans are that are summed up.
    span: Span,
    /// Rows for each of them, or one for all the time.
    has_steps: bool,
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
        let now = whole_second(now);
        let (from, to) = (now.saturating_sub(3_600), now + 1);
        let (by, span) = (Vec::new(), Span::Minute);
        let mut query =
            Self { by, span, has_steps: false, from, to, route: None, key: None, wants_csv: false };
        for (index, (name, text)) in parameters.iter().enumerate() {
            let wrong = |accepted| QueryMistake {
                parameter: name.clone(),
                problem: format!("is {text:?}"),
                accepted,
            };
            if parameters[..index].iter().any(|(other, _)| other == name) {
                return Err(QueryMistake { problem: "is there twice".to_owned(), ..wrong(PARAMETERS) });
            }
            let end = || end(text).ok_or_else(|| wrong("a date, or a time as in 2026-11-23T08:00:00Z"));
            let time = || second(text).ok_or_else(|| wrong("a date, or a time as in 2026-11-23T08:00:00Z"));
            match name.as_str() {
                "by" => {
                    let words = text.split(',').filter(|word| !word.is_empty());
                    let known = |word| BY.iter().find(|(known, _)| *known == word).map(|(_, by)| *by);
                    let by: Option<Vec<GroupBy>> = words.map(known).collect();
                    query.by = by.ok_or_else(|| wrong("some of route,key,upstream,server,status"))?;
                }
                "step" => {
                    query.has_steps = true;
                    let span = Span::ALL.into_iter().find(|span| word(*span) == text);
                    query.span = span.ok_or_else(|| wrong("minute, hour, day"))?;
                }
                "from" => query.from = time()?,
                "to" => query.to = end()?,
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
        let to = parameters.iter().find(|(name, _)| name == "to");
        if let Some((parameter, text)) = to.filter(|_| query.to < query.from) {
            let problem = format!("is {text:?}, which is before from");
            let accepted = "a time from that of from on, which is an hour ago if absent";
            return Err(QueryMistake { parameter: parameter.clone(), problem, accepted });
        }
        if !query.has_steps {
            // The shortest that reach back so far.
            let reaches = |span: &Span| span.oldest(now) <= query.from;
            query.span = Span::ALL.into_iter().find(reaches).unwrap_or(Span::Day);
        }
        Ok(query)
    }

    fn includes(&self, names: &LabelNames) -> bool {
        let fits = |wanted: &Option<String>, is: &Option<String>| wanted.is_none() || wanted == is;
        fits(&self.route, &names.route) && fits(&self.key, &names.key)
    }

    /// What `names` are in the answer. `others` are that in each column but the status.
    fn columns(&self, names: &LabelNames) -> Vec<String> {
        let text = |by: &GroupBy| {
            let name = match by {
                GroupBy::Status => return names.status.to_string(),
                _ if names.is_other => return "others".to_owned(),
                GroupBy::Route => &names.route,
                GroupBy::Key => &names.key,
                GroupBy::Upstream => &names.upstream,
                GroupBy::Server => &names.server,
            };
            name.clone().unwrap_or_default()
        };
        self.by.iter().map(text).collect()
    }

    fn period(&self) -> Period {
        Period { span: self.span, from: self.from, to: self.to }
    }
}

/// A date without a time of day.
fn date(text: &str) -> Option<Date> {
    text.parse().ok().filter(|_| !text.contains(['T', 't', ' ']))
}

/// The first second of a date, or that of a time.
fn second(text: &str) -> Option<u64> {
    let at = match date(text) {
        Some(date) => date.to_zoned(TimeZone::UTC).ok()?.timestamp(),
        None => text.parse().ok()?,
    };
    u64::try_from(at.as_second()).ok()
}

/// The first second after a date, or that of a time.
fn end(text: &str) -> Option<u64> {
    match date(text) {
        Some(date) => second(&date.tomorrow().ok()?.to_string()),
        None => second(text),
    }
}

/// What a span is called.
fn word(span: Span) -> &'static str {
    match span {
        Span::Minute => "minute",
        Span::Hour => "hour",
        Span::Day => "day",
    }
}

/// A row: requests by what became of them, and their sums.
#[derive(Debug, Default)]
struct Row {
    all: Sums,
    succeeded: u64,
    rate_limited: u64,
    client_errors: u64,
    failed: u64,
}

impl Row {
    fn add(&mut self, status: u16, sums: &Sums) {
        let count = match status {
            429 => &mut self.rate_limited,
            400..=499 => &mut self.client_errors,
            500.. => &mut self.failed,
            _ => &mut self.succeeded,
        };
        *count += sums.requests;
        self.all.merge(sums);
    }

    /// By [`NUMBERS`].
    fn numbers(&self) -> [Value; 10] {
        let ms = |micros: u64| json!(micros as f64 / 1_000.0);
        let Sums { requests, bytes, micros, .. } = &self.all;
        [
            json!(requests),
            json!(self.succeeded),
            json!(self.rate_limited),
            json!(self.client_errors),
            json!(self.failed),
            json!(bytes),
            ms(micros / requests.max(&1)),
            ms(quantile(&self.all, 0.5)),
            ms(quantile(&self.all, 0.95)),
            ms(quantile(&self.all, 0.99)),
        ]
    }
}

/// What an answer is made of.
#[derive(Debug, Default)]
struct AnalyticsRows {
    /// By the beginning of a span, if they are told apart by it, and by labels.
    rows: BTreeMap<(Option<u64>, Vec<String>), Row>,
    /// All of them together, with those that are left out.
    total: Row,
    left_out: usize,
}

impl AnalyticsRows {
    /// Adds the requests of a span that begins then.
    fn add(&mut self, query: &AnalyticsQuery, begin: u64, names: &LabelNames, sums: &Sums) {
        if !query.includes(names) {
            return;
        }
        self.total.add(names.status, sums);
        let key = (query.has_steps.then_some(begin), query.columns(names));
        if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        self.rows.entry(key).or_default().add(names.status, sums);
    }

    /// Adds what is not stored.
    fn add_unstored(&mut self, query: &AnalyticsQuery, batches: &[Arc<Unstored>], stored: u64) {
        for batch in batches.iter().filter(|batch| batch.number > stored) {
            let begin = query.span.begin(batch.minute);
            if query.period().has(begin) {
                for (labels, sums) in &batch.series {
                    self.add(query, begin, &labels.names(), sums);
                }
            }
        }
    }
}

/// What there is to say to a question.
#[derive(Debug)]
pub struct AnalyticsAnswer {
    query: AnalyticsQuery,
    rows: AnalyticsRows,
    /// Why what is stored is not in it.
    pub lacks_stored: Option<Error>,
}

impl Analytics {
    /// The answer to `query`: what is stored of all nodes, and what this one has not stored yet. Without the store
    /// there is only the latter. Blocks.
    #[must_use]
    pub fn answer(&self, control: &Control, query: &AnalyticsQuery) -> AnalyticsAnswer {
        let query = in_order(query);
        // Before the store is read: what is stored meanwhile is known by its number.
        let batches: Vec<_> = self.collected().batches.iter().cloned().collect();
        let read = control.read_counts(
            query.period(),
            self.writer,
            |rows: &mut AnalyticsRows, begin, names, sums| {
                rows.add(&query, begin, &LabelNames::read(names), sums);
            },
        );
        let (mut rows, stored, lacks_stored) = match read {
            Ok((rows, stored)) => (rows, stored, None),
            Err(error) => (AnalyticsRows::default(), 0, Some(error)),
        };
        rows.add_unstored(&query, &batches, stored);
        AnalyticsAnswer { query, rows, lacks_stored }
    }
}

impl AnalyticsAnswer {
    /// The names of its columns.
    fn columns(&self) -> Vec<&'static str> {
        let of_labels = BY.iter().filter(|(_, by)| self.query.by.contains(by));
        let of_labels = of_labels.map(|(name, _)| *name);
        self.query.has_steps.then_some("begin").into_iter().chain(of_labels).chain(NUMBERS).collect()
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let columns = self.columns();
        let row = |cells: Vec<Value>| -> Value {
            let named = columns.iter().map(|name| (*name).to_owned()).zip(cells);
            Value::Object(named.collect::<Map<String, Value>>())
        };
        let rows = self.rows.rows.iter();
        let rows: Vec<Value> =
            rows.map(|((begin, labels), counts)| row(cells(*begin, labels, counts))).collect();
        let total = NUMBERS.iter().map(|name| (*name).to_owned()).zip(self.rows.total.numbers());
        json!({
            "total": Value::Object(total.collect()),
            "from": time(self.query.from),
            "to": time(self.query.to),
            "resolution": word(self.query.span),
            "complete": self.lacks_stored.is_none(),
            "rows": rows,
            "series_left_out": self.rows.left_out,
        })
    }

    /// The same as CSV (RFC 4180).
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = self.columns().join(",");
        text.push_str("\r\n");
        for ((begin, labels), counts) in &self.rows.rows {
            for (index, cell) in cells(*begin, labels, counts).iter().enumerate() {
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

fn cells(begin: Option<u64>, labels: &[String], counts: &Row) -> Vec<Value> {
    let begin = begin.map(|begin| Value::String(time(begin)));
    let labels = labels.iter().map(|label| Value::String(label.clone()));
    begin.into_iter().chain(labels).chain(counts.numbers()).collect()
}

fn time(second: u64) -> String {
    let at = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok());
    at.map(|at| at.to_string()).unwrap_or_default()
}

/// A cell of text. A cell that a spreadsheet would take for a formula is made text.
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
