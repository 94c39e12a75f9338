//! The candidate: documents of policies, upstreams and routes that are judged beside those in force, kept as one document.
//!
//! ```text
//!   PUT ──> Proposal ── the changes that it stands for ── made on a copy of what is stored ──> what there would be
//!                              |                                                                   `──> judged
//!   promoted ──> the same changes, each if its document is still what it was when the candidate was put
//! ```
//!
//! So what is judged is what a promotion makes, by the same function. A candidate that no longer goes with what is in force is
//! set aside and judges nothing; it never keeps anybody from changing what is in force.
//!
//! Policies are the decision service's, which judges them: here they are names, which routes may list, and documents to promote.
//!
//! The stored document is the one that was sent, and `base`: the revision that each document had then; a digest, if it stood in
//! the file alone; 0, if it was not there.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tidegate_algorithms::document::{DocumentReader, MAX_MISTAKES, Mistake};
use tidegate_control::{
    Change, ChangeError, Error, Kind, Origin, Parts, Precondition, Revision, SetAside, Snapshot,
};

use super::kinds::{ROUTES, UPSTREAMS};
use super::{POLICY, ROUTE, Routes, RoutingTable, UPSTREAM};
use crate::config::{CandidateConfig, UpstreamConfig};

/// The kind of the one document that is the candidate.
pub const CANDIDATE: Kind = Kind::new("candidate");

/// Its name.
pub const CANDIDATE_NAME: &str = "candidate";

/// Most documents of each kind that a candidate changes, and most that it removes: beside other changes they fit into
/// one transaction.
pub const MAX_CHANGED: usize = 150;

/// Where mistakes in it point.
const POINTER: &str = "/candidate/candidate";

const BASE: &str = "base";
const SENT_KEYS: [&str; 4] = ["policy", "upstream", "route", "remove"];
const STORED_KEYS: [&str; 5] = ["policy", "upstream", "route", "remove", BASE];
const KINDS: [Kind; 3] = [POLICY, UPSTREAM, ROUTE];
const MAX_NAME: usize = 64;

/// The stored candidate, for people.
#[derive(Clone, Debug)]
pub struct ShownCandidate {
    /// Its version.
    pub revision: Revision,
    /// As it was sent.
    pub document: Value,
    /// Why it is not judged, if it is not.
    pub mistakes: Vec<Mistake>,
}

/// A document that it changes or removes.
struct NamedDocument<'d> {
    kind: Kind,
    name: &'d str,
    /// `None`: it is removed.
    document: Option<&'d Value>,
    /// Its place in its list.
    index: usize,
}

impl NamedDocument<'_> {
    fn pointer(&self) -> String {
        let list = if self.document.is_some() { "" } else { "/remove" };
        format!("{POINTER}{list}/{}/{}", self.kind, self.index)
    }
}

/// What a candidate would change, each document under a name of its own.
struct Proposal<'d>(Vec<NamedDocument<'d>>);

impl<'d> Proposal<'d> {
    fn read(document: &'d Value, keys: &[&str]) -> Result<Self, Vec<Mistake>> {
        let mut reader = DocumentReader::new(document, POINTER, keys)?;
        let (mut all, mut is_empty) = (Vec::new(), true);
        for kind in KINDS {
            for (index, value) in reader.list(kind.as_str(), MAX_CHANGED).iter().enumerate() {
                is_empty = false;
                let pointer = format!("{POINTER}/{kind}/{index}");
                let read = match kind {
                    ROUTE => (ROUTES.read)(value, &pointer).map(drop),
                    UPSTREAM => (UPSTREAMS.read)(value, &pointer).map(drop),
                    // The decision service reads its own.
                    _ => Ok(()),
                };
                reader.mistakes.extend(read.err().unwrap_or_default());
                if let Some(name) = value.get("name").and_then(Value::as_str) {
                    all.push(NamedDocument { kind, name, document: Some(value), index });
                }
            }
        }
        if let Some(removed) = reader.field("remove") {
            let names = KINDS.map(|kind| kind.as_str());
            let mut inner = DocumentReader::new(removed, &format!("{POINTER}/remove"), &names)?;
            for kind in KINDS {
                let names = inner.texts(kind.as_str(), MAX_CHANGED, 1, MAX_NAME);
                all.extend(names.into_iter().enumerate().map(|(index, name)| NamedDocument {
                    kind,
                    name,
                    document: None,
                    index,
                }));
            }
            reader.mistakes.extend(inner.mistakes);
        }
        for (place, named) in all.iter().enumerate() {
            if all[..place].iter().any(|other| (other.kind, other.name) == (named.kind, named.name)) {
                reader.mistakes.push(Mistake {
                    pointer: named.pointer(),
                    problem: format!("is about {} {:?}, as is an earlier one", named.kind, named.name),
                    accepted: "each document once".to_owned(),
                });
            }
        }
        if is_empty && all.is_empty() && reader.mistakes.is_empty() {
            reader.mistake("route", "is missing, and so are upstream, policy and remove", "one of them");
        }
        reader.mistakes.truncate(MAX_MISTAKES);
        if reader.mistakes.is_empty() { Ok(Self(all)) } else { Err(reader.mistakes) }
    }

    /// The changes that make it, each with what it presumes.
    fn changes(&self, presumed: impl Fn(&NamedDocument<'_>) -> Precondition) -> Vec<Change> {
        let change = |named: &NamedDocument<'_>| {
            let change = match named.document {
                Some(document) => Change::put(named.kind, named.name, document.to_string()),
                None => Change::delete(named.kind, named.name),
            };
            change.when(presumed(named))
        };
        self.0.iter().map(change).collect()
    }

    /// What there would be.
    fn table(&self, live: &RoutingTable, stored: &Snapshot) -> Result<RoutingTable, Vec<Mistake>> {
        let gone = self.0.iter().filter(|named| named.document.is_none());
        let gone = gone.filter(|named| stored.get(named.kind, named.name).is_none());
        let gone: Vec<Mistake> = gone
            .map(|named| {
                let problem = match live.document(named.kind, named.name) {
                    _ if named.kind == POLICY => format!("is {:?}, of which nothing is stored", named.name),
                    Some(_) => format!("is {:?}, which stands in the configuration file", named.name),
                    None => format!("is {:?}, which is not there", named.name),
                };
                let accepted = format!("the name of a stored {}", named.kind);
                Mistake { pointer: named.pointer(), problem, accepted }
            })
            .collect();
        if !gone.is_empty() {
            return Err(gone);
        }
        let changes = self.changes(|_| Precondition::None);
        let next = stored.changed(&changes).map_err(|error| {
            let accepted = "a candidate that there is room for".to_owned();
            vec![Mistake { pointer: POINTER.to_owned(), problem: format!("cannot be: {error}"), accepted }]
        })?;
        let table = RoutingTable::assemble(Arc::clone(&live.layer), &next, Some(live));
        let newly = table.set_aside.iter().filter(|it| !live.set_aside.contains(it));
        let mistakes: Vec<Mistake> =
            newly.flat_map(|it| it.mistakes.iter().map(|mistake| self.as_sent(mistake))).collect();
        if mistakes.is_empty() { Ok(table) } else { Err(mistakes) }
    }

    /// Whether it has documents of this kind, or removes some.
    fn concerns(&self, kind: Kind) -> bool {
        self.0.iter().any(|named| named.kind == kind)
    }

    /// The policies that it puts, or those that it removes.
    fn policies(&self, put: bool) -> HashSet<Arc<str>> {
        let policies = self.0.iter().filter(|it| it.kind == POLICY && it.document.is_some() == put);
        policies.map(|it| Arc::from(it.name)).collect()
    }

    /// A mistake in a document by its name, where that is one of these.
    fn as_sent(&self, mistake: &Mistake) -> Mistake {
        let found = self.0.iter().filter(|named| named.document.is_some()).find_map(|named| {
            let within = mistake.pointer.strip_prefix(&format!("/{}/{}", named.kind, named.name))?;
            (within.is_empty() || within.starts_with('/')).then(|| format!("{}{within}", named.pointer()))
        });
        Mistake { pointer: found.unwrap_or_else(|| mistake.pointer.clone()), ..mistake.clone() }
    }
}

/// The candidate that is stored, and what there would be; or why that cannot be.
#[derive(Debug)]
pub(super) struct StoredCandidate {
    revision: Revision,
    table: Result<RoutingTable, Vec<Mistake>>,
    /// Whether it has routes or upstreams.
    concerns_routing: bool,
    /// The policies that it puts.
    policies: HashSet<Arc<str>>,
}

impl StoredCandidate {
    /// The one beside `live`, if there is one.
    pub(super) fn read(live: &RoutingTable, stored: &Snapshot) -> Option<Arc<Self>> {
        let document = stored.get(CANDIDATE, CANDIDATE_NAME)?;
        let body: Value = serde_json::from_str(&document.body).unwrap_or_default();
        let proposal = Proposal::read(&body, &STORED_KEYS);
        let concerns = |it: &Proposal<'_>| it.concerns(ROUTE) || it.concerns(UPSTREAM);
        let concerns_routing = proposal.as_ref().is_ok_and(concerns);
        let policies = proposal.as_ref().map(|it| it.policies(true)).unwrap_or_default();
        let table = proposal.and_then(|proposal| proposal.table(live, stored));
        Some(Arc::new(Self { revision: document.revision, table, concerns_routing, policies }))
    }

    fn mistakes(&self) -> &[Mistake] {
        self.table.as_ref().err().map_or(&[], Vec::as_slice)
    }

    pub(super) fn set_aside(&self) -> Option<SetAside> {
        let mistakes = self.mistakes().to_vec();
        let (name, revision) = (CANDIDATE_NAME.to_owned(), Some(self.revision));
        (!mistakes.is_empty()).then_some(SetAside { kind: CANDIDATE, name, revision, mistakes })
    }

    /// What is judged beside `live`.
    pub(super) fn judged(&self, live: &RoutingTable, parts: &Parts) -> Option<Arc<CandidateConfig>> {
        let table = self.table.as_ref().ok().filter(|_| self.concerns_routing)?;
        let has = |policy: &Arc<str>| self.policies.contains(policy) || parts.has(POLICY, policy);
        let missing = table.listed.keys().filter(|policy| !has(policy));
        let [places, _] = &live.places;
        let is_changed = |name: &Arc<str>, config: &UpstreamConfig| {
            places.get(name).is_some_and(|place| *live.upstreams[*place].config != *config)
        };
        let changed = table.upstreams.iter().map(|entry| &entry.config);
        let changed = changed.filter(|config| is_changed(&config.name, config));
        Some(Arc::new(CandidateConfig {
            revision: self.revision.0,
            routes: table.routes.iter().map(|entry| Arc::clone(&entry.config)).collect(),
            missing_policies: missing.cloned().collect(),
            changed_upstreams: changed.map(|config| Arc::clone(&config.name)).collect(),
        }))
    }
}

/// The change that makes this document the candidate, if it can be in force with what is. `has_policy`: whether there would be a
/// policy of that name.
///
/// # Errors
/// Everything that is wrong with it.
pub fn proposed(
    parts: &Parts,
    document: &Value,
    has_policy: impl Fn(&str) -> bool,
) -> Result<Change, ChangeError> {
    let (live, stored) = (&parts.of::<Routes>().table, parts.documents());
    let proposal = Proposal::read(document, &SENT_KEYS).map_err(ChangeError::Mistakes)?;
    let table = proposal.table(live, stored).map_err(ChangeError::Mistakes)?;
    // A policy that a route in force lists, too, is missing whatever becomes of the candidate, if that does not remove it.
    let removed = proposal.policies(false);
    let is_new = |policy: &Arc<str>| !live.listed.contains_key(policy) || removed.contains(policy);
    let missing = table.listed.iter().filter(|(policy, _)| is_new(policy) && !has_policy(policy));
    let missing: Vec<Mistake> = missing
        .map(|(policy, place)| {
            let problem = format!("is {policy:?}, which is not the name of a policy");
            let accepted = "the name of a policy".to_owned();
            proposal.as_sent(&Mistake { pointer: place.clone(), problem, accepted })
        })
        .collect();
    if !missing.is_empty() {
        return Err(ChangeError::Mistakes(missing));
    }
    let mut base = KINDS.map(|_| Map::new());
    for named in &proposal.0 {
        let was = match stored.get(named.kind, named.name) {
            Some(document) => document.revision.0.into(),
            None => in_file(parts, named),
        };
        if let Some(place) = KINDS.iter().position(|kind| *kind == named.kind) {
            base[place].insert(named.name.to_owned(), was);
        }
    }
    let [policies, upstreams, routes] = base;
    let mut body = document.clone();
    body[BASE] = json!({"policy": policies, "upstream": upstreams, "route": routes});
    Ok(Change::put(CANDIDATE, CANDIDATE_NAME, body.to_string()))
}

/// The changes that put the stored candidate in force.
///
/// # Errors
/// There is no candidate, or the document is not one.
pub fn promoted(parts: &Parts) -> Result<Vec<Change>, ChangeError> {
    let document = parts
        .documents()
        .get(CANDIDATE, CANDIDATE_NAME)
        .ok_or_else(|| Error::NotFound { kind: CANDIDATE, name: CANDIDATE_NAME.to_owned() })?;
    let body: Value = serde_json::from_str(&document.body).unwrap_or_default();
    let proposal = Proposal::read(&body, &STORED_KEYS).map_err(ChangeError::Mistakes)?;
    let was = |named: &NamedDocument<'_>| &body[BASE][named.kind.as_str()][named.name];
    let stored = |named: &NamedDocument<'_>| was(named).as_u64().filter(|revision| *revision > 0);
    if let Some(named) = proposal.0.iter().find(|it| stored(it).is_none() && in_file(parts, it) != *was(it)) {
        return Err(ChangeError::FileChanged { kind: named.kind, name: named.name.to_owned() });
    }
    Ok(proposal.changes(|named| match stored(named) {
        None => Precondition::IfNoneMatch,
        Some(revision) => Precondition::IfMatch(Revision(revision)),
    }))
}

/// What `base` says of a document that is not stored. Where one was stored meanwhile, that is told by its revision.
fn in_file(parts: &Parts, named: &NamedDocument<'_>) -> Value {
    let is_in_file = parts.origin(named.kind, named.name) == Some(Origin::File);
    match parts.document(named.kind, named.name).filter(|_| is_in_file) {
        Some(document) => {
            let digest = Sha256::digest(document.to_string());
            digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>().into()
        }
        None => 0.into(),
    }
}

/// The stored candidate.
#[must_use]
pub fn shown(parts: &Parts) -> Option<ShownCandidate> {
    let document = parts.documents().get(CANDIDATE, CANDIDATE_NAME)?;
    let mut body: Value = serde_json::from_str(&document.body).unwrap_or_default();
    if let Some(fields) = body.as_object_mut() {
        fields.remove(BASE);
    }
    let mistakes = parts.of::<Routes>().candidate.as_ref().map(|it| it.mistakes().to_vec());
    Some(ShownCandidate {
        revision: document.revision,
        document: body,
        mistakes: mistakes.unwrap_or_default(),
    })
}
