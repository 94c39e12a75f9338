//! What requests were answered, each counted once however many policies it is under: by the door through which it came.
//!
//! The share of requests that are denied cannot be had from the policies' own tallies: a request that one of three
//! policies denies is one verdict of three there. Nor are requests there to which no policy applies, or whose route,
//! listener or intake lists none. Those are counted here as unmatched, unless `on_no_match` denied them.
//!
//! Deliberately absent: requests that got no decision (the store gave no answer, an attribute had no one value). Their
//! protocol's own metrics have them.

use crate::tally::Tally;

/// Through which door a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The HTTP API.
    Http,
    /// Envoy's rate-limit service.
    Grpc,
    /// Commands of Redis clients.
    Resp,
    /// A request that the gateway routes.
    Gateway,
    /// A connection that the edge accepts.
    Edge,
    /// Bytes of a connection, which are no request and are counted nowhere here.
    EdgeBytes,
    /// A batch of metrics.
    Intake,
}

/// The answers of one door, read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerCount {
    /// Allowed by all policies that apply.
    pub allowed: u64,
    /// Denied by a policy, or by `on_no_match`.
    pub denied: u64,
    /// Let through since no policy applies.
    pub unmatched: u64,
}

/// What all requests were answered.
#[derive(Debug, Default)]
pub struct Answers {
    by_door: [DoorAnswers; Door::COUNTED.len()],
}

/// The answers of one door.
#[derive(Debug, Default)]
struct DoorAnswers {
    decided: Tally,
    unmatched: Tally,
}

impl Door {
    /// Those whose requests are counted.
    pub const COUNTED: [Self; 6] =
        [Self::Http, Self::Grpc, Self::Resp, Self::Gateway, Self::Edge, Self::Intake];

    /// Its name as the value of a label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
            Self::Gateway => "gateway",
            Self::Edge => "edge",
            Self::EdgeBytes => "edge_bytes",
            Self::Intake => "intake",
        }
    }
}

impl Answers {
    /// Counts a request. `is_matched`: policies apply to it.
    pub(crate) fn count(&self, door: Door, allowed: bool, is_matched: bool) {
        let Some(answers) = self.at(door) else { return };
        let tally = if allowed && !is_matched { &answers.unmatched } else { &answers.decided };
        tally.count(allowed, true, false);
    }

    /// Counts requests to which policies apply and that were decided together.
    pub(crate) fn count_together(&self, door: Door, allowed: u64, denied: u64) {
        if let Some(answers) = self.at(door) {
            answers.decided.count_together(allowed, denied);
        }
    }

    /// Counts a request for which no policies are listed where it came in.
    pub fn count_unlimited(&self, door: Door) {
        self.count(door, true, false);
    }

    /// The answers of one door.
    #[must_use]
    pub fn read(&self, door: Door) -> AnswerCount {
        let read = |answers: &DoorAnswers| {
            let decided = answers.decided.read();
            let unmatched = answers.unmatched.read().allowed;
            AnswerCount { allowed: decided.allowed, denied: decided.denied, unmatched }
        };
        self.at(door).map(read).unwrap_or_default()
    }

    fn at(&self, door: Door) -> Option<&DoorAnswers> {
        let place = Door::COUNTED.iter().position(|counted| *counted == door)?;
        self.by_door.get(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_once_under_its_door_and_its_answer() {
        let answers = Answers::default();
        for (allowed, is_matched) in [(true, true), (false, true), (true, false), (false, false)] {
            answers.count(Door::Gateway, allowed, is_matched);
        }
        answers.count_unlimited(Door::Gateway);
        answers.count_together(Door::Resp, 3, 1);
        answers.count(Door::EdgeBytes, false, true);
        assert_eq!(answers.read(Door::Gateway), AnswerCount { allowed: 1, denied: 2, unmatched: 2 });
        assert_eq!(answers.read(Door::Resp), AnswerCount { allowed: 3, denied: 1, unmatched: 0 });
        for door in [Door::Http, Door::Grpc, Door::Edge, Door::EdgeBytes, Door::Intake] {
            assert_eq!(answers.read(door), AnswerCount::default(), "{door:?}");
        }
    }
}
