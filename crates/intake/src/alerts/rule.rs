//! An alert rule as it is configured, read from an entry of `[[intake.alert]]`.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_algorithms::alert::{Condition, Side};
use tidegate_algorithms::document::{DocumentReader, Mistake, escape, shown};
use tidegate_algorithms::time::SECOND;
use tidegate_wire::metrics::{KeptLine, MAX_NAME_BYTES, MAX_TAGS};

/// The keys of an entry.
pub const ALERT_KEYS: [&str; 8] =
    ["name", "metric", "tags", "above", "below", "for_seconds", "labels", "summary"];
/// Most rules.
pub const MAX_ALERTS: usize = 100;
/// Most labels that a rule adds.
const MAX_LABELS: usize = 20;
/// Longest value of a tag or label, and longest summary, in bytes.
const MAX_TEXT: usize = 1_024;
/// Longest time that values must be beyond a threshold, in seconds.
const MAX_HOLD: f64 = 86_400.0;
/// After how long without a line a series is silent, in nanoseconds.
pub(crate) const SILENCE: u64 = 300 * SECOND;

/// A rule.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertRule {
    /// Its name, which no other rule has.
    pub name: String,
    /// The metric that it looks at.
    pub metric: String,
    /// Tags that a line must have.
    pub tags: BTreeMap<String, String>,
    /// When it fires.
    pub condition: Condition,
    /// Labels that its alerts have beside those of the line.
    pub labels: BTreeMap<String, String>,
    /// What is wrong, for people.
    pub summary: Option<String>,
}

impl AlertRule {
    /// Reads an entry.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(value: &Value, pointer: &str) -> Result<Self, Vec<Mistake>> {
        let mut reader = DocumentReader::new(value, pointer, &ALERT_KEYS)?;
        let name = reader.name("name").unwrap_or_default().to_owned();
        if reader.field("metric").is_none() {
            reader.mistake("metric", "is missing", "the name of a metric");
        }
        let metric = reader.text("metric", 1, MAX_NAME_BYTES).unwrap_or_default().to_owned();
        let tags = texts(&mut reader, "tags", MAX_TAGS, |_| true);
        let (side, threshold) = threshold(&mut reader);
        let hold = reader.seconds("for_seconds", 0.0, MAX_HOLD).unwrap_or(0);
        let labels = texts(&mut reader, "labels", MAX_LABELS, is_label);
        let summary = reader.text("summary", 1, MAX_TEXT).map(str::to_owned);
        let condition = Condition { side, threshold, hold, silence: SILENCE };
        let rule = Self { name, metric, tags, condition, labels, summary };
        if reader.mistakes.is_empty() { Ok(rule) } else { Err(reader.mistakes) }
    }

    /// Whether it looks at a line of its metric.
    pub(crate) fn fits(&self, line: &KeptLine<'_>) -> bool {
        self.tags.iter().all(|(name, wanted)| line.tag(name) == Some(wanted))
    }

    /// When it fires, in words: `above 80 for 60 s`.
    #[must_use]
    pub fn in_words(&self) -> String {
        let Condition { side, threshold, hold, .. } = self.condition;
        let side = match side {
            Side::Above => "above",
            Side::Below => "below",
        };
        #[expect(clippy::cast_precision_loss, reason = "a time shown to people")]
        let hold = hold as f64 / SECOND as f64;
        format!("{side} {threshold} for {hold} s")
    }
}

/// Either `above` or `below`.
fn threshold(reader: &mut DocumentReader<'_>) -> (Side, f64) {
    let (side, field) = match (reader.field("above"), reader.field("below")) {
        (Some(_), None) => (Side::Above, "above"),
        (None, Some(_)) => (Side::Below, "below"),
        (above, _) => {
            let problem = if above.is_some() { "is there beside below" } else { "is missing" };
            reader.mistake("above", problem, "a number, here or under below");
            return (Side::Above, 0.0);
        }
    };
    let number = reader.field(field).and_then(Value::as_f64);
    if number.is_none() {
        let found = reader.field(field).map(shown).unwrap_or_default();
        reader.mistake(field, format!("is {found}"), "a number");
    }
    (side, number.unwrap_or_default())
}

/// A table of texts.
fn texts(
    reader: &mut DocumentReader<'_>,
    field: &str,
    most: usize,
    is_name: fn(&str) -> bool,
) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    let accepted = format!("a table of at most {most} texts of up to {MAX_TEXT} bytes");
    let Some(value) = reader.field(field) else { return texts };
    let Some(map) = value.as_object().filter(|map| map.len() <= most) else {
        let problem = value
            .as_object()
            .map_or_else(|| format!("is {}", shown(value)), |map| format!("has {} entries", map.len()));
        reader.mistake(field, problem, accepted);
        return texts;
    };
    for (name, value) in map {
        let at = format!("{field}/{}", escape(name));
        match value.as_str().filter(|text| text.len() <= MAX_TEXT) {
            _ if !is_name(name) => {
                reader.mistake(
                    &at,
                    "is no name of a label",
                    "letters, digits and _, not beginning with a digit",
                );
            }
            Some(text) => drop(texts.insert(name.clone(), text.to_owned())),
            None => reader.mistake(&at, format!("is {}", shown(value)), accepted.as_str()),
        }
    }
    texts
}

/// Whether Alertmanager takes it as the name of a label.
pub(crate) fn is_label(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_is_read_and_says_when_it_fires() {
        let rule = AlertRule::read(
            &json!({"name": "cpu-high", "metric": "cpu.usage", "tags": {"host": "a"}, "above": 80, "for_seconds": 60}),
            "/intake/alert/0",
        );
        let rule = rule.unwrap();
        assert_eq!((rule.in_words(), rule.condition.hold), ("above 80 for 60 s".to_owned(), 60 * SECOND));
        let line = |host: &str| {
            format!(
                "{{\"timestamp\":\"2026-11-23T08:00:00.000Z\",\"name\":\"cpu.usage\",\"value\":1,\"type\":\"gauge\",\"tags\":{{\"host\":\"{host}\"}},\"client\":\"c\"}}"
            )
        };
        let fits = |host| rule.fits(&tidegate_wire::metrics::read_line(line(host).as_bytes()).unwrap());
        assert!(fits("a") && !fits("b"));
    }

    #[test]
    fn everything_that_is_wrong_is_said() {
        let wrong = json!({"name": "CPU", "above": 1, "below": 2, "for_seconds": -1, "labels": {"a b": "c"}, "tags": 7, "sevrity": 1});
        let said: Vec<String> =
            AlertRule::read(&wrong, "/intake/alert/0").unwrap_err().iter().map(ToString::to_string).collect();
        for part in [
            "/name is",
            "/metric is missing",
            "/above is there beside",
            "/for_seconds is -1",
            "/labels/a b is no name",
            "/tags is 7",
            "/sevrity",
        ] {
            assert!(said.iter().any(|mistake| mistake.contains(part)), "{part} in {said:?}");
        }
        let neither = AlertRule::read(&json!({"name": "a", "metric": "b"}), "/p").unwrap_err();
        assert_eq!(neither.len(), 1, "{neither:?}");
        assert!(AlertRule::read(&json!({"name": "a", "metric": "b", "below": "1"}), "/p").is_err());
    }
}
