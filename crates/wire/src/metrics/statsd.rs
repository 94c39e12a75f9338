//! StatsD, as its own clients and Datadog's send it: lines of `name:value|type|@rate|#tag:value,tag`.
//!
//! | type | becomes |
//! |---|---|
//! | `c` | a counter with the tag `temporality="delta"`: the value divided by its sample rate |
//! | `g` | a gauge; `+1` and `-1` change the last value, which the caller remembers |
//! | `ms`, `h`, `d` | a histogram's observation as it is; one that was sampled has the tag `sample_rate` |
//! | `s` | nothing: a set's size needs all of its members, and is counted as left out |
//!
//! Several values after one name (`name:1:2|ms`), timestamps (`|T1795420800`), containers (`|c:...`), external data (`|e:...`)
//! and cardinalities (`|card:...`) are read, too. Tags also come in the name, as Influx (`name,tag=value`) and Graphite
//! (`name;tag=value`) have them.
//!
//! | found | is |
//! |---|---|
//! | a tag of several values (`#x:1,x:2`), which Datadog allows | one tag, its values in order: `x="1,2"` |
//! | the same tag and value again | one |
//! | a tag called as one of ours (`temporality`, `sample_rate`) | `exported_temporality`, as Prometheus renames such labels |
//! | a part that begins with a letter and is not known, which a later version may have | passed over, and counted |
//! | any other part, and a tag without a name | a line that is not acceptable |
//!
//! Events (`_e{`) and service checks (`_sc|`) are no metrics and are counted. A line that is not acceptable is left out
//! whole, and the others are kept.
//!
//! Follows <https://github.com/statsd/statsd/blob/master/docs/metric_types.md> and Datadog's description of its
//! datagrams, up to version 1.5.

mod tags;

use thiserror::Error;

use super::{Kind, LineWriter, Metric, MetricError, Number};
use tags::StatsdTags;

/// What became of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatsdCounts {
    /// Values that became lines.
    pub values: usize,
    /// Members of sets.
    pub sets: usize,
    /// Events and service checks.
    pub events: usize,
    /// Parts of lines that no version known here has.
    pub unknown_parts: usize,
    /// Lines that were not acceptable.
    pub rejected: usize,
    /// Why the first of these was not.
    pub error: Option<StatsdError>,
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

/// Writes a line for each value in `lines`, which line feeds separate. `gauge` is given the name of each gauge, its tags as
/// one text that is the same for any order of them, and how it changes, and answers with its value from now on.
pub fn read_metrics(
    lines: &[u8],
    writer: &mut LineWriter,
    gauge: &mut dyn FnMut(&str, &str, GaugeChange) -> Option<f64>,
) -> StatsdCounts {
    let mut counts = StatsdCounts::default();
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
        if let Err(error) = read_line(line, writer, gauge, &mut counts) {
            writer.cut(mark);
            counts =
                StatsdCounts { rejected: before.rejected + 1, error: before.error.or(Some(error)), ..before };
        }
    }
    counts
}

/// A line, taken apart.
struct StatsdParts<'a> {
    name: &'a str,
    values: &'a str,
    kind: &'a str,
    rate: f64,
    /// The rate as it was sent, unless it is 1.
    sampled: Option<&'a str>,
    tags: StatsdTags<'a>,
    millis: Option<i64>,
}

impl<'a> StatsdParts<'a> {
    fn of(line: &'a str, counts: &mut StatsdCounts) -> Result<Self, StatsdError> {
        const FORM: StatsdError = StatsdError::Syntax("it is not name:value|type");
        let mut fields = line.split('|');
        let (name, values) = fields.next().and_then(|first| first.split_once(':')).ok_or(FORM)?;
        let kind = fields.next().ok_or(FORM)?;
        let mut tags = StatsdTags::default();
        let name = tags.take_from_name(name)?;
        let mut parts = Self { name, values, kind, rate: 1.0, sampled: None, tags, millis: None };
        for field in fields {
            parts.read(field, counts)?;
        }
        parts.tags.check_names()?;
        let own = match kind {
            "c" => Some(("temporality", "delta")),
            "ms" | "h" | "d" => parts.sampled.map(|rate| ("sample_rate", rate)),
            _ => None,
        };
        if let Some((name, value)) = own {
            parts.tags.put_own(name, value);
        }
        Ok(parts)
    }

    fn read(&mut self, field: &'a str, counts: &mut StatsdCounts) -> Result<(), StatsdError> {
        if let Some(rate) = field.strip_prefix('@') {
            self.rate = rate.parse::<f64>().ok().filter(|rate| 0.0 < *rate && *rate <= 1.0).ok_or(RATE)?;
            self.sampled = Some(rate).filter(|_| self.rate < 1.0);
        } else if let Some(tags) = field.strip_prefix('#') {
            for tag in tags.split(',').filter(|tag| !tag.is_empty()) {
                // A tag without a value has an empty one.
                let (name, value) = tag.split_once(':').unwrap_or((tag, ""));
                self.tags.add(name, value)?;
            }
        } else if let Some(seconds) = field.strip_prefix('T') {
            let seconds = seconds.parse().ok().filter(|seconds: &i64| *seconds > 0).ok_or(TIME)?;
            self.millis = Some(seconds.saturating_mul(1_000));
        } else if ["c:", "e:", "card:"].iter().any(|known| field.starts_with(known)) || field.is_empty() {
            // Where the metric comes from, which its tags say as well.
        } else if field.starts_with(|first: char| first.is_ascii_alphabetic()) {
            counts.unknown_parts += 1;
        } else {
            return Err(StatsdError::Syntax("a part is unknown"));
        }
        Ok(())
    }
}

const RATE: StatsdError = StatsdError::Syntax("the sample rate must be above 0 and at most 1");
const TIME: StatsdError = StatsdError::Syntax("the timestamp must be Unix seconds");
const NUMBER: StatsdError = StatsdError::Syntax("the value is no number");

fn read_line(
    line: &[u8],
    writer: &mut LineWriter,
    gauge: &mut dyn FnMut(&str, &str, GaugeChange) -> Option<f64>,
    counts: &mut StatsdCounts,
) -> Result<(), StatsdError> {
    let parts = StatsdParts::of(std::str::from_utf8(line).map_err(|_| StatsdError::NotText)?, counts)?;
    for text in parts.values.split(':') {
        let number = || Number::parse(text).filter(|value| value.is_finite()).ok_or(NUMBER);
        let (kind, value) = match parts.kind {
            // Digits stay where nothing is multiplied.
            "c" if parts.sampled.is_none() => (Kind::Counter, number()?),
            "c" => (Kind::Counter, (number()?.float() / parts.rate).into()),
            "g" => {
                let value = number()?;
                let is_difference = text.starts_with(['+', '-']);
                let float = value.float();
                let change = if is_difference { GaugeChange::By(float) } else { GaugeChange::To(float) };
                let known = gauge(parts.name, &parts.tags.key(), change).ok_or(StatsdError::UnknownGauge)?;
                (Kind::Gauge, if is_difference { known.into() } else { value })
            }
            "ms" | "h" | "d" => (Kind::Histogram, number()?),
            "s" => {
                counts.sets += 1;
                continue;
            }
            _ => return Err(StatsdError::Syntax("the type must be c, g, ms, h, d or s")),
        };
        let (name, millis, tags) = (parts.name, parts.millis, parts.tags.iter());
        writer.write(&Metric { name, value, kind, millis, tags })?;
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

    fn read(text: &str) -> (Vec<Value>, StatsdCounts) {
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
    fn tags_that_come_again_or_are_called_as_ours_are_all_kept() {
        for (text, tags) in [
            ("a:1|g|#env:p,env:p", json!({"env": "p"})),
            ("a:1|g|#prod,prod", json!({"prod": ""})),
            ("a:1|g|#x:2,x:1,x:2,y:3", json!({"x": "1,2", "y": "3"})),
            ("a:1|g|#a:b|#c:d", json!({"a": "b", "c": "d"})),
            ("a:1|c|#temporality:x", json!({"exported_temporality": "x", "temporality": "delta"})),
            ("a:1|ms|@0.5|#sample_rate:9", json!({"exported_sample_rate": "9", "sample_rate": "0.5"})),
            ("a:1|ms|#sample_rate:9", json!({"sample_rate": "9"})),
        ] {
            assert_eq!(line(text)["tags"], tags, "{text}");
        }
    }

    #[test]
    fn tags_in_names_are_read_in_the_style_of_each() {
        for text in ["a,host=x,zone=y:1|g", "a;host=x;zone=y:1|g", "a,host=x:1|g|#zone:y"] {
            let line = line(text);
            assert_eq!(
                (&line["name"], &line["tags"]),
                (&json!("a"), &json!({"host": "x", "zone": "y"})),
                "{text}"
            );
        }
        assert_eq!(line("a,host=x:1|g|#host:y")["tags"], json!({"host": "x,y"}));
        assert_eq!(line("a[0]#b:1|g")["name"], "a[0]#b", "no other style is known");
    }

    #[test]
    fn parts_of_a_later_version_are_passed_over_and_counted() {
        let (lines, counts) = read("a:1|c|x:1|z|c:ci-1|e:it|card:low|\nb:2|g");
        assert_eq!((lines.len(), counts.unknown_parts, counts.rejected), (2, 2, 0));
    }

    #[test]
    fn a_counter_of_many_digits_keeps_them() {
        assert_eq!(line("a:9007199254740993|c")["value"], json!(9_007_199_254_740_993_u64));
        assert_eq!(line("a:9007199254740993|g")["value"], json!(9_007_199_254_740_993_u64));
    }

    #[test]
    fn gauges_change_by_differences_and_values_come_together() {
        let values =
            |text| read(text).0.iter().map(|line| line["value"].as_f64().unwrap()).collect::<Vec<_>>();
        assert_eq!(values("a:10|g\na:+5|g\na:-3|g\nb:-1|g\na:-1|g|#x:y\n"), [10.0, 15.0, 12.0, -1.0, -1.0]);
        assert_eq!(values("a:10|g|#x:1,y:2\na:+5|g|#y:2,x:1"), [10.0, 15.0], "tags have no order");
        assert_eq!(values("wait:1:2:3|ms"), [1.0, 2.0, 3.0]);
        let mut writer = LineWriter::new("c", 0, usize::MAX);
        assert_eq!(read_metrics(b"a:+1|g", &mut writer, &mut |_, _, _| None).rejected, 1);
    }

    #[test]
    fn what_is_no_metric_is_counted_and_what_is_wrong_is_left_out_whole() {
        let (lines, counts) = read("u:a:b|s\n_e{1,1}:a|b\n_sc|a|0\ngood:1|c\r\nwait:1:x|ms\n");
        assert_eq!((lines.len(), counts.values, counts.sets, counts.events), (1, 1, 2, 2));
        assert_eq!((counts.rejected, counts.error), (1, Some(NUMBER)), "the reason is that of the first");
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
            "a:1|g|T-1",
            "a:1|g|T1795420800.5",
            "a:1|c|0.5",
            "a:1|c|#:x",
            "a:b|s|#:x",
            "a,host:1|c",
            "a;host:1|c",
            "a,=x:1|c",
            "a:1|c|#temporality:a,exported_temporality:b",
        ] {
            let (_, counts) = read(wrong);
            assert!(counts.error.is_some(), "{wrong}");
            assert_eq!(
                StatsdCounts { error: None, ..counts },
                StatsdCounts { rejected: 1, ..StatsdCounts::default() },
                "{wrong}"
            );
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
