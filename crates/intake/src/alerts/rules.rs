//! The rules in force, and what becomes of alerts when others take their place.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_algorithms::time::Tick;

use super::{ActiveAlert, AlertRule, AlertSeries, Alerts, notice};

/// Rules with distinct names.
#[derive(Debug, Default)]
pub(super) struct Rules {
    list: Vec<Arc<AlertRule>>,
    by_metric: HashMap<String, Vec<Arc<AlertRule>>>,
    by_name: HashMap<String, Arc<AlertRule>>,
}

impl Rules {
    /// `rules` in their order. A rule that is as it was `before` stays the same one, with its state.
    pub(super) fn new(rules: Vec<AlertRule>, before: &Self) -> Self {
        let mut new = Self::default();
        for rule in rules {
            let known = before.named(&rule.name).filter(|known| ***known == rule);
            let rule = known.map_or_else(|| Arc::new(rule), Arc::clone);
            new.by_metric.entry(rule.metric.clone()).or_default().push(Arc::clone(&rule));
            new.by_name.insert(rule.name.clone(), Arc::clone(&rule));
            new.list.push(rule);
        }
        new
    }

    /// All of them, in the order in which they are configured.
    pub(super) fn list(&self) -> &[Arc<AlertRule>] {
        &self.list
    }

    /// The rules that look at a metric.
    pub(super) fn of_metric(&self, metric: &str) -> &[Arc<AlertRule>] {
        self.by_metric.get(metric).map(Vec::as_slice).unwrap_or_default()
    }

    /// The one of this name.
    pub(super) fn named(&self, name: &str) -> Option<&Arc<AlertRule>> {
        self.by_name.get(name)
    }

    /// Whether a rule is still in force as it was.
    pub(super) fn has(&self, rule: &Arc<AlertRule>) -> bool {
        self.named(&rule.name).is_some_and(|known| Arc::ptr_eq(known, rule))
    }
}

impl Alerts {
    /// Puts other rules in force; whether any differs. An alert goes on, since when it did, under a rule of its name that
    /// looks at its series and has its last value beyond the threshold. Any other is over, and the receiver is told.
    pub fn replace(&self, rules: Vec<AlertRule>, now: Tick) -> bool {
        let mut active = self.active();
        let before = self.rules();
        if before.list().iter().map(|rule| &**rule).eq(&rules) {
            return false;
        }
        let after = Arc::new(Rules::new(rules, &before));
        *self.rules.lock() = Arc::clone(&after);
        active.retain(|series, known| {
            // Invariant: a series is there as long as its rule is.
            let Some(old) = before.named(&series.rule) else { return false };
            let Some(new) = after.named(&series.rule).filter(|new| goes_on(old, new, series, known)) else {
                let change = Some(known.alert.over());
                self.changed(old, series, known, change, now);
                return false;
            };
            if new.labels != old.labels && known.alert.fired().is_some() {
                // The receiver knows alerts by their labels: this one ends, and the other is told within a second.
                self.tell(notice(old, series, known, now));
                known.told = Tick(0);
            }
            true
        });
        true
    }
}

/// Whether an alert of the `old` rule is one of the `new` rule, too.
fn goes_on(old: &AlertRule, new: &AlertRule, series: &AlertSeries, known: &ActiveAlert) -> bool {
    new.metric == old.metric
        && new.tags.iter().all(|(name, value)| series.tags.get(name) == Some(value))
        && new.condition.is_met(known.alert.value())
}
