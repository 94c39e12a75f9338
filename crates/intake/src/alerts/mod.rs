//! Alert rules on what comes in: which series are beyond a threshold, and telling an Alertmanager so.
//!
//! ```text
//!   kept lines ── rule of their metric? ──> table of series beyond a threshold ── fired, resolved ──> queue ── webhook
//!                                                 ^ a second passes
//! ```
//!
//! A series is a rule, a client and the tags of a line. Lines count once they are kept, with the time of their
//! arrival. A line whose own time is more than five minutes from that is passed over, so that lines of yesterday that
//! are sent again alert nobody. The state machine is [`tidegate_algorithms::alert`].
//!
//! | bound | value | reached |
//! |---|---|---|
//! | series beyond a threshold | 10,000 | new ones are passed over and counted |
//! | notices that wait for the webhook | 1,000 | new ones are dropped and counted; firing ones are told again each minute |
//! | alerts that a reply lists | 1,000 | the counts are of all |
//! | resolved alerts that are remembered | 100 | the oldest goes |
//!
//! Rules and the webhook change while the process runs (`rules.rs`). After a restart everything is pending anew: what fires
//! is told again, and what was resolved meanwhile ends at the receiver by the time that the last notice said.

mod deliver;
mod notice;
mod rule;
mod rules;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use tidegate_algorithms::alert::{Alert, AlertChange};
use tidegate_algorithms::time::{SECOND, Tick};
use tidegate_wire::metrics::{Lines, read_line};
use tokio::sync::{mpsc, watch};

use crate::EndpointUrl;

pub use deliver::Webhook;
use notice::{Notice, notice, time};
use rule::SILENCE;
pub use rule::{ALERT_KEYS, AlertRule, MAX_ALERTS};
use rules::Rules;

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
    /// Taken after `active` where both are.
    rules: Mutex<Arc<Rules>>,
    active: Mutex<BTreeMap<AlertSeries, ActiveAlert>>,
    /// The last ones, the newest in front.
    resolved: Mutex<VecDeque<(AlertSeries, ActiveAlert, Tick)>>,
    /// Who is told.
    webhook: watch::Sender<Option<EndpointUrl>>,
    queue: mpsc::Sender<Notice>,
    untracked: AtomicU64,
    dropped: AtomicU64,
    delivered: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

/// What an alert is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AlertSeries {
    /// The rule's name.
    rule: String,
    client: String,
    tags: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
struct ActiveAlert {
    alert: Alert,
    told: Tick,
}

/// A value of a line that a rule looks at.
#[derive(Debug)]
pub(crate) struct ObservedValue {
    rule: Arc<AlertRule>,
    series: AlertSeries,
    value: f64,
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
    /// Rules with distinct names, none of whose series is beyond a threshold, and the webhook's queue of notices.
    pub(crate) fn new(rules: Vec<AlertRule>) -> (Self, mpsc::Receiver<Notice>) {
        let (queue, notices) = mpsc::channel(MAX_NOTICES);
        let alerts = Self {
            rules: Mutex::new(Arc::new(Rules::new(rules, &Rules::default()))),
            active: Mutex::default(),
            resolved: Mutex::default(),
            webhook: watch::Sender::new(None),
            queue,
            untracked: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        (alerts, notices)
    }

    /// Sends notices to another receiver from now on, or to none; returns whether that is a change.
    pub fn tell_at(&self, url: Option<EndpointUrl>) -> bool {
        let is_other = self.webhook.send_if_modified(|known| {
            let is_other = *known != url;
            *known = url;
            is_other
        });
        if is_other {
            // It knows of no alert yet: the next step tells it what fires.
            for known in self.active().values_mut() {
                known.told = Tick(0);
            }
        }
        is_other
    }

    fn rules(&self) -> Arc<Rules> {
        self.rules.lock().clone()
    }

    fn active(&self) -> MutexGuard<'_, BTreeMap<AlertSeries, ActiveAlert>> {
        self.active.lock()
    }

    fn resolved(&self) -> MutexGuard<'_, VecDeque<(AlertSeries, ActiveAlert, Tick)>> {
        self.resolved.lock()
    }

    /// What the rules look at in lines that come at `now`, in Unix milliseconds.
    pub(crate) fn observations(&self, lines: &Lines, now: i64) -> Vec<ObservedValue> {
        let (rules, mut found) = (self.rules(), Vec::new());
        if rules.list().is_empty() {
            return found;
        }
        let mut start = 0;
        for fact in &lines.facts {
            let line = &lines.bytes[start..start + fact.length];
            start += fact.length;
            let looking = rules.of_metric(&lines.name(fact));
            if looking.is_empty() || now.abs_diff(fact.millis) > SILENCE / 1_000_000 {
                continue;
            }
            // Invariant: the writer has written it.
            let Some(line) = read_line(line) else { continue };
            for rule in looking.iter().filter(|rule| rule.fits(&line)) {
                let tags =
                    line.tags.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
                let series = AlertSeries { rule: rule.name.clone(), client: line.client.to_string(), tags };
                found.push(ObservedValue { rule: Arc::clone(rule), series, value: line.value.float() });
            }
        }
        found
    }

    /// Takes values that came at `now`.
    pub(crate) fn observe(&self, observations: Vec<ObservedValue>, now: Tick) {
        let mut active = self.active();
        let rules = self.rules();
        // Others may have taken the place of the rules that the lines came under.
        for ObservedValue { rule, series, value } in observations.into_iter().filter(|it| rules.has(&it.rule))
        {
            if let Some(known) = active.get_mut(&series) {
                let change = known.alert.observe(&rule.condition, value, now);
                if !self.changed(&rule, &series, known, change, now) {
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
            let mut new = ActiveAlert { alert: Alert::new(value, now), told: now };
            let change = new.alert.advance(&rule.condition, now);
            self.changed(&rule, &series, &mut new, change, now);
            active.insert(series, new);
        }
    }

    /// Lets time pass: what was pending long enough fires, what is silent is over, and what fires is told again.
    pub(crate) fn advance(&self, now: Tick) {
        let mut active = self.active();
        let rules = self.rules();
        active.retain(|series, known| {
            let Some(rule) = rules.named(&series.rule) else { return false };
            let change = known.alert.advance(&rule.condition, now);
            !self.changed(rule, series, known, change, now)
        });
    }

    /// Tells what has become of an alert; whether it is over.
    fn changed(
        &self,
        rule: &AlertRule,
        series: &AlertSeries,
        known: &mut ActiveAlert,
        change: Option<AlertChange>,
        now: Tick,
    ) -> bool {
        let is_due = known.alert.fired().is_some() && now.since(known.told) >= REPEAT;
        match change {
            Some(AlertChange::Withdrawn) => return true,
            None if !is_due => return false,
            _ => {}
        }
        let is_over = change == Some(AlertChange::Resolved);
        if is_over {
            let mut resolved = self.resolved();
            resolved.truncate(MAX_RESOLVED - 1);
            resolved.push_front((series.clone(), known.clone(), now));
        }
        let ends = if is_over { now } else { now.plus(GOOD_FOR) };
        known.told = now;
        self.tell(notice(rule, series, known, ends));
        is_over
    }

    fn tell(&self, notice: Notice) {
        if self.queue.try_send(notice).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// The rules' names, with how many series are in each state.
    #[must_use]
    pub fn counts(&self) -> Vec<(String, AlertCounts)> {
        let active = self.active();
        let rules = self.rules();
        let mut found: HashMap<&str, AlertCounts> = HashMap::new();
        for (series, known) in &*active {
            let counts = found.entry(&series.rule).or_default();
            match known.alert.fired() {
                Some(_) => counts.firing += 1,
                None => counts.pending += 1,
            }
        }
        let names = rules.list().iter().map(|rule| &rule.name);
        names.map(|name| (name.clone(), found.get(&**name).copied().unwrap_or_default())).collect()
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

    pub(crate) fn to_json(&self) -> serde_json::Value {
        let counts: HashMap<String, AlertCounts> = self.counts().into_iter().collect();
        let rules = self.rules();
        let rules: Vec<_> = rules
            .list()
            .iter()
            .map(|rule| {
                let counts = counts.get(&rule.name).copied().unwrap_or_default();
                serde_json::json!({
                    "name": rule.name,
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
            .map(|(series, ActiveAlert { alert, .. })| {
                let state = if alert.fired().is_some() { "firing" } else { "pending" };
                shown(series, alert, state, None)
            })
            .collect();
        drop(active);
        let resolved: Vec<_> = self
            .resolved()
            .iter()
            .map(|(series, known, at)| shown(series, &known.alert, "resolved", Some(*at)))
            .collect();
        serde_json::json!({ "rules": rules, "alerts": alerts, "resolved": resolved })
    }
}

fn shown(series: &AlertSeries, alert: &Alert, state: &str, resolved: Option<Tick>) -> serde_json::Value {
    serde_json::json!({
        "name": series.rule,
        "state": state,
        "client": series.client,
        "tags": series.tags,
        "value": alert.value(),
        "since": time(alert.since()),
        "fired": alert.fired().map(time),
        "resolved": resolved.map(time),
    })
}

/// Alerts whose rules are `rules`, and what tells the webhook of them.
#[must_use]
pub fn alerts(rules: Vec<AlertRule>, webhook: Option<EndpointUrl>) -> (Arc<Alerts>, Webhook) {
    let (alerts, notices) = Alerts::new(rules);
    alerts.tell_at(webhook);
    let alerts = Arc::new(alerts);
    let webhook = Webhook::new(Arc::clone(&alerts), notices);
    (alerts, webhook)
}

#[cfg(test)]
mod tests;
