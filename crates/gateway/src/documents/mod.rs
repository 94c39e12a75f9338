//! The gateway's part of the configuration: upstreams and routes, from the file and from the control store.
//!
//! ```text
//!   file                stored
//!   [[upstream]]   -->  documents of kind upstream    a stored document hides the file's of its name
//!   [[route]]      -->  documents of kind route
//! ```
//!
//! What cannot be in force is set aside: a document that does not parse, one too many, a route whose upstream
//! is not there, a route that can never match. A change or a file that would set aside what is in force is
//! refused. The policies that routes list belong to the decision service: they are looked up by name among
//! its documents ([`Service::dangling`]).
//!
//! An upstream that names an `app` has the backends as servers that registered for it: documents of the edge, which are
//! read here as far as they say where a backend is (`documents/registered.rs`).
//!
//! Beside them there may be a candidate (`documents/candidate.rs`): what some of them would be.
//!
//! A document whose revision did not change is not read again, and a change of other services' documents
//! leaves the gateway alone.

mod announce;
pub mod candidate;
mod file;
mod kinds;
mod registered;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tidegate_algorithms::document::Mistake;
use tidegate_control::{Change, Kind, LayeredDocument, Origin, Parts, Service, SetAside, Snapshot};

use self::candidate::{CANDIDATE, StoredCandidate};
pub use self::file::GatewayLayer;
use self::kinds::{ROUTES, UPSTREAMS};
use self::registered::{REGISTRATION, with_registered};
use crate::config::{CandidateConfig, GatewayConfig, RouteConfig, UpstreamConfig, never_matches};
use crate::routes::table::unreachable;
use crate::service::Gateway;

/// Documents that are routes; their names are the routes'.
pub const ROUTE: Kind = Kind::new("route");

/// Documents that are upstreams; their names are the upstreams'.
pub const UPSTREAM: Kind = Kind::new("upstream");

/// What a route's `policies` name: the documents of another service.
const POLICY: Kind = Kind::new("policy");

/// Upstreams and routes that are in force together, and the stored documents that they were made from.
#[derive(Clone, Debug)]
pub struct Routing {
    documents: Snapshot,
    table: Arc<RoutingTable>,
    candidate: Option<Arc<StoredCandidate>>,
}

#[derive(Debug)]
struct RoutingTable {
    layer: Arc<GatewayLayer>,
    upstreams: Vec<LayeredDocument<UpstreamConfig>>,
    /// The same with the servers that have registered.
    served: Vec<Arc<UpstreamConfig>>,
    routes: Vec<LayeredDocument<RouteConfig>>,
    set_aside: Vec<SetAside>,
    /// Where each upstream and route stands in its list, by name.
    places: [HashMap<Arc<str>, usize>; 2],
    /// Each policy that a route lists, with the first place that does.
    listed: HashMap<Arc<str>, String>,
}

/// The routes and upstreams of a gateway.
pub struct Routes {
    gateway: Arc<Gateway>,
    in_force: Mutex<Option<TableInForce>>,
}

/// A table, the policies that its routes lack, and what is judged beside it.
type TableInForce = (Arc<RoutingTable>, HashSet<Arc<str>>, Option<Arc<CandidateConfig>>);

fn config(upstreams: Vec<Arc<UpstreamConfig>>, routes: &[LayeredDocument<RouteConfig>]) -> GatewayConfig {
    GatewayConfig {
        upstreams,
        routes: routes.iter().map(|entry| Arc::clone(&entry.config)).collect(),
        ..GatewayConfig::default()
    }
}

impl Routing {
    /// The upstreams and routes of a file with the stored ones on top.
    #[must_use]
    pub fn assemble(layer: Arc<GatewayLayer>, stored: &Snapshot) -> Self {
        let table = RoutingTable::assemble(layer, stored, None);
        let candidate = StoredCandidate::read(&table, stored);
        Self { documents: stored.clone(), table: Arc::new(table), candidate }
    }

    /// These, with other stored documents.
    fn after(&self, stored: &Snapshot) -> Self {
        let has_apps = self.table.upstreams.iter().any(|upstream| upstream.config.registered.is_some());
        let is_ours = |kind| kind == UPSTREAM || kind == ROUTE || (has_apps && kind == REGISTRATION);
        let (mut is_same_history, mut concerns_it, mut concerns_candidate) = (false, true, true);
        if let Some(changes) = stored.changes_since(&self.documents) {
            (is_same_history, concerns_it, concerns_candidate) = (true, false, false);
            for (kind, _) in changes {
                concerns_it |= is_ours(kind);
                concerns_candidate |= is_ours(kind) || kind == CANDIDATE || kind == POLICY;
            }
        }
        let table = if concerns_it {
            let last = Some(&*self.table).filter(|_| is_same_history);
            Arc::new(RoutingTable::assemble(Arc::clone(&self.table.layer), stored, last))
        } else {
            Arc::clone(&self.table)
        };
        let candidate =
            if concerns_candidate { StoredCandidate::read(&table, stored) } else { self.candidate.clone() };
        Self { documents: stored.clone(), table, candidate }
    }

    /// What is served.
    #[must_use]
    pub fn config(&self) -> GatewayConfig {
        config(self.table.served.clone(), &self.table.routes)
    }

    /// What is not in force, and why.
    #[must_use]
    pub fn set_aside(&self) -> &[SetAside] {
        &self.table.set_aside
    }

    /// The candidate, if it cannot be.
    fn candidate_aside(&self) -> Option<SetAside> {
        self.candidate.as_ref().and_then(|candidate| candidate.set_aside())
    }

    /// What is set aside and was not, or for another reason, in the set before.
    fn newly_aside<'a>(&'a self, last: Option<&'a Self>) -> impl Iterator<Item = &'a SetAside> {
        let known = last.map(|last| &*last.table.set_aside).unwrap_or_default();
        let known: HashMap<(Kind, &str), &SetAside> =
            known.iter().map(|it| ((it.kind, &*it.name), it)).collect();
        let is_new = move |it: &&SetAside| known.get(&(it.kind, &*it.name)).is_none_or(|old| **old != **it);
        self.table.set_aside.iter().filter(is_new)
    }
}

impl RoutingTable {
    fn assemble(layer: Arc<GatewayLayer>, stored: &Snapshot, last: Option<&Self>) -> Self {
        let mut set_aside = Vec::new();
        let known = last.map(|last| &*last.upstreams).unwrap_or_default();
        let upstreams = UPSTREAMS.merge(&layer.upstreams, stored, known, &mut set_aside);
        let known = last.map(|last| &*last.routes).unwrap_or_default();
        let mut routes = ROUTES.merge(&layer.routes, stored, known, &mut set_aside);
        let names: HashSet<&str> = upstreams.iter().map(|upstream| &*upstream.config.name).collect();
        routes.retain(|route| {
            let unknown = route.config.upstreams().find(|(_, name)| !names.contains(&***name));
            if let Some((key, upstream)) = &unknown {
                let name = &route.config.name;
                set_aside.push(aside(
                    route,
                    Mistake {
                        pointer: format!("/route/{name}/{key}"),
                        problem: format!("is {upstream:?}, which is not the name of an upstream"),
                        accepted: "the name of an upstream".to_owned(),
                    },
                ));
            }
            unknown.is_none()
        });
        let configs: Vec<&RouteConfig> = routes.iter().map(|route| &*route.config).collect();
        let hidden: HashMap<usize, Arc<str>> = unreachable(&configs)
            .into_iter()
            .map(|(place, first)| (place, Arc::clone(&configs[first].name)))
            .collect();
        let mut place = 0;
        routes.retain(|route| {
            let first = hidden.get(&place);
            place += 1;
            if let Some(first) = first {
                let pointer = format!("/route/{}", route.config.name);
                set_aside.push(aside(route, Mistake { pointer, ..never_matches(first) }));
            }
            first.is_none()
        });
        let mut listed = HashMap::new();
        for route in &routes {
            for (index, policy) in route.config.policies.iter().enumerate() {
                let place = || format!("/route/{}/policies/{index}", route.config.name);
                listed.entry(Arc::clone(policy)).or_insert_with(place);
            }
        }
        let places = [places(&upstreams), places(&routes)];
        let served = with_registered(&upstreams, stored);
        Self { layer, upstreams, served, routes, set_aside, places, listed }
    }

    fn document(&self, kind: Kind, name: &str) -> Option<(&Arc<Value>, Origin)> {
        fn found<T>(entry: &LayeredDocument<T>) -> (&Arc<Value>, Origin) {
            (&entry.document, entry.origin())
        }
        let [upstreams, routes] = &self.places;
        if kind == ROUTE {
            return routes.get(name).map(|place| found(&self.routes[*place]));
        }
        upstreams.get(name).map(|place| found(&self.upstreams[*place]))
    }
}

fn places<T>(entries: &[LayeredDocument<T>]) -> HashMap<Arc<str>, usize> {
    entries.iter().enumerate().map(|(place, entry)| (Arc::clone(&entry.name), place)).collect()
}

/// A route that cannot be in force beside the others.
fn aside(route: &LayeredDocument<RouteConfig>, mistake: Mistake) -> SetAside {
    let (name, revision) = (route.name.to_string(), route.revision);
    SetAside { kind: ROUTE, name, revision, mistakes: vec![mistake] }
}

impl Routes {
    /// Those of `gateway`.
    #[must_use]
    pub fn new(gateway: Arc<Gateway>) -> Self {
        Self { gateway, in_force: Mutex::default() }
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Routes").finish_non_exhaustive()
    }
}

impl Service for Routes {
    const KINDS: &'static [Kind] = &[UPSTREAM, ROUTE, CANDIDATE];
    type Layer = GatewayLayer;
    type Set = Routing;

    fn assemble(&self, layer: Arc<GatewayLayer>, stored: &Snapshot) -> Routing {
        Routing::assemble(layer, stored)
    }

    fn after(&self, last: &Routing, stored: &Snapshot) -> Routing {
        last.after(stored)
    }

    fn objections(&self, last: &Routing, next: &Routing, change: Option<&Change>) -> Vec<Mistake> {
        if Arc::ptr_eq(&last.table, &next.table) || change.is_some_and(|it| !Self::KINDS.contains(&it.kind)) {
            return Vec::new();
        }
        next.newly_aside(Some(last)).flat_map(|it| it.mistakes.iter().cloned()).collect()
    }

    fn dangling(&self, set: &Routing, parts: &Parts) -> Vec<Mistake> {
        let wrong = |(policy, place): (&Arc<str>, &String)| {
            let problem = format!("is {policy:?}, which is not the name of a policy");
            Mistake { pointer: place.clone(), problem, accepted: "the name of a policy".to_owned() }
        };
        let missing = set.table.listed.iter().filter(|(policy, _)| !parts.has(POLICY, policy));
        missing.map(wrong).collect()
    }

    fn document(&self, set: &Routing, kind: Kind, name: &str) -> Option<Value> {
        if kind == CANDIDATE {
            let document = set.documents.get(kind, name)?;
            return serde_json::from_str(&document.body).ok();
        }
        set.table.document(kind, name).map(|(document, _)| Value::clone(document))
    }

    fn origin(&self, set: &Routing, kind: Kind, name: &str) -> Option<Origin> {
        if kind == CANDIDATE {
            return set.documents.get(kind, name).map(|document| Origin::Stored(document.revision));
        }
        set.table.document(kind, name).map(|(_, origin)| origin)
    }

    fn names(&self, set: &Routing, kind: Kind) -> Vec<Arc<str>> {
        match kind {
            ROUTE => set.table.routes.iter().map(|route| Arc::clone(&route.config.name)).collect(),
            CANDIDATE => set.documents.documents(kind).map(|it| Arc::clone(&it.name)).collect(),
            _ => set.table.upstreams.iter().map(|upstream| Arc::clone(&upstream.config.name)).collect(),
        }
    }

    fn set_aside(&self, set: &Routing) -> Vec<SetAside> {
        set.table.set_aside.iter().cloned().chain(set.candidate_aside()).collect()
    }

    fn set_aside_count(&self, set: &Routing) -> usize {
        set.table.set_aside.len() + usize::from(set.candidate_aside().is_some())
    }

    fn announce(&self, last: Option<&Routing>, next: &Routing) {
        let aside = next.candidate_aside();
        if aside != last.and_then(Routing::candidate_aside) {
            announce::set_aside(aside.iter());
        }
        let Some(last) = last else {
            return announce::set_aside(next.newly_aside(None));
        };
        if Arc::ptr_eq(&last.table, &next.table) {
            return;
        }
        let (before, after) = (&last.table.layer, &next.table.layer);
        if !Arc::ptr_eq(before, after) {
            announce::file(UPSTREAM, &before.upstreams, &after.upstreams);
            announce::file(ROUTE, &before.routes, &after.routes);
        }
        announce::set_aside(next.newly_aside(Some(last)));
    }

    fn put_in_force(&self, set: Arc<Routing>, parts: &Parts) {
        let missing = set.table.listed.keys().filter(|policy| !parts.has(POLICY, policy));
        let missing_policies: HashSet<Arc<str>> = missing.cloned().collect();
        let candidate = set.candidate.as_ref().and_then(|it| it.judged(&set.table, parts));
        let mut in_force = self.in_force.lock();
        let is_same = in_force.as_ref().is_some_and(|(table, missing, judged)| {
            Arc::ptr_eq(table, &set.table) && *missing == missing_policies && *judged == candidate
        });
        if !is_same {
            let missing = missing_policies.clone();
            let config = GatewayConfig { missing_policies, candidate: candidate.clone(), ..set.config() };
            self.gateway.apply(&config);
            *in_force = Some((Arc::clone(&set.table), missing, candidate));
        }
    }
}
