//! Requests that no policy applies to (fault 58): what they are answered, counted, and said of them.
//!
//! Such a request is mostly a mistake: an attribute that is misspelt, or that the proxy in front does not
//! pass on. So it is never silent: the reply says so, a metric counts it, and a warning names the
//! attributes that came. Never their values: those are the clients' own. Where a concurrency limit matches and does not
//! apply, since who asks cannot give a permit back (decision 0050), the warning names it: nothing is misspelt then.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_algorithms::policy::Attributes;
use tidegate_algorithms::time::{SECOND, Tick};

use crate::tally::{Tally, TallyCount};

/// Least time between two warnings, in nanoseconds.
const WARNING_INTERVAL: u64 = 10 * SECOND;
/// Most attributes that a warning names, and the longest part of a name that it shows.
const MAX_NAMES: usize = 16;
const MAX_NAME_CHARS: usize = 64;

/// What a request is answered that no policy applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnNoMatch {
    /// Nothing limits it.
    #[default]
    Allow,
    /// What is not named is not let through.
    Deny,
}

/// The requests that no policy applied to.
#[derive(Debug, Default)]
pub(crate) struct NoMatch {
    pub(crate) answer: OnNoMatch,
    tally: Tally,
    /// The tick from which on a warning may be written again.
    next_warning: AtomicU64,
}

impl NoMatch {
    /// Whether such requests are allowed.
    pub(crate) fn allows(&self) -> bool {
        self.answer == OnNoMatch::Allow
    }

    /// How many there were.
    pub(crate) fn count(&self) -> TallyCount {
        self.tally.read()
    }

    /// Counts one, and warns of it unless that was done a moment ago. `barred`: the concurrency limits that match and do
    /// not apply.
    pub(crate) fn see<'a>(
        &self,
        now: Tick,
        requests: impl Iterator<Item = Attributes<'a>>,
        barred: impl FnOnce() -> Vec<Arc<str>>,
    ) {
        self.tally.count(self.allows(), true, false);
        let due = self.next_warning.load(Ordering::Relaxed);
        let next = now.plus(WARNING_INTERVAL).0;
        let exchange = || self.next_warning.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed);
        if now.0 < due || exchange().is_err() {
            return;
        }
        let count = self.tally.read();
        tracing::warn!(
            attributes = names(requests),
            answer = if self.allows() { "allowed" } else { "denied" },
            requests = count.allowed + count.denied,
            "no policy applies to a request with these attributes: on_no_match decides it{}",
            why(&barred())
        );
    }
}

/// That concurrency limits would apply elsewhere.
fn why(barred: &[Arc<str>]) -> String {
    let Some((first, rest)) = barred.split_first() else { return String::new() };
    let mut text = format!("; the concurrency limit {first:?}");
    if !rest.is_empty() {
        let _infallible = write!(text, " (and {} more)", rest.len());
    }
    text + " matches, and applies only where a permit can be given back: to POST /v1/permits and /v1/decisions, and to routes \
            and listeners that list it"
}

/// The names of all attributes, each once, in a form that a log can hold.
fn names<'a>(requests: impl Iterator<Item = Attributes<'a>>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for attributes in requests {
        for (name, _) in attributes.iter() {
            if names.len() <= MAX_NAMES && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    let more = names.len() > MAX_NAMES;
    let cut = |name: &str| name.chars().take(MAX_NAME_CHARS).flat_map(char::escape_debug).collect::<String>();
    let mut shown: Vec<String> = names.iter().take(MAX_NAMES).map(|name| cut(name)).collect();
    if more {
        shown.push("...".to_owned());
    }
    if shown.is_empty() { "(none)".to_owned() } else { shown.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_58_a_warning_names_attributes_without_values_and_is_bounded() {
        let pairs: [(&str, &[u8]); 2] = [("client_id", b"secret"), ("a\nb", b"secret")];
        assert_eq!(names([Attributes::new(&pairs)].into_iter()), "client_id, a\\nb");
        assert_eq!(names([Attributes::new(&[])].into_iter()), "(none)");
        let many: Vec<String> = (0..40).map(|n| format!("{n:0100}")).collect();
        let pairs: Vec<(&str, &[u8])> = many.iter().map(|name| (name.as_str(), &b""[..])).collect();
        let shown = names([Attributes::new(&pairs), Attributes::new(&pairs)].into_iter());
        assert!(shown.ends_with(", ...") && shown.len() < 17 * (MAX_NAME_CHARS + 2), "{shown}");
    }

    #[test]
    fn every_request_is_counted_and_few_are_warned_of() {
        let seen = NoMatch::default();
        let due = |seen: &NoMatch| seen.next_warning.load(Ordering::Relaxed);
        seen.see(Tick(7), std::iter::empty(), Vec::new);
        assert_eq!(due(&seen), 7 + WARNING_INTERVAL);
        seen.see(Tick(8), std::iter::empty(), || panic!("nothing is written"));
        assert_eq!((due(&seen), seen.count().allowed), (7 + WARNING_INTERVAL, 2));
        seen.see(Tick(7 + WARNING_INTERVAL), std::iter::empty(), Vec::new);
        assert_eq!(due(&seen), 7 + 2 * WARNING_INTERVAL);
    }
}
