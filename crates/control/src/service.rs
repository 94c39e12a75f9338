//! What a service brings to the configuration, and the parts of all services together.
//!
//! ```text
//!   file -----------> Layer --.
//!                              >-- assemble, after --> Set --put_in_force--> the service
//!   stored documents ---------'
//!     of its kinds               the sets of all services: Parts, made and put in force as one
//! ```
//!
//! A service says which kinds of documents are its own, makes a set of them and of what the file
//! declares for it, and takes a set in force. Making a set always succeeds: what cannot be in force is
//! set aside. Whether a change or a new file may do that is asked apart ([`Service::objections`]), so
//! that a start never fails and a change never does harm in silence.
//!
//! A service that refers to another's documents, as a route does to policies, asks [`Parts::has`] by
//! kind and name. It never knows the other service.
//!
//! Over 400 lines because the contract stands beside its form without types, method for method.
//!
//! Deliberately absent: HTTP, files, and what a body means.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::policy::Mistake;

use crate::document::{Change, Kind, Revision};
use crate::snapshot::Snapshot;

/// Most dangling references that the log names at once.
const MAX_ANNOUNCED: usize = 32;

/// A document that is not in force, or not as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAside {
    /// What it describes.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its revision; `None` if it stands in the file.
    pub revision: Option<Revision>,
    /// What is wrong. Parts that are not named here are in force.
    pub mistakes: Vec<Mistake>,
}

/// Where a document in force comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Part of the program.
    BuiltIn,
    /// The configuration file.
    File,
    /// The control store, at this revision.
    Stored(Revision),
}

impl Origin {
    /// The word for it in the API.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::File => "file",
            Self::Stored(_) => "stored",
        }
    }

    /// The revision that a document was stored at; 0 if it is not stored.
    #[must_use]
    pub fn revision(self) -> Revision {
        match self {
            Self::Stored(revision) => revision,
            Self::BuiltIn | Self::File => Revision(0),
        }
    }
}

/// A service with documents.
pub trait Service: Send + Sync + 'static {
    /// The kinds that are its own.
    const KINDS: &'static [Kind];
    /// What the file declares for it, checked. Its default is what holds without a file.
    type Layer: Default + Send + Sync + 'static;
    /// What is in force. It never changes after it was made.
    type Set: Send + Sync + 'static;

    /// The set of a file's layer and the stored documents. The service leaves alone documents of other services' kinds.
    fn assemble(&self, layer: Arc<Self::Layer>, stored: &Snapshot) -> Self::Set;

    /// The set with the layer of `last` and other stored documents. A service that can make it from what
    /// has changed ([`Snapshot::changes_since`]) does.
    fn after(&self, last: &Self::Set, stored: &Snapshot) -> Self::Set;

    /// Why `next` must not follow `last`: what it would take out of force, or set aside of the document
    /// that `change` puts. Without a change, they differ in their layers.
    fn objections(&self, last: &Self::Set, next: &Self::Set, change: Option<&Change>) -> Vec<Mistake>;

    /// What in `set` refers to documents of other services that are not there. A change or a file that
    /// adds to them is refused.
    fn dangling(&self, _set: &Self::Set, _parts: &Parts) -> Vec<Mistake> {
        Vec::new()
    }

    /// The document in force of one of its kinds under this name, wherever it comes from.
    fn document(&self, set: &Self::Set, kind: Kind, name: &str) -> Option<Value>;

    /// Where that document comes from.
    fn origin(&self, set: &Self::Set, kind: Kind, name: &str) -> Option<Origin>;

    /// Whether that document was of use since it came into force as it is; `None` where the service does not know.
    fn is_used(&self, _set: &Self::Set, _kind: Kind, _name: &str) -> Option<bool> {
        None
    }

    /// The names of the documents in force of one of its kinds, in the service's own order.
    fn names(&self, set: &Self::Set, kind: Kind) -> Vec<Arc<str>>;

    /// What of the documents is not in force.
    fn set_aside(&self, set: &Self::Set) -> Vec<SetAside>;

    /// How many documents that is.
    fn set_aside_count(&self, set: &Self::Set) -> usize;

    /// Says in the log how `next` differs from the set before it; `None` at the start.
    fn announce(&self, last: Option<&Self::Set>, next: &Self::Set);

    /// Puts `set` in force, which is the service's of `parts`. Called on a thread that may block.
    fn put_in_force(&self, set: Arc<Self::Set>, parts: &Parts);
}

/// What the file declares, for each service.
#[derive(Clone, Default)]
pub struct Layers {
    by_service: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl Layers {
    /// With the layer of one service.
    #[must_use]
    pub fn with<S: Service>(mut self, layer: S::Layer) -> Self {
        self.by_service.insert(TypeId::of::<S>(), Arc::new(layer));
        self
    }

    /// The layer of one service, the default one if the file says nothing.
    #[must_use]
    pub fn of<S: Service>(&self) -> Arc<S::Layer> {
        let found = self.by_service.get(&TypeId::of::<S>()).cloned();
        found.and_then(|layer| layer.downcast().ok()).unwrap_or_default()
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Layers").field("services", &self.by_service.len()).finish()
    }
}

/// The services of a process.
#[derive(Default)]
pub struct Services {
    list: Vec<Box<dyn AnyService>>,
}

impl Services {
    /// With one more.
    #[must_use]
    pub fn with<S: Service>(mut self, service: S) -> Self {
        self.list.push(Box::new(service));
        self
    }
}

/// The sets of all services for one state of the documents and of the file. Cloning it copies a few
/// pointers.
#[derive(Clone)]
pub struct Parts {
    documents: Snapshot,
    files: u64,
    services: Arc<[Box<dyn AnyService>]>,
    /// In the order of `services`.
    sets: Vec<AnySet>,
}

impl Parts {
    /// The stored documents that the sets contain.
    #[must_use]
    pub fn documents(&self) -> &Snapshot {
        &self.documents
    }

    /// How many other files have been put in force since the start.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.files
    }

    /// The set of one service.
    ///
    /// # Panics
    /// If this process does not have the service: a service asks for its own.
    #[must_use]
    pub fn of<S: Service>(&self) -> &S::Set {
        let found = self.sets.iter().find_map(|set| set.downcast_ref());
        found.expect("a service that asks for its set is one of the process's")
    }

    /// The kinds that services of this process have.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        self.services.iter().flat_map(|service| service.kinds()).copied().collect()
    }

    /// The document in force of this kind and name, wherever it comes from.
    #[must_use]
    pub fn document(&self, kind: Kind, name: &str) -> Option<Value> {
        let (service, set) = self.parts().find(|(service, _)| service.kinds().contains(&kind))?;
        service.document(set, kind, name)
    }

    /// Where the document in force of this kind and name comes from.
    #[must_use]
    pub fn origin(&self, kind: Kind, name: &str) -> Option<Origin> {
        let (service, set) = self.parts().find(|(service, _)| service.kinds().contains(&kind))?;
        service.origin(set, kind, name)
    }

    /// Whether there is one.
    #[must_use]
    pub fn has(&self, kind: Kind, name: &str) -> bool {
        self.origin(kind, name).is_some()
    }

    /// Whether it was of use since it came into force as it is, where that is known.
    #[must_use]
    pub fn is_used(&self, kind: Kind, name: &str) -> Option<bool> {
        let (service, set) = self.parts().find(|(service, _)| service.kinds().contains(&kind))?;
        service.is_used(set, kind, name)
    }

    /// The names of the documents in force of this kind, in its service's order.
    #[must_use]
    pub fn names(&self, kind: Kind) -> Vec<Arc<str>> {
        let found = self.parts().find(|(service, _)| service.kinds().contains(&kind));
        found.map(|(service, set)| service.names(set, kind)).unwrap_or_default()
    }

    /// What of all services' documents is not in force, or refers to what is not there.
    #[must_use]
    pub fn set_aside(&self) -> Vec<SetAside> {
        let aside = self.parts().flat_map(|(service, set)| service.set_aside(set));
        aside.chain(self.dangling().into_iter().filter_map(|mistake| self.with_mistake(mistake))).collect()
    }

    /// How many that are.
    #[must_use]
    pub fn set_aside_count(&self) -> usize {
        let aside: usize = self.parts().map(|(service, set)| service.set_aside_count(set)).sum();
        let dangling = self.dangling().into_iter().filter_map(|mistake| self.with_mistake(mistake));
        aside + dangling.count()
    }

    fn dangling(&self) -> Vec<Mistake> {
        self.parts().flat_map(|(service, set)| service.dangling(set, self)).collect()
    }

    /// The document that a pointer of a dangling reference leads into: `/kind/name/...`.
    fn with_mistake(&self, mistake: Mistake) -> Option<SetAside> {
        let mut tokens = mistake.pointer.split('/').skip(1);
        let (kind, name) = (tokens.next()?, tokens.next()?.to_owned());
        let kind = self.kinds().into_iter().find(|known| known.as_str() == kind)?;
        let revision = self.documents.get(kind, &name).map(|document| document.revision);
        Some(SetAside { kind, name, revision, mistakes: vec![mistake] })
    }

    pub(crate) fn assemble(
        services: Arc<[Box<dyn AnyService>]>,
        layers: &Layers,
        documents: Snapshot,
    ) -> Self {
        let sets = services.iter().map(|service| service.assemble(layers, &documents)).collect();
        Self { documents, files: 0, services, sets }
    }

    /// These with another file.
    pub(crate) fn with_file(&self, layers: &Layers) -> Self {
        let files = self.files + 1;
        Self { files, ..Self::assemble(self.services.clone(), layers, self.documents.clone()) }
    }

    /// These with other documents.
    pub(crate) fn after(&self, documents: &Snapshot) -> Self {
        let sets = self.parts().map(|(service, set)| service.after(set, documents)).collect();
        Self { documents: documents.clone(), files: self.files, services: self.services.clone(), sets }
    }

    /// Why `next` must not follow.
    pub(crate) fn objections(&self, next: &Self, change: Option<&Change>) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        for ((service, last), set) in self.parts().zip(&next.sets) {
            mistakes.extend(service.objections(last, set, change));
            let known = service.dangling(last, self);
            mistakes.extend(service.dangling(set, next).into_iter().filter(|it| !known.contains(it)));
        }
        mistakes
    }

    pub(crate) fn announce(&self, last: Option<&Self>) {
        for (place, (service, set)) in self.parts().enumerate() {
            service.announce(last.map(|last| &last.sets[place]), set);
        }
        let known = last.map(Self::dangling).unwrap_or_default();
        for mistake in self.dangling().iter().filter(|it| !known.contains(it)).take(MAX_ANNOUNCED) {
            tracing::error!(%mistake, "a document or a setting refers to what is not there (GET /v1/set-aside)");
        }
    }

    pub(crate) fn put_in_force(&self) {
        self.parts().for_each(|(service, set)| service.put_in_force(set, self));
    }

    fn parts(&self) -> impl Iterator<Item = (&dyn AnyService, &AnySet)> {
        self.services.iter().map(|service| &**service).zip(&self.sets)
    }
}

impl fmt::Debug for Parts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Parts").field("revision", &self.documents.revision()).finish_non_exhaustive()
    }
}

impl Services {
    pub(crate) fn into_list(self) -> Arc<[Box<dyn AnyService>]> {
        self.list.into()
    }
}

/// A service's set without its type.
type AnySet = Arc<dyn Any + Send + Sync>;

/// A service without its types. Its sets are always its own: [`Parts`] keeps both in one order.
pub(crate) trait AnyService: Send + Sync {
    fn kinds(&self) -> &'static [Kind];
    fn assemble(&self, layers: &Layers, stored: &Snapshot) -> AnySet;
    fn after(&self, last: &AnySet, stored: &Snapshot) -> AnySet;
    fn objections(&self, last: &AnySet, next: &AnySet, change: Option<&Change>) -> Vec<Mistake>;
    fn dangling(&self, set: &AnySet, parts: &Parts) -> Vec<Mistake>;
    fn document(&self, set: &AnySet, kind: Kind, name: &str) -> Option<Value>;
    fn origin(&self, set: &AnySet, kind: Kind, name: &str) -> Option<Origin>;
    fn is_used(&self, set: &AnySet, kind: Kind, name: &str) -> Option<bool>;
    fn names(&self, set: &AnySet, kind: Kind) -> Vec<Arc<str>>;
    fn set_aside(&self, set: &AnySet) -> Vec<SetAside>;
    fn set_aside_count(&self, set: &AnySet) -> usize;
    fn announce(&self, last: Option<&AnySet>, next: &AnySet);
    fn put_in_force(&self, set: &AnySet, parts: &Parts);
}

impl<S: Service> AnyService for S {
    fn kinds(&self) -> &'static [Kind] {
        S::KINDS
    }

    fn assemble(&self, layers: &Layers, stored: &Snapshot) -> AnySet {
        Arc::new(Service::assemble(self, layers.of::<S>(), stored))
    }

    fn after(&self, last: &AnySet, stored: &Snapshot) -> AnySet {
        Arc::new(Service::after(self, own::<S>(last), stored))
    }

    fn objections(&self, last: &AnySet, next: &AnySet, change: Option<&Change>) -> Vec<Mistake> {
        Service::objections(self, own::<S>(last), own::<S>(next), change)
    }

    fn dangling(&self, set: &AnySet, parts: &Parts) -> Vec<Mistake> {
        Service::dangling(self, own::<S>(set), parts)
    }

    fn document(&self, set: &AnySet, kind: Kind, name: &str) -> Option<Value> {
        Service::document(self, own::<S>(set), kind, name)
    }

    fn origin(&self, set: &AnySet, kind: Kind, name: &str) -> Option<Origin> {
        Service::origin(self, own::<S>(set), kind, name)
    }

    fn is_used(&self, set: &AnySet, kind: Kind, name: &str) -> Option<bool> {
        Service::is_used(self, own::<S>(set), kind, name)
    }

    fn names(&self, set: &AnySet, kind: Kind) -> Vec<Arc<str>> {
        Service::names(self, own::<S>(set), kind)
    }

    fn set_aside(&self, set: &AnySet) -> Vec<SetAside> {
        Service::set_aside(self, own::<S>(set))
    }

    fn set_aside_count(&self, set: &AnySet) -> usize {
        Service::set_aside_count(self, own::<S>(set))
    }

    fn announce(&self, last: Option<&AnySet>, next: &AnySet) {
        Service::announce(self, last.map(own::<S>), own::<S>(next));
    }

    fn put_in_force(&self, set: &AnySet, parts: &Parts) {
        if let Ok(set) = set.clone().downcast() {
            Service::put_in_force(self, set, parts);
        }
    }
}

fn own<S: Service>(set: &AnySet) -> &S::Set {
    set.downcast_ref().expect("parts keep services and their sets in one order")
}
