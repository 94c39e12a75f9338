//! Alerts: a value that is beyond a threshold for a while.
//!
//! ```text
//!              beyond                 beyond for `hold`
//!    nothing ────────> pending ──────────────────────────> firing
//!       ^                 │ not beyond, or silent             │ not beyond, or silent
//!       └── withdrawn ────┘                                   │
//!       └── resolved ─────────────────────────────────────────┘
//! ```
//!
//! An [`Alert`] is there only while its series is beyond the threshold, so healthy series take no memory. It begins to
//! fire by time alone: a value counts until the next one comes, or until the series has been silent for `silence`.
//! An alert whose series is silent for longer is over, because its state is not known any more.
//!
//! Times are those at which values came, and not those that values state: what is sent again from yesterday is no
//! news.

use crate::time::Tick;

/// On which side of the threshold a value is beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Values that are greater.
    Above,
    /// Values that are less.
    Below,
}

/// When an alert fires.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// Which values are beyond the threshold.
    pub side: Side,
    /// The threshold, which is itself not beyond.
    pub threshold: f64,
    /// How long values must be beyond it, in nanoseconds.
    pub hold: u64,
    /// After how long without a value a series is silent, in nanoseconds.
    pub silence: u64,
}

impl Condition {
    /// Whether a value is beyond the threshold.
    #[must_use]
    pub fn is_met(&self, value: f64) -> bool {
        match self.side {
            Side::Above => value > self.threshold,
            Side::Below => value < self.threshold,
        }
    }
}

/// What has become of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlertChange {
    /// It fires from now on.
    Fired,
    /// It fired, and is over.
    Resolved,
    /// It never fired, and is over.
    Withdrawn,
}

/// A series that is beyond its threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alert {
    since: Tick,
    heard: Tick,
    value: f64,
    fired: Option<Tick>,
}

impl Alert {
    /// An alert whose first value beyond the threshold came at `now`. It is pending: with a `hold` of 0,
    /// [`Alert::advance`] fires it.
    #[must_use]
    pub fn new(value: f64, now: Tick) -> Self {
        Self { since: now, heard: now, value, fired: None }
    }

    /// Takes the next value of the series. When it is over it is no longer to be used.
    pub fn observe(&mut self, condition: &Condition, value: f64, now: Tick) -> Option<AlertChange> {
        if !condition.is_met(value) || now.since(self.heard) >= condition.silence {
            return Some(self.over());
        }
        self.value = value;
        self.heard = now;
        self.advance(condition, now)
    }

    /// Lets time pass. When it is over it is no longer to be used.
    pub fn advance(&mut self, condition: &Condition, now: Tick) -> Option<AlertChange> {
        if now.since(self.heard) >= condition.silence {
            return Some(self.over());
        }
        if self.fired.is_none() && now.since(self.since) >= condition.hold {
            self.fired = Some(now);
            return Some(AlertChange::Fired);
        }
        None
    }

    /// What has become of it if it is over now.
    #[must_use]
    pub fn over(&self) -> AlertChange {
        if self.fired.is_some() { AlertChange::Resolved } else { AlertChange::Withdrawn }
    }

    /// When its first value beyond the threshold came.
    #[must_use]
    pub fn since(&self) -> Tick {
        self.since
    }

    /// When it began to fire; `None` while it is pending.
    #[must_use]
    pub fn fired(&self) -> Option<Tick> {
        self.fired
    }

    /// The last value.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::time::SECOND;

    const CPU: Condition =
        Condition { side: Side::Above, threshold: 80.0, hold: 60 * SECOND, silence: 300 * SECOND };

    fn at(seconds: u64) -> Tick {
        Tick(seconds * SECOND)
    }

    #[test]
    fn cpu_above_80_for_60_seconds_fires_and_resolves() {
        let mut alert = Alert::new(85.0, at(0));
        assert_eq!(alert.observe(&CPU, 90.0, at(30)), None);
        assert_eq!(alert.advance(&CPU, at(59)), None);
        assert_eq!((alert.fired(), alert.advance(&CPU, at(60))), (None, Some(AlertChange::Fired)));
        assert_eq!((alert.fired(), alert.since(), alert.value()), (Some(at(60)), at(0), 90.0));
        assert_eq!(alert.observe(&CPU, 81.0, at(70)), None);
        assert_eq!(alert.observe(&CPU, 80.0, at(80)), Some(AlertChange::Resolved));
    }

    #[test]
    fn one_good_value_withdraws_what_is_pending() {
        let mut alert = Alert::new(85.0, at(0));
        assert_eq!(alert.observe(&CPU, 79.0, at(59)), Some(AlertChange::Withdrawn));
        let mut alert = Alert::new(85.0, at(0));
        assert_eq!(alert.observe(&CPU, 85.0, at(61)), Some(AlertChange::Fired));
    }

    #[test]
    fn a_silent_series_is_over() {
        let mut alert = Alert::new(85.0, at(0));
        assert_eq!(alert.advance(&CPU, at(61)), Some(AlertChange::Fired));
        assert_eq!(alert.advance(&CPU, at(299)), None);
        assert_eq!(alert.advance(&CPU, at(300)), Some(AlertChange::Resolved));
        let slow = Condition { hold: 600 * SECOND, ..CPU };
        assert_eq!(Alert::new(85.0, at(0)).advance(&slow, at(300)), Some(AlertChange::Withdrawn));
    }

    #[test]
    fn values_below_are_beyond_too_and_no_hold_fires_at_once() {
        let disk = Condition { side: Side::Below, threshold: 10.0, hold: 0, ..CPU };
        assert!(disk.is_met(9.9) && !disk.is_met(10.0) && !disk.is_met(f64::NAN));
        assert_eq!(Alert::new(9.0, at(5)).advance(&disk, at(5)), Some(AlertChange::Fired));
    }

    proptest! {
        /// Against the definition: it fires exactly if all values of some `hold` without a gap of `silence` are beyond.
        #[test]
        fn it_fires_when_every_value_for_so_long_is_beyond(
            steps in proptest::collection::vec((1u64..200, any::<bool>()), 1..60)
        ) {
            let (mut now, mut alert) = (0, None::<Alert>);
            let mut beyond_since = None::<u64>;
            let mut firing = false;
            for (gap, is_beyond) in steps {
                // The clock ticks each second between two values.
                for _ in 1..gap {
                    now += 1;
                    if let Some(change) = alert.as_mut().and_then(|alert| alert.advance(&CPU, at(now))) {
                        prop_assert_eq!(change, AlertChange::Fired);
                        firing = true;
                    }
                    prop_assert_eq!(firing, beyond_since.is_some_and(|since| now - since >= 60));
                }
                now += 1;
                let value = if is_beyond { 81.0 } else { 80.0 };
                let change = match &mut alert {
                    Some(alert) => alert.observe(&CPU, value, at(now)),
                    None => {
                        alert = is_beyond.then(|| Alert::new(value, at(now)));
                        None
                    }
                };
                match change {
                    Some(AlertChange::Fired) => firing = true,
                    Some(AlertChange::Resolved) => {
                        prop_assert!(firing && !is_beyond);
                        (alert, firing) = (None, false);
                    }
                    Some(AlertChange::Withdrawn) => {
                        prop_assert!(!firing && !is_beyond);
                        alert = None;
                    }
                    None => {}
                }
                beyond_since = if is_beyond { beyond_since.or(Some(now)) } else { None };
            }
        }
    }
}
