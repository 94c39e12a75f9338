//! A candidate: a second configuration, judged beside the one in force on the requests that come, with what it would change
//! counted.
//!
//! ```text
//!   request ── route in force ──────> goes its way
//!        `──── candidate's route ── the same one, unchanged: counted as that
//!                              `─── otherwise: both outcomes (judge.rs) ── compared, counted, an example kept
//! ```
//!
//! Both outcomes are judged by one function of the request and the configuration, so that a server that is down is no
//! difference. Nothing is charged, sent, fetched or waited for, and the request never learns of it.
//!
//! It stands in the site that a request has anyway: without a candidate a request pays a look at an `Option`; with one, a
//! second look-up and a counter; where the two differ, both judgements, and a lock that is tried and never waited for.
//!
//! The counts begin anew with every change of either side: they are about one candidate beside one configuration.
//!
//! Bounds: [`MAX_EXAMPLES`] of each difference.

mod judge;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidegate_algorithms::time::Wall;

use crate::config::{Action, CandidateConfig, GatewayConfig, RouteConfig};
use crate::observed::access_log::line::cut;
use crate::routes::route::Route;
use crate::routes::table::Table;
pub(crate) use judge::JudgedRequest;
pub use judge::{Does, JudgedOutcome};

/// Most examples that are kept of each difference: each of another pair of outcomes.
pub const MAX_EXAMPLES: usize = 10;

/// Most bytes that are kept of a path, and of another text of a client.
const MAX_PATH_BYTES: usize = 512;
const MAX_TEXT_BYTES: usize = 128;

/// How a request would fare otherwise: the first of these that is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It would not.
    Same,
    /// It would be refused, and is not.
    WouldRefuse,
    /// It is refused, and would not be.
    WouldAdmit,
    /// It would go to another upstream, or to one of that name that is another.
    OtherUpstream,
    /// The gateway would answer itself, or otherwise than it does.
    OtherReply,
    /// Another route would take it, to the same upstream.
    OtherRoute,
    /// It would be charged under other policies.
    OtherLimits,
    /// Its route would do something else: fields, times, sizes, what it asks for.
    OtherOptions,
}

impl Difference {
    const ALL: [Self; 8] = [
        Self::Same,
        Self::WouldRefuse,
        Self::WouldAdmit,
        Self::OtherUpstream,
        Self::OtherReply,
        Self::OtherRoute,
        Self::OtherLimits,
        Self::OtherOptions,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::WouldRefuse => "would_refuse",
            Self::WouldAdmit => "would_admit",
            Self::OtherUpstream => "other_upstream",
            Self::OtherReply => "other_reply",
            Self::OtherRoute => "other_route",
            Self::OtherLimits => "other_limits",
            Self::OtherOptions => "other_options",
        }
    }
}

/// Requests by difference.
pub type DifferenceCounts = [(&'static str, u64); Difference::ALL.len()];

/// A request that would fare otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Example {
    /// In which way.
    pub difference: &'static str,
    /// The first such request: its method.
    pub method: String,
    /// Its host.
    pub host: String,
    /// Its path, without a query.
    pub path: String,
    /// What becomes of it.
    pub in_force: JudgedOutcome,
    /// What would.
    pub candidate: JudgedOutcome,
    /// Requests like it: of the same difference and outcomes.
    pub requests: u64,
}

/// What was found so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateStats {
    /// Of which candidate.
    pub revision: u64,
    /// Since when, by civil time.
    pub since: Wall,
    /// Requests by difference.
    pub counts: DifferenceCounts,
    /// Some requests that would end differently.
    pub examples: Vec<Example>,
    /// Such requests that no example counts.
    pub without_example: u64,
}

impl CandidateStats {
    /// The same for people.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let since = i64::try_from(self.since.0 / 1_000_000_000).unwrap_or(i64::MAX);
        let since = Timestamp::from_second(since).map(|since| since.to_string()).unwrap_or_default();
        let requests: u64 = self.counts.iter().map(|(_, count)| count).sum();
        let counts: Map<String, Value> =
            self.counts.iter().map(|(word, count)| ((*word).to_owned(), Value::from(*count))).collect();
        json!({"since": since, "requests": requests, "by_difference": counts, "examples": self.examples,
            "without_example": self.without_example})
    }
}

/// A candidate, beside the routes that it is compared with.
#[derive(Debug)]
pub(crate) struct Candidate {
    config: Arc<CandidateConfig>,
    routes: Vec<CandidateRoute>,
    table: Table,
    in_force: ComparedRoutes,
    since: Wall,
    counts: [AtomicU64; Difference::ALL.len()],
    examples: Mutex<Vec<Example>>,
    without_example: AtomicU64,
}

/// What it is compared with, as far as that bears on it.
#[derive(Debug, PartialEq)]
struct ComparedRoutes {
    routes: Vec<Arc<RouteConfig>>,
    missing_policies: HashSet<Arc<str>>,
}

#[derive(Debug)]
struct CandidateRoute {
    config: Arc<RouteConfig>,
    lacks_policy: bool,
    twin: Option<Twin>,
}

/// The route in force of the same name.
#[derive(Debug)]
struct Twin {
    position: usize,
    /// Whatever it takes fares the same on both.
    is_same: bool,
    /// How the two differ in what a judgement does not look at.
    rest: Difference,
}

impl Candidate {
    /// This candidate beside what `served` puts in force: the one before, with its counts, if neither has changed.
    pub(crate) fn beside(
        served: &GatewayConfig,
        config: &Arc<CandidateConfig>,
        before: Option<&Arc<Self>>,
        now: Wall,
    ) -> Arc<Self> {
        let (routes, missing_policies) = (served.routes.clone(), served.missing_policies.clone());
        let in_force = ComparedRoutes { routes, missing_policies };
        if let Some(same) = before.filter(|it| it.config == *config && it.in_force == in_force) {
            return Arc::clone(same);
        }
        let positions: HashMap<&str, usize> =
            in_force.routes.iter().enumerate().map(|(position, route)| (&*route.name, position)).collect();
        let lacks = |route: &RouteConfig, missing: &HashSet<Arc<str>>| {
            route.policies.iter().any(|policy| missing.contains(policy))
        };
        let routes = config.routes.iter().map(|route| {
            let lacks_policy = lacks(route, &config.missing_policies);
            let twin = positions.get(&*route.name).map(|&position| {
                let other = &in_force.routes[position];
                let changes = route.upstreams().any(|(_, name)| config.changed_upstreams.contains(name));
                let is_same =
                    other == route && !changes && lacks_policy == lacks(other, &in_force.missing_policies);
                Twin { position, is_same, rest: rest(other, route) }
            });
            CandidateRoute { config: Arc::clone(route), lacks_policy, twin }
        });
        Arc::new(Self {
            routes: routes.collect(),
            table: Table::new(config.routes.iter().map(|route| &**route)),
            config: Arc::clone(config),
            in_force,
            since: now,
            counts: Default::default(),
            examples: Mutex::default(),
            without_example: AtomicU64::default(),
        })
    }

    /// Counts how a request would fare that the route `in_force`, at its position, takes, or none.
    pub(crate) fn compare(&self, request: &JudgedRequest<'_>, in_force: Option<(usize, &Route)>) {
        let accepts = |position: usize| Route::takes(&self.routes[position].config, request.parts);
        let encoded = |position: usize| self.routes[position].config.slashes.encoded;
        let found = self.table.route(request.host, request.path, accepts, encoded);
        let (found, refusal) = found.map_or_else(|refusal| (None, Some(refusal)), |found| (found, None));
        let candidate = found.map(|position| &self.routes[position]);
        let twin = candidate.and_then(|route| route.twin.as_ref());
        let twin = twin.filter(|twin| in_force.is_some_and(|(position, _)| position == twin.position));
        let refused = refusal.as_ref().map(Does::refuse);
        let difference = match (in_force, candidate) {
            (None, None) if refused.is_none() => Difference::Same,
            _ if twin.is_some_and(|twin| twin.is_same) => Difference::Same,
            _ => self.judge(request, in_force.map(|(_, route)| route), (candidate, twin), refused),
        };
        self.counts[difference as usize].fetch_add(1, Relaxed);
    }

    /// Judges both sides, and keeps an example if they differ. `refused`: what the candidate does without a route.
    fn judge(
        &self,
        request: &JudgedRequest<'_>,
        in_force: Option<&Route>,
        (candidate, twin): (Option<&CandidateRoute>, Option<&Twin>),
        refused: Option<Does>,
    ) -> Difference {
        let sides = (
            in_force.map(|route| (&*route.config, route.lacks.is_some())),
            candidate.map(|route| (&*route.config, route.lacks_policy)),
        );
        let (is, mut would) = request.outcomes(sides);
        would.does = refused.unwrap_or(would.does);
        let replies = |side: Option<(&RouteConfig, bool)>| match side.map(|(route, _)| &route.action) {
            Some(Action::Forward { .. }) | None => None,
            own => own.cloned(),
        };
        let difference = match (&is.does, &would.does) {
            (Does::Refuse { .. }, Does::Refuse { .. }) if is.does == would.does => Difference::Same,
            (Does::Refuse { .. }, Does::Refuse { .. }) => Difference::OtherReply,
            (_, Does::Refuse { .. }) => Difference::WouldRefuse,
            (Does::Refuse { .. }, _) => Difference::WouldAdmit,
            (Does::Forward(one), Does::Forward(other)) => {
                if one != other || self.config.changed_upstreams.contains(other) {
                    Difference::OtherUpstream
                } else {
                    twin.map_or(Difference::OtherRoute, |twin| twin.rest)
                }
            }
            (one, other) if one != other => Difference::OtherReply,
            _ if replies(sides.0) != replies(sides.1) => Difference::OtherReply,
            _ => twin.map_or(Difference::OtherRoute, |twin| twin.rest),
        };
        if difference != Difference::Same {
            self.keep(difference, request, is, would);
        }
        difference
    }

    /// Keeps an example, or counts on one that is kept.
    fn keep(
        &self,
        difference: Difference,
        request: &JudgedRequest<'_>,
        is: JudgedOutcome,
        would: JudgedOutcome,
    ) {
        let word = difference.word();
        let Some(mut examples) = self.examples.try_lock() else {
            self.without_example.fetch_add(1, Relaxed);
            return;
        };
        let mut alike = 0;
        for example in examples.iter_mut().filter(|example| example.difference == word) {
            if example.in_force == is && example.candidate == would {
                example.requests += 1;
                return;
            }
            alike += 1;
        }
        if alike == MAX_EXAMPLES {
            self.without_example.fetch_add(1, Relaxed);
            return;
        }
        // A terminal that shows them would obey control characters.
        let shown = |text: &str, most: usize| cut(text, most).replace(char::is_control, "\u{fffd}");
        examples.push(Example {
            difference: word,
            method: shown(request.parts.method.as_str(), MAX_TEXT_BYTES),
            host: shown(request.host, MAX_TEXT_BYTES),
            path: shown(&request.path.normal, MAX_PATH_BYTES),
            in_force: is,
            candidate: would,
            requests: 1,
        });
    }

    pub(crate) fn stats(&self) -> CandidateStats {
        let examples = self.examples.lock().clone();
        let without_example = self.without_example.load(Relaxed);
        CandidateStats {
            revision: self.config.revision,
            since: self.since,
            counts: self.counts(),
            examples,
            without_example,
        }
    }

    pub(crate) fn counts(&self) -> DifferenceCounts {
        Difference::ALL.map(|difference| (difference.word(), self.counts[difference as usize].load(Relaxed)))
    }
}

/// The counts where there is no candidate.
pub(crate) fn no_counts() -> DifferenceCounts {
    Difference::ALL.map(|difference| (difference.word(), 0))
}

/// How two routes of one name differ beside which requests they take and where these go: that is judged for each request.
fn rest(in_force: &RouteConfig, candidate: &RouteConfig) -> Difference {
    if in_force.policies != candidate.policies {
        return Difference::OtherLimits;
    }
    let judged = in_force.clone();
    let alike = RouteConfig {
        hosts: judged.hosts,
        path: judged.path,
        methods: judged.methods,
        fields: judged.fields,
        cookies: judged.cookies,
        query: judged.query,
        action: judged.action,
        split: judged.split,
        maintenance: judged.maintenance,
        ..candidate.clone()
    };
    if alike == *in_force { Difference::Same } else { Difference::OtherOptions }
}

#[cfg(test)]
mod tests;
