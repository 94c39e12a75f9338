//! StatsD, as its own clients and Datadog's send it: lines of `name:value|type|@rate|#tag:value,tag`.
//!
//! | type | becomes |
//! |---|---|
//! | `c` | a counter with the tag `temporality="delta"`: the value divided by its sample rate |
//! | `g` | a gauge; `+1` and `-1` change the last value, which the caller remembers |
//! | `ms`, `h`, `d` | a histogram's observation as it is; one that was sampled has the tag `sample_rate` |
//! | `s` | nothing: a set's size needs all of its members, and is counted as left out |
//!
//! Several values after one name (`name:1:2|ms`), timestamps (`|T1795420800`) and containers (`|c:...`) are read, too.
//! Events (`_e{`) and service checks (`_sc|`) are no metrics and are counted. A line that is not acceptable is left out
//! whole, and the others are kept.
//!
//! Follows <https://github.com/statsd/statsd/blob/master/docs/metric_types.md> and Datadog's description of its
//! datagrams, up to version 1.3.

use std::iter::once;

use thiserror::Error;

use super::{Kind, LineWriter, Metric, MetricError};

/// What became of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Values that became lines.
    pub values: usize,
    /// Members of sets.
    pub sets: usize,
    /// Events and service checks.
    pub events: usize,
    /// Lines that were not acceptable.
    pub rejected: usize,
}

/// How a gauge changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GaugeChange {
    /// To a value.
    To(f64),
    /// By a difference.
    By(f64),
}

/// Why a line is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StatsdError {
    /// It is not UTF-8.
    #[error("it is not UTF-8")]
    NotText,
    /// A part is missing or has another form.
    #[error("{0}")]
    Syntax(&'static str),
    /// A difference of a gauge whose value there was no room to remember.
    #[error("the gauge's value is not known")]
    UnknownGauge,
    /// A name, a value or a tag is out of bounds.
    #[error(transparent)]
    Metric(#[from] MetricError),
}

/// Writes a line for each value in `lines`, which line feeds separate. `gauge` is given the name and the tags of each
/// gauge as they were sent, and how it changes, and answers with its value from now on.
pub fn read_metrics(
    lines: &[u8],
    writer: &mut LineWriter,
    gauge: &mut dyn FnMut(&str, &str, GaugeChange) -> Option<f64>,
) -> Counts {
    let mut counts = Counts::default();
    for line in lines.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        if line.starts_with(b"_e{") || line.starts_with(b"_sc|") {
            counts.events += 1;
            continue;
        }
        let (mark, before) = (writer.mark(), counts.clone());
        if read_line(line, writer, gauge, &mut counts).is_err() {
            writer.cut(mark);
            counts = Counts { rejected: before.rejected + 1, ..before };
        }
    }
    counts
}

/// A line, taken apart.
struct Parts<'a> {
    name: &'a str,
    values: &'a str,
    kind: &'a str,
    rate: f64,
    /// The rate as it was sent, unless it is 1.
    sampled: Option<&'a str>,
    tags: &'a str,
    millis: Option<i64>,
}

impl<'a> Parts<'a> {
    fn of(line: &'a str) -> Result<Self, StatsdError> {
        const FORM: StatsdError = StatsdError::Syntax("it is not name:value|type");
        let mut fields = line.split('|');
        let (name, values) = fields.next().and_then(|first| first.split_once(':')).ok_or(FORM)?;
        let kind = fields.next().ok_or(FORM)?;
        let mut parts = Self { name, values, kind, rate: 1.0, sampled: None, tags: "", millis: None };
        for field in fields {
            if let Some(rate) = field.strip_prefix('@') {
                parts.rate =
                    rate.parse::<f64>().ok().filter(|rate| 0.0 < *rate && *rate <= 1.0).ok_or(RATE)?;
                parts.sampled = Some(rate).filter(|_| parts.rate < 1.0);
            } else if let Some(tags) = field.strip_prefix('#') {
                parts.tags = tags;
            } else if let Some(seconds) = field.strip_prefix('T') {
                let seconds: i64 = seconds.parse().map_err(|_| TIME)?;
                parts.millis = Some(seconds.saturating_mul(1_000));
            } else if !field.starts_with("c:") && !field.starts_with("e:") && !field.starts_with("card:") {
                return Err(StatsdError::Syntax("a part is none that is known"));
            }
        }
        Ok(parts)
    }

    /// Names and values; a tag without a value has an empty one.
    fn tags(&self) -> impl Iterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
        let tags = self.tags.split(',').filter(|tag| !tag.is_empty());
        tags.map(|tag| tag.split_once(':').unwrap_or((tag, "")))
    }
}

const RATE: StatsdError = StatsdError::Syntax("the sample rate must be above 0 and at most 1");
const TIME: StatsdError = StatsdError::Syntax("the timestamp must be Unix seconds");
const NUMBER: StatsdError = StatsdError::Syntax("the value is no number");

fn read_line(
    line: &[u8],
    writer: &mut LineWriter,
    gauge: &mut dyn FnMut(&str, &str, GaugeChange) -> Option<f64>,
    counts: &mut Counts,
) -> Result<(), StatsdError> {
    let parts = Parts::of(std::str::from_utf8(line).map_err(|_| StatsdError::NotText)?)?;
    let Parts { name, millis, .. } = parts;
    for text in parts.values.split(':') {
        let number = || text.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or(NUMBER);
        match parts.kind {
            "c" => {
                let tags = parts.tags().chain(once(("temporality", "delta")));
                writer.write(&Metric {
                    name,
                    value: number()? / parts.rate,
                    kind: Kind::Counter,
                    millis,
                    tags,
                })?;
            }
            "g" => {
                let value = number()?;
                let is_difference = text.starts_with(['+', '-']);
                let change = if is_difference { GaugeChange::By(value) } else { GaugeChange::To(value) };
                let value = gauge(name, parts.tags, change).ok_or(StatsdError::UnknownGauge)?;
                writer.write(&Metric { name, value, kind: Kind::Gauge, millis, tags: parts.tags() })?;
            }
            "ms" | "h" | "d" => {
                let sampled = parts.sampled.map(|rate| ("sample_rate", rate));
                let tags = parts.tags().chain(sampled);
                writer.write(&Metric { name, value: number()?, kind: Kind::Histogram, millis, tags })?;
            }
            "s" => {
                counts.sets += 1;
                continue;
            }
            _ => return Err(StatsdError::Syntax("the type must be c, g, ms, h, d or s")),
        }
        counts.values += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn read(text: &str) -> (Vec<Value>, Counts) {
        let mut writer = LineWriter::new("c", 0, usize::MAX);
        let mut gauges: HashMap<String, f64> = HashMap::new();
        let counts = read_metrics(text.as_bytes(), &mut writer, &mut |name, tags, change| {
            let value = gauges.entry(format!("{name} {tags}")).or_default();
            match change {
                GaugeChange::To(to) => *value = to,
                GaugeChange::By(by) => *value += by,
            }
            Some(*value)
        });
        let lines = writer.finish();
        let text = String::from_utf8(lines.bytes).unwrap();
        (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), counts)
    }

    fn line(text: &str) -> Value {
        let (lines, counts) = read(text);
        assert_eq!((lines.len(), counts.rejected), (1, 0), "{text}");
        lines[0].clone()
    }

    #[test]
    fn each_type_becomes_what_the_header_says() {
        for (text, value, kind, tags) in [
            ("hits:3|c", json!(3.0), "counter", json!({"temporality": "delta"})),
            ("hits:1|c|@0.1", json!(10.0), "counter", json!({"temporality": "delta"})),
            (
                "hits:-2|c|#a:b,flag",
                json!(-2.0),
                "counter",
                json!({"a": "b", "flag": "", "temporality": "delta"}),
            ),
            ("load:0.5|g", json!(0.5), "gauge", json!({})),
            ("wait:320|ms", json!(320.0), "histogram", json!({})),
            ("wait:320|ms|@0.5", json!(320.0), "histogram", json!({"sample_rate": "0.5"})),
            ("size:1e3|h|@1|#url:http://x", json!(1000.0), "histogram", json!({"url": "http://x"})),
            ("size:7|d|c:ci-1234|e:it-1", json!(7.0), "histogram", json!({})),
        ] {
            let line = line(text);
            assert_eq!(
                (&line["value"], &line["type"], &line["tags"]),
                (&value, &json!(kind), &tags),
                "{text}"
            );
        }
        assert_eq!(line("a:1|g|T1795420800")["timestamp"], "2026-11-23T08:00:00.000Z");
    }

    #[test]
    fn gauges_change_by_differences_and_values_come_together() {
        let values =
            |text| read(text).0.iter().map(|line| line["value"].as_f64().unwrap()).collect::<Vec<_>>();
        assert_eq!(values("a:10|g\na:+5|g\na:-3|g\nb:-1|g\na:-1|g|#x:y\n"), [10.0, 15.0, 12.0, -1.0, -1.0]);
        assert_eq!(values("wait:1:2:3|ms"), [1.0, 2.0, 3.0]);
        let mut writer = LineWriter::new("c", 0, usize::MAX);
        assert_eq!(read_metrics(b"a:+1|g", &mut writer, &mut |_, _, _| None).rejected, 1);
    }

    #[test]
    fn what_is_no_metric_is_counted_and_what_is_wrong_is_left_out_whole() {
        let (lines, counts) = read("u:a:b|s\n_e{1,1}:a|b\n_sc|a|0\ngood:1|c\r\nwait:1:x|ms\n");
        assert_eq!((lines.len(), counts), (1, Counts { values: 1, sets: 2, events: 2, rejected: 1 }));
        for wrong in [
            "a",
            "a:1",
            "a|c",
            ":1|c",
            "a:|c",
            "a:1|x",
            "a:1|c|@0",
            "a:1|c|@2",
            "a:1|c|@x",
            "a:inf|g",
            "a:NaN|g",
            "a:1|c|?",
            "a:1|g|T",
            "a:1|g|#x:1,x:2",
            "a:1|c|#temporality:delta",
        ] {
            assert_eq!(read(wrong).1, Counts { rejected: 1, ..Counts::default() }, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_counts_are_those_of_the_lines(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut writer = LineWriter::new("c", 0, usize::MAX);
            let counts = read_metrics(&bytes, &mut writer, &mut |_, _, _| Some(0.0));
            prop_assert_eq!(writer.count(), counts.values);
        }
    }
}
