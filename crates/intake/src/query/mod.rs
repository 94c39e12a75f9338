//! Asking what arrived: the lines of one name, taken together step by step.
//!
//! ```text
//!   GET /v1/intake/query?name=cpu.usage&last=5m&step=10s&agg=max&tags=host=a
//!       name     the metric, exactly
//!       last     from so long ago until now; or `start` and `end`: Unix milliseconds or RFC 3339
//!       step     one point for each; a sixtieth of the time if absent
//!       agg      min, max, avg (unless said otherwise), sum, count, rate, p50, p90, p95, p99, p99.9
//!       tags     name=value that a line must have; once for each tag
//! ```
//!
//! It answers "did it arrive, and what does it look like". Series of one name that differ in their tags are
//! taken together, but for `rate`, which adds up the growth of each; a line with the tag `temporality="delta"` is
//! growth itself. For a query language, forward the lines to a database that has one.
//!
//! | bound | value | reached |
//! |---|---|---|
//! | points | 11,000 | 400 |
//! | time | 5 seconds | what was found until then, `complete` false |
//! | bytes of lines read | 4 GiB | the same |
//! | values kept for percentiles | 1,000,000 | the same |
//! | series under `rate` | 10,000 | the same |
//! | points under `rate` that wait for late ones | 1,000,000 | all but the newest 16 of each series are settled |

mod series;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts as Head;
use http::{HeaderName, HeaderValue, Response, header};
use serde_json::json;
use tidegate_log::{Log, ReadError, Scan, Scanned};
use tidegate_net::clock::monotonic;
use tidegate_net::http::{Body, Peer};
use tidegate_wire::metrics::rfc3339;

use self::series::{Aggregate, Series};
use crate::access::Right;
use crate::batch;
use crate::intake::{Intake, millis};
use crate::readers::Turn;
use crate::refusal::Refusal;

/// Most points of a reply.
const MAX_POINTS: i64 = 11_000;
/// Points of a reply, unless the request says otherwise.
const POINTS: i64 = 60;
/// What is asked for, unless the request says otherwise.
const HOUR: i64 = 3_600_000;
/// Longest time that a query reads.
const DEADLINE: Duration = Duration::from_secs(5);
/// Most bytes of lines that a query reads.
const MAX_BYTES: u64 = 4 << 30;

const COMPLETE: HeaderName = HeaderName::from_static("tidegate-complete");

/// What a request asks for.
#[derive(Clone, Debug, PartialEq)]
struct QueryRequest {
    name: String,
    start: i64,
    end: i64,
    step: i64,
    aggregate: Aggregate,
    tags: Vec<(String, String)>,
}

impl QueryRequest {
    fn parse(query: &str, now: i64) -> Result<Self, Refusal> {
        let (mut name, mut start, mut end, mut last, mut step) = (None, None, None, None, None);
        let mut aggregate = Aggregate::Avg;
        let mut tags = Vec::new();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let wrong = |accepted| Refusal::Malformed(format!("the parameter {key} must be {accepted}"));
            match &*key {
                "name" => name = Some(value.into_owned()),
                "start" => start = Some(time(&value).ok_or_else(|| wrong(TIME))?),
                "end" => end = Some(time(&value).ok_or_else(|| wrong(TIME))?),
                "last" => last = Some(span(&value).ok_or_else(|| wrong(SPAN))?),
                "step" => step = Some(span(&value).ok_or_else(|| wrong(SPAN))?),
                "agg" => aggregate = Aggregate::of_word(&value).ok_or_else(|| wrong(Aggregate::WORDS))?,
                "tags" => {
                    let (name, wanted) = value.split_once('=').ok_or_else(|| wrong("name=value"))?;
                    tags.push((name.to_owned(), wanted.to_owned()));
                }
                _ => return Err(Refusal::Malformed(format!("there is no parameter {key}"))),
            }
        }
        let malformed = |reason: &str| Refusal::Malformed(reason.to_owned());
        let name = name.ok_or_else(|| malformed("name must be given"))?;
        if last.is_some() && (start.is_some() || end.is_some()) {
            return Err(malformed("last goes without start and end"));
        }
        // A line of this very millisecond is part of "until now".
        let end = end.unwrap_or(now + 1);
        let start = start.unwrap_or(end - last.unwrap_or(HOUR));
        let length = end.checked_sub(start).filter(|length| *length > 0);
        let length = length.ok_or_else(|| malformed("start must be before end"))?;
        let step = step.unwrap_or((length / POINTS).max(1_000));
        if length / step >= MAX_POINTS {
            return Err(malformed("more than 11000 points: a longer step, or less time"));
        }
        Ok(Self { name, start, end, step, aggregate, tags })
    }
}

const TIME: &str = "Unix milliseconds or RFC 3339, as in 2026-11-23T08:00:00Z";
const SPAN: &str = "a number with its unit: ms, s, m, h or d, as in 5m";

fn time(text: &str) -> Option<i64> {
    let millis = text.parse().ok().or_else(|| rfc3339::parse(text))?;
    (rfc3339::FIRST..=rfc3339::LAST).contains(&millis).then_some(millis)
}

/// Milliseconds in a text as `90s`; at least 1.
fn span(text: &str) -> Option<i64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => HOUR,
        "d" => 24 * HOUR,
        _ => return None,
    };
    let millis = text[..digits].parse::<i64>().ok()?.checked_mul(unit)?;
    (1..=rfc3339::LAST).contains(&millis).then_some(millis)
}

/// What was found.
struct QueryResult {
    question: QueryRequest,
    points: Vec<(i64, f64)>,
    scanned: Scanned,
    complete: bool,
}

impl Intake {
    /// Answers with points, as JSON or, if it is asked for, CSV.
    pub(crate) async fn query(self: &Arc<Self>, head: &Head, peer: &Peer) -> Result<Response<Body>, Refusal> {
        self.admit(head, peer, Right::Read)?;
        let question = QueryRequest::parse(head.uri.query().unwrap_or_default(), millis())?;
        let log = Arc::clone(self.log());
        let answer = self.on_a_thread(Turn::Query, move || answer(&log, question)).await??;
        let accepted = head.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let wants_csv = accepted.flat_map(|value| value.split([',', ';'])).any(|it| it.trim() == "text/csv");
        let mut response = if wants_csv { csv(&answer) } else { batch::json(object(&answer).into_bytes()) };
        let complete = HeaderValue::from_static(if answer.complete { "true" } else { "false" });
        response.headers_mut().insert(COMPLETE, complete);
        Ok(response)
    }
}

fn answer(log: &Log, question: QueryRequest) -> Result<QueryResult, ReadError> {
    let QueryRequest { start, end, step, aggregate, .. } = question;
    let mut series = Series::new(aggregate, start, step, end);
    let scan = Scan {
        name: &question.name,
        start_ms: start,
        end_ms: end,
        max_bytes: MAX_BYTES,
        deadline: monotonic() + DEADLINE,
    };
    let scanned = log.scan(&scan, |line, described| {
        if series.add(line, described.ms, &question.tags) {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    let complete = scanned.complete && scanned.blocks_damaged == 0;
    Ok(QueryResult { points: series.points(), question, scanned, complete })
}

fn object(answer: &QueryResult) -> String {
    let QueryResult { question, points, scanned, complete } = answer;
    json!({
        "name": question.name,
        "agg": question.aggregate.word(),
        "start": question.start,
        "end": question.end,
        "step": question.step,
        "points": points,
        "lines": scanned.lines,
        "bytes_read": scanned.bytes,
        "complete": complete,
    })
    .to_string()
}

fn csv(answer: &QueryResult) -> Response<Body> {
    let mut text = "timestamp,value\r\n".to_owned();
    for (at, value) in &answer.points {
        let time = rfc3339::format(*at);
        let time = time.as_ref().and_then(|time| std::str::from_utf8(time).ok()).unwrap_or_default();
        text.push_str(&format!("{time},{value}\r\n"));
    }
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_420_800_000;

    fn parsed(query: &str) -> QueryRequest {
        QueryRequest::parse(query, NOW).unwrap()
    }

    #[test]
    fn a_question_says_what_it_leaves_out() {
        let hour = parsed("name=cpu.usage");
        assert_eq!((hour.start, hour.end, hour.step), (NOW + 1 - HOUR, NOW + 1, 60_000));
        assert_eq!(hour.aggregate, Aggregate::Avg);
        let asked =
            parsed("name=a&start=2026-11-23T08:00:00Z&end=1795420860000&step=10s&agg=p99.9&tags=host=a%3Db");
        assert_eq!((asked.start, asked.end, asked.step), (NOW, NOW + 60_000, 10_000));
        assert_eq!(
            (asked.aggregate.word(), &*asked.tags),
            ("p99.9", &[("host".to_owned(), "a=b".to_owned())][..])
        );
        assert_eq!(parsed("name=a&last=5m").step, 5_000);
    }

    #[test]
    fn a_question_that_cannot_be_answered_is_refused_by_name() {
        for (query, reason) in [
            ("", "name must be given"),
            ("name=a&last=5", "last must be"),
            ("name=a&last=0s", "last must be"),
            ("name=a&last=9999999999d", "last must be"),
            ("name=a&agg=median", "agg must be"),
            ("name=a&tags=host", "tags must be"),
            ("name=a&start=5&end=5", "start must be before end"),
            ("name=a&last=5m&end=5", "last goes without"),
            ("name=a&last=1d&step=1ms", "points"),
            ("name=a&start=9223372036854775807", "start must be"),
            ("name=a&nam=b", "no parameter nam"),
        ] {
            let refused = QueryRequest::parse(query, NOW).unwrap_err().to_string();
            assert!(refused.contains(reason), "{query}: {refused}");
        }
    }
}
