//! The values of gauges, for differences to refer to.
//!
//! A gauge that there was no room for has no value to refer to: new ones are refused beyond the bound, and those that
//! are known go on.

use std::collections::HashMap;

use parking_lot::Mutex;
use tidegate_wire::metrics::statsd::GaugeChange;

/// Most gauges whose values are remembered.
pub(super) const MAX_GAUGES: usize = 10_000;

/// Client, name and tags, separated by what none of them has.
type GaugeKey = String;

#[derive(Debug, Default)]
pub(super) struct Gauges(Mutex<HashMap<GaugeKey, f64>>);

impl Gauges {
    /// The value that a gauge has from now on; `None` if it is a difference to one that is not known for want of room.
    pub(super) fn change(&self, client: &str, name: &str, tags: &str, change: GaugeChange) -> Option<f64> {
        let key = format!("{client}\n{name}\n{tags}");
        let mut values = self.0.lock();
        let has_room = values.len() < MAX_GAUGES;
        let known = values.get_mut(&key);
        let value = match change {
            GaugeChange::To(value) => value,
            GaugeChange::By(difference) => match &known {
                Some(value) => **value + difference,
                // As the reference has it: one that nobody has set is 0.
                None if has_room => difference,
                None => return None,
            },
        };
        match known {
            Some(known) => *known = value,
            None if has_room => drop(values.insert(key, value)),
            None => {}
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_73_gauges_beyond_the_bound_are_refused_and_known_ones_go_on() {
        let gauges = Gauges::default();
        for number in 0..MAX_GAUGES {
            assert_eq!(gauges.change("c", &number.to_string(), "", GaugeChange::To(1.0)), Some(1.0));
        }
        assert_eq!(gauges.change("c", "new", "", GaugeChange::By(1.0)), None);
        assert_eq!(
            gauges.change("c", "new", "", GaugeChange::To(7.0)),
            Some(7.0),
            "it is kept, not remembered"
        );
        assert_eq!(gauges.change("c", "7", "", GaugeChange::By(2.0)), Some(3.0));
        assert_eq!(gauges.change("other", "7", "", GaugeChange::By(2.0)), None);
        assert_eq!(gauges.0.lock().len(), MAX_GAUGES);
    }
}
