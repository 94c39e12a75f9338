//! An alert in the words of Alertmanager.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_algorithms::time::Tick;
use tidegate_wire::metrics::rfc3339;

use super::{ActiveAlert, AlertRule, AlertSeries};

/// An alert as the second version of Alertmanager's API takes it (`POST /api/v2/alerts`).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Notice {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<&'static str, String>,
    starts_at: String,
    ends_at: String,
}

/// What is told of an alert of a rule.
pub(super) fn notice(rule: &AlertRule, series: &AlertSeries, known: &ActiveAlert, ends: Tick) -> Notice {
    let own = [("alertname", &rule.name), ("metric", &rule.metric), ("client", &series.client)];
    // A tag does not take the place of what says which alert it is, and a label of the rule takes any.
    let tags = series.tags.iter().map(|(name, value)| (label(name), value));
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
    let configured = rule.labels.iter().map(|(name, value)| (name.clone(), value));
    let labels = tags.chain(own).chain(configured);
    let value = known.alert.value();
    let said = format!("{} of {} is {value}, {}", rule.metric, series.client, rule.in_words());
    Notice {
        labels: labels
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name, value.clone()))
            .collect(),
        annotations: BTreeMap::from([
            ("summary", rule.summary.clone().unwrap_or_else(|| said.clone())),
            ("description", said),
            ("value", value.to_string()),
        ]),
        starts_at: time(known.alert.since()),
        ends_at: time(ends),
    }
}

/// A time as it is told.
pub(super) fn time(tick: Tick) -> String {
    let millis = i64::try_from(tick.0 / 1_000_000).unwrap_or(rfc3339::LAST);
    let time = rfc3339::format(millis.clamp(rfc3339::FIRST, rfc3339::LAST));
    time.map(|time| String::from_utf8_lossy(&time).into_owned()).unwrap_or_default()
}

/// A tag's name as a label's.
fn label(name: &str) -> String {
    let plain = name.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' });
    let digit = name.starts_with(|first: char| first.is_ascii_digit()).then_some('_');
    digit.into_iter().chain(plain).collect()
}
