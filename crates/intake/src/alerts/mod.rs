//! Alert rules on what comes in: which series are beyond a threshold, and telling an Alertmanager so.
//!
//! ```text
//!   kept lines ── rule of their metric? ──> table of series beyond a threshold ── fired, resolved ──> queue ── webhook
//!                                                 ^ a second passes
//! ```
//!
//! A series is a rule, a client and the tags of a line. Lines count when they were kept, with the time of their
//! arrival; those whose own time is more than five minutes from that are passed over, so that what is sent again from
//! yesterday wakes nobody. The state machine is [`tidegate_algorithms::alert`].
//!
//! | bound | value | reached |
//! |---|---|---|
//! | series beyond a threshold | 10,000 | new ones are passed over and counted |
//! | notices that wait for the webhook | 1,000 | new ones are dropped and counted; firing ones are told again each minute |
//! | alerts that a reply lists | 1,000 | the counts are of all |
//! | resolved alerts that are remembered | 100 | the oldest goes |
//!
//! After a restart everything is pending anew: what fires is told again, and what was resolved meanwhile ends at the
//! receiver by the time that the last notice said.

mod deliver;
mod rule;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use http::Response;
use http::request::Parts as Head;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tidegate_algorithms::alert::{Alert, Change};
use tidegate_algorithms::time::{SECOND, Tick};
use tidegate_net::http::{Body, Peer};
use tidegate_wire::metrics::{Lines, read_line, rfc3339};
use tokio::sync::mpsc;

use crate::access::Right;
use crate::batch;
use crate::intake::Intake;
use crate::limits::Limits;
use crate::refusal::Refusal;

pub use deliver::Webhook;
use rule::SILENCE;
pub use rule::{ALERT_KEYS, AlertRule, MAX_ALERTS};

/// Most series that are beyond a threshold at once.
const MAX_ACTIVE: usize = 10_000;
/// Most notices that wait for the webhook.
pub(crate) const MAX_NOTICES: usize = 1_000;
/// Most alerts that a reply lists.
const MAX_LISTED: usize = 1_000;
/// Resolved alerts that are remembered.
const MAX_RESOLVED: usize = 100;
/// How often a firing alert is told again, in nanoseconds.
const REPEAT: u64 = 60 * SECOND;
/// How long the receiver may take an alert for firing without being told again, in nanoseconds.
const GOOD_FOR: u64 = 4 * REPEAT;

/// What the rules of an intake have found.
#[derive(Debug)]
pub struct Alerts {
    rules: Vec<AlertRule>,
    by_metric: HashMap<String, Vec<usize>>,
    active: Mutex<BTreeMap<Series, Active>>,
    /// The last ones, the newest in front.
    resolved: Mutex<VecDeque<(Series, Active, Tick)>>,
    queue: mpsc::Sender<Notice>,
    untracked: AtomicU64,
    dropped: AtomicU64,
    delivered: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

/// What an alert is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Series {
    rule: usize,
    client: String,
    tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
struct Active {
    alert: Alert,
    told: Tick,
}

/// A value of a line that a rule looks at.
#[derive(Debug)]
pub(crate) struct Observation {
    series: Series,
    value: f64,
}

/// An alert as the second version of Alertmanager's API takes it (`POST /api/v2/alerts`).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Notice {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<&'static str, String>,
    starts_at: String,
    ends_at: String,
}

/// How many series are in each state under a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlertCounts {
    /// Beyond the threshold, for too short a time.
    pub pending: u64,
    /// Beyond it for as long as the rule says.
    pub firing: u64,
}

impl Alerts {
    /// Rules with distinct names, of which no series is beyond a threshold; and what the webhook is to be told.
    pub(crate) fn new(rules: Vec<AlertRule>) -> (Self, mpsc::Receiver<Notice>) {
        let mut by_metric: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, rule) in rules.iter().enumerate() {
            by_metric.entry(rule.metric.clone()).or_default().push(place);
        }
        let (queue, notices) = mpsc::channel(MAX_NOTICES);
        let alerts = Self {
            rules,
            by_metric,
            active: Mutex::default(),
            resolved: Mutex::default(),
            queue,
            untracked: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        (alerts, notices)
    }

    fn active(&self) -> MutexGuard<'_, BTreeMap<Series, Active>> {
        self.active.lock()
    }

    fn resolved(&self) -> MutexGuard<'_, VecDeque<(Series, Active, Tick)>> {
        self.resolved.lock()
    }

    /// What the rules look at in lines that come at `now`, in Unix milliseconds.
    pub(crate) fn observations(&self, lines: &Lines, now: i64) -> Vec<Observation> {
        let mut found = Vec::new();
        let mut start = 0;
        for fact in &lines.facts {
            let line = &lines.bytes[start..start + fact.length];
            start += fact.length;
            let Some(rules) = self.by_metric.get(&*lines.name(fact)) else { continue };
            if now.abs_diff(fact.millis) > SILENCE / 1_000_000 {
                continue;
            }
            // Invariant: the writer has written it.
            let Some(line) = read_line(line) else { continue };
            for rule in rules.iter().copied().filter(|rule| self.rules[*rule].fits(&line)) {
                let tags =
                    line.tags.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
                let series = Series { rule, client: line.client.to_string(), tags };
                found.push(Observation { series, value: line.value.float() });
            }
        }
        found
    }

    /// Takes values that came at `now`.
    pub(crate) fn observe(&self, observations: Vec<Observation>, now: Tick) {
        let mut active = self.active();
        for Observation { series, value } in observations {
            let rule = &self.rules[series.rule];
            if let Some(known) = active.get_mut(&series) {
                let change = known.alert.observe(&rule.condition, value, now);
                if !self.changed(&series, known, change, now) {
                    continue;
                }
                active.remove(&series);
            }
            if !rule.condition.is_met(value) {
                continue;
            }
            if active.len() >= MAX_ACTIVE {
                self.untracked.fetch_add(1, Relaxed);
                continue;
            }
            let mut new = Active { alert: Alert::new(value, now), told: now };
            let change = new.alert.advance(&rule.condition, now);
            self.changed(&series, &mut new, change, now);
            active.insert(series, new);
        }
    }

    /// Lets time pass: what was pending long enough fires, what is silent is over, and what fires is told again.
    pub(crate) fn advance(&self, now: Tick) {
        self.active().retain(|series, known| {
            let change = known.alert.advance(&self.rules[series.rule].condition, now);
            !self.changed(series, known, change, now)
        });
    }

    /// Tells what has become of an alert; whether it is over.
    fn changed(&self, series: &Series, known: &mut Active, change: Option<Change>, now: Tick) -> bool {
        let is_due = known.alert.fired().is_some() && now.since(known.told) >= REPEAT;
        match change {
            Some(Change::Withdrawn) => return true,
            None if !is_due => return false,
            _ => {}
        }
        let is_over = change == Some(Change::Resolved);
        if is_over {
            let mut resolved = self.resolved();
            resolved.truncate(MAX_RESOLVED - 1);
            resolved.push_front((series.clone(), known.clone(), now));
        }
        let ends = if is_over { now } else { now.plus(GOOD_FOR) };
        known.told = now;
        if self.queue.try_send(self.notice(series, known, ends)).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
        is_over
    }

    fn notice(&self, series: &Series, known: &Active, ends: Tick) -> Notice {
        let rule = &self.rules[series.rule];
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

    /// The rules' names, with how many series are in each state.
    #[must_use]
    pub fn counts(&self) -> Vec<(&str, AlertCounts)> {
        let mut counts: Vec<(&str, AlertCounts)> =
            self.rules.iter().map(|rule| (&*rule.name, AlertCounts::default())).collect();
        for (series, known) in &*self.active() {
            let (_, counts) = &mut counts[series.rule];
            match known.alert.fired() {
                Some(_) => counts.firing += 1,
                None => counts.pending += 1,
            }
        }
        counts
    }

    /// What became of notices: delivered, tries that failed, refused by the receiver, dropped for want of room.
    #[must_use]
    pub fn notices(&self) -> [(&'static str, u64); 4] {
        [
            ("delivered", self.delivered.load(Relaxed)),
            ("failed_tries", self.failed.load(Relaxed)),
            ("refused", self.refused.load(Relaxed)),
            ("dropped", self.dropped.load(Relaxed)),
        ]
    }

    /// Values that began an alert for which there was no room.
    #[must_use]
    pub fn untracked(&self) -> u64 {
        self.untracked.load(Relaxed)
    }

    fn to_json(&self) -> serde_json::Value {
        let rules: Vec<_> = self
            .counts()
            .into_iter()
            .zip(&self.rules)
            .map(|((name, counts), rule)| {
                serde_json::json!({
                    "name": name,
                    "metric": rule.metric,
                    "tags": rule.tags,
                    "condition": rule.in_words(),
                    "pending": counts.pending,
                    "firing": counts.firing,
                })
            })
            .collect();
        let active = self.active();
        let alerts: Vec<_> = active
            .iter()
            .take(MAX_LISTED)
            .map(|(series, Active { alert, .. })| {
                let state = if alert.fired().is_some() { "firing" } else { "pending" };
                self.shown(series, alert, state, None)
            })
            .collect();
        drop(active);
        let resolved: Vec<_> = self
            .resolved()
            .iter()
            .map(|(series, known, at)| self.shown(series, &known.alert, "resolved", Some(*at)))
            .collect();
        serde_json::json!({ "rules": rules, "alerts": alerts, "resolved": resolved })
    }

    fn shown(
        &self,
        series: &Series,
        alert: &Alert,
        state: &str,
        resolved: Option<Tick>,
    ) -> serde_json::Value {
        serde_json::json!({
            "name": self.rules[series.rule].name,
            "state": state,
            "client": series.client,
            "tags": series.tags,
            "value": alert.value(),
            "since": time(alert.since()),
            "fired": alert.fired().map(time),
            "resolved": resolved.map(time),
        })
    }
}

impl<L: Limits> Intake<L> {
    /// The rules and what they have found.
    pub(crate) fn show_alerts(&self, head: &Head, peer: &Peer) -> Result<Response<Body>, Refusal> {
        self.admit(head, peer, Right::Read)?;
        let empty = || serde_json::json!({ "rules": [], "alerts": [], "resolved": [] });
        let found = self.parts.alerts.as_ref().map_or_else(empty, |alerts| alerts.to_json());
        Ok(batch::json(found.to_string().into_bytes()))
    }
}

/// Alerts whose rules are `rules`, and the webhook that tells of them; `None` without a rule.
#[must_use]
pub fn alerts(rules: Vec<AlertRule>, webhook: Option<crate::EndpointUrl>) -> Option<(Arc<Alerts>, Webhook)> {
    if rules.is_empty() {
        return None;
    }
    let (alerts, notices) = Alerts::new(rules);
    let alerts = Arc::new(alerts);
    let webhook = Webhook::new(Arc::clone(&alerts), notices, webhook);
    Some((alerts, webhook))
}

fn time(tick: Tick) -> String {
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

#[cfg(test)]
mod tests;
