//! The attributes of a question about a decision, read as the decision reads them: an explanation or a reset that read `path` in
//! another way would speak of another counter.
//!
//! Deliberately absent: how decisions read them, which is in `decisions.rs`; a test here compares the two.

use std::borrow::Cow;

use tidegate_algorithms::policy::Attributes;
use tidegate_wire::path::readings;

use crate::policy_set::PolicySet;

/// Attributes as `POST /v1/decisions` reads them.
#[derive(Clone, Debug)]
pub struct DecidedAttributes<'a>(Vec<(&'a str, Cow<'a, [u8]>)>);

impl<'a> DecidedAttributes<'a> {
    /// `attributes` with `path` in its normal form, and other readings behind it where servers disagree (fault 54), if a policy looks
    /// at the path, or if numbers come with the request.
    #[must_use]
    pub fn new(set: &PolicySet, attributes: &Attributes<'a>, has_limits: bool) -> Self {
        let mut read: Vec<_> = attributes.iter().map(|(name, value)| (name, Cow::Borrowed(value))).collect();
        let path = attributes.value("path").filter(|_| has_limits || set.uses("path"));
        if let Some(path) = path {
            let found = readings(path);
            if let Some((_, first)) = read.iter_mut().find(|(name, _)| *name == "path") {
                *first = found.first;
            }
            let others = found.other.into_iter().chain(found.literal);
            read.extend(others.map(|other| ("path", Cow::Owned(other))));
        }
        Self(read)
    }

    /// As [`Attributes::new`] takes them.
    #[must_use]
    pub fn pairs(&self) -> Vec<(&str, &[u8])> {
        self.0.iter().map(|(name, value)| (*name, &**value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tidegate_algorithms::policy::parse;
    use tidegate_control::Snapshot;
    use tidegate_wire::bodies::{DecisionBody, read};

    use super::super::decisions::normalise;
    use super::*;
    use crate::policy_set::FileLayer;
    use crate::tally::Tallies;

    #[test]
    fn fault_54_a_question_reads_a_path_as_the_decision_does() {
        let by_path = json!({"name": "a", "key": ["path"], "limit": 1, "window_seconds": 1});
        let by_client = json!({"name": "a", "key": ["client_id"], "limit": 1, "window_seconds": 1});
        for policy in [by_path, by_client] {
            let file = FileLayer { policies: vec![parse(&policy, "").unwrap()], ..FileLayer::default() };
            let set = PolicySet::assemble(Arc::new(file), Snapshot::default(), &Tallies::default());
            for limits in [None, Some(json!({"limit": 1, "window_seconds": 1}))] {
                for path in ["/pay", "//%70ay/", "/a%2fb", "/a\\b;x/../c", "/100%", "*", "", "/a?b"] {
                    let mut body = json!({"attributes": {"client_id": "c", "path": path, "method": "GET"}});
                    if let Some(limits) = &limits {
                        body["limits"] = limits.clone();
                    }
                    let text = body.to_string();
                    let mut decided: DecisionBody<'_> = read(text.as_bytes()).unwrap();
                    normalise(&set, &mut decided);
                    let mut decided: Vec<(&str, &[u8])> = decided
                        .attributes
                        .0
                        .iter()
                        .map(|(name, value)| (&**name, value.as_bytes()))
                        .collect();
                    let stated: [(&str, &[u8]); 3] =
                        [("client_id", b"c"), ("path", path.as_bytes()), ("method", b"GET")];
                    let asked = DecidedAttributes::new(&set, &Attributes::new(&stated), limits.is_some());
                    let mut asked = asked.pairs();
                    // The order of different attributes says nothing; that of the readings does, and a sort by name keeps it.
                    asked.sort_by_key(|(name, _)| *name);
                    decided.sort_by_key(|(name, _)| *name);
                    assert_eq!(asked, decided, "{path} {limits:?}");
                }
            }
        }
    }
}
