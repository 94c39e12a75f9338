//! The handle that services and the admin API hold.
//!
//! A change is decided on the newest snapshot (pure), written in one transaction, and only then
//! published to watchers, all under one lock: watchers see revisions in order, and never one that a
//! crash could take back. Reading never touches the disk or the network.
//!
//! Where nodes share a database, a node first waits for its turn and brings the newest snapshot up to date
//! ([`Control::take_turn`]). A change that another node's overtook all the same is decided again: [`Error::Moved`].
//!
//! Every method blocks for at most a transaction, and must not be called on an asynchronous
//! thread when it writes; [`Control::run`] moves it to a blocking one.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tidegate_postgres::Place;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use crate::database::DataDir;
use crate::database_error::{in_time, unavailable};
use crate::document::{Altered, AuditRow, Author, Change, Document, Kind, Precondition, Revision};
use crate::draft::Draft;
use crate::error::Error;
use crate::local::Local;
use crate::nodes::NodeIdentity;
use crate::remote::Remote;
use crate::rows;
use crate::snapshot::{Limits, Snapshot, publish};
use crate::turn::Turn;

/// Calls of [`Control::run`] that may occupy a blocking thread at once; others wait their turn.
const BLOCKING_CALLS: usize = 4;

/// How much is stored, for the metrics page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Documents of all kinds together.
    pub documents: usize,
    /// Bytes of all names and bodies.
    pub bytes: usize,
    /// Audit rows in the database.
    pub audit_rows: u64,
    /// Audit rows ever pruned.
    pub audit_pruned: u64,
}

/// The configuration of one data directory or of one database. Clones share it; the last one to go
/// closes it.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) shared: Arc<ControlState>,
}

#[derive(Debug)]
pub(crate) struct ControlState {
    limits: Limits,
    newest: watch::Sender<Arc<Snapshot>>,
    /// Held while a change is made.
    changing: Mutex<()>,
    blocking: Arc<Semaphore>,
    /// What this node says of itself, once it is said.
    pub(crate) identity: OnceLock<NodeIdentity>,
    pub(crate) backend: Backend,
}

/// Where documents are.
#[derive(Debug)]
pub(crate) enum Backend {
    /// With this process alone.
    Local(Local),
    /// Where all nodes find them.
    Remote(Box<Remote>),
}

impl Control {
    /// Opens the configuration in `path`, creating the directory if it is missing.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::Newer`], [`Error::Corrupt`], [`Error::Io`] or
    /// [`Error::Database`]. The database is left as it was found.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, Error> {
        let (local, snapshot) = Local::open(path)?;
        let newest = watch::Sender::new(Arc::new(snapshot));
        Ok(Self::new(limits, newest, Backend::Local(local)))
    }

    /// Opens the configuration that all nodes share in PostgreSQL, and follows it from tasks of
    /// `runtime`; while the database is away, begins with the copy that it keeps in `data_dir`.
    /// Blocks, for [`crate::CONNECTING`] at most, and must not be called on an asynchronous thread.
    ///
    /// # Errors
    /// [`Error::NothingToStartWith`], [`Error::Newer`] or [`Error::Corrupt`].
    pub fn connect(place: Place, data_dir: &Path, limits: Limits, runtime: &Handle) -> Result<Self, Error> {
        let (remote, newest) = Remote::connect(place, data_dir, runtime)?;
        Ok(Self::new(limits, newest, Backend::Remote(Box::new(remote))))
    }

    /// What is stored in `path`, without becoming its owner: a process may be at work there. Nothing is
    /// stored where there is no database.
    ///
    /// # Errors
    /// [`Error::Newer`], [`Error::Corrupt`] or [`Error::Database`].
    pub fn look(path: &Path) -> Result<Snapshot, Error> {
        DataDir::beside(path).map_or_else(|| Ok(Snapshot::default()), |dir| dir.look())
    }

    /// What is stored in PostgreSQL, without changing anything there.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Late`] or [`Error::Corrupt`].
    pub async fn look_at(place: &Place) -> Result<Snapshot, Error> {
        let looking = async {
            let session = place.connect(|_, _| {}).await.map_err(unavailable)?;
            session.bound(crate::OPERATION).await.map_err(unavailable)?;
            rows::look(&session).await
        };
        in_time(looking).await
    }

    fn new(limits: Limits, newest: watch::Sender<Arc<Snapshot>>, backend: Backend) -> Self {
        let limits = Limits { audit_rows: limits.audit_rows.max(1), ..limits };
        let blocking = Arc::new(Semaphore::new(BLOCKING_CALLS));
        let (changing, identity) = (Mutex::default(), OnceLock::new());
        Self { shared: Arc::new(ControlState { limits, newest, changing, blocking, identity, backend }) }
    }

    /// Every document at the newest revision known here. Never blocks.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.newest.borrow().clone()
    }

    /// The newest snapshot, and a wake-up for each later one (a slow watcher skips to the newest).
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.shared.newest.subscribe()
    }

    /// Whether changes can be made and heard of, as far as is known. In a data directory, whether the
    /// database took the last one; a start tries it out.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        match &self.shared.backend {
            Backend::Local(local) => local.is_writable(),
            Backend::Remote(remote) => remote.is_reachable(),
        }
    }

    /// How old what is known here may be, at most: for how long the database that nodes share has not answered, and
    /// [`std::time::Duration::MAX`] if it has not since the start. `None` in a data directory, which nobody else changes.
    #[must_use]
    pub fn age(&self) -> Option<std::time::Duration> {
        self.remote().map(Remote::silence)
    }

    /// Whether what is known comes from this node's copy, because the database has not answered since
    /// the start; never so in a data directory.
    #[must_use]
    pub fn is_from_copy(&self) -> bool {
        self.remote().is_some_and(|remote| !remote.was_reached())
    }

    /// The revision in this node's copy of a shared configuration, 0 if none was written yet; `None`
    /// in a data directory.
    #[must_use]
    pub fn copied_revision(&self) -> Option<Revision> {
        self.remote().map(Remote::kept)
    }

    /// The database that nodes share, if they do.
    pub(crate) fn remote(&self) -> Option<&Remote> {
        if let Backend::Remote(remote) = &self.shared.backend { Some(&**remote) } else { None }
    }

    /// The documents that are not what their changes wrote, as found at the start, unless they were
    /// changed since. In a data directory only: PostgreSQL looks after its pages itself.
    #[must_use]
    pub fn altered(&self) -> Vec<Altered> {
        let Backend::Local(local) = &self.shared.backend else { return Vec::new() };
        let snapshot = self.snapshot();
        let is_there = |found: &&Altered| {
            snapshot.get(found.kind, &found.name).is_some_and(|document| document.revision == found.revision)
        };
        local.altered().iter().filter(is_there).cloned().collect()
    }

    /// One document. Never blocks.
    #[must_use]
    pub fn get(&self, kind: Kind, name: &str) -> Option<Document> {
        self.shared.newest.borrow().get(kind, name).cloned()
    }

    /// Begins a change: waits until no other node is at one, and brings the newest snapshot up to date with every
    /// change that any node has made so far. Other nodes wait until the turn is given to [`Control::commit`] or
    /// dropped.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Late`] or [`Error::Corrupt`].
    pub fn take_turn(&self) -> Result<Turn, Error> {
        match &self.shared.backend {
            Backend::Local(_) => Ok(Turn::default()),
            Backend::Remote(remote) => remote.take_turn(&self.shared.newest),
        }
    }

    /// Creates or replaces a document.
    ///
    /// # Errors
    /// As [`Control::apply`].
    pub fn put(
        &self,
        (kind, name): (Kind, &str),
        body: &str,
        precondition: Precondition,
        author: &Author,
    ) -> Result<Revision, Error> {
        self.apply(&[Change::put(kind, name, body).when(precondition)], author)
    }

    /// Removes a document.
    ///
    /// # Errors
    /// As [`Control::apply`]; [`Error::NotFound`] if there is none.
    pub fn delete(
        &self,
        (kind, name): (Kind, &str),
        precondition: Precondition,
        author: &Author,
    ) -> Result<Revision, Error> {
        self.apply(&[Change::delete(kind, name).when(precondition)], author)
    }

    /// Makes all changes, in order, or none, on whatever is newest. Each makes one revision; the last
    /// one is returned. When this returns, the changes are durable.
    ///
    /// # Errors
    /// Of the first change that is refused, as [`Draft::add`]; of the whole, as [`Control::commit`];
    /// [`Error::Moved`] only after many attempts.
    pub fn apply(&self, changes: &[Change], author: &Author) -> Result<Revision, Error> {
        let mut attempts = 1;
        loop {
            let turn = self.take_turn()?;
            let mut draft = self.draft();
            for change in changes {
                draft.add(change.clone(), author.clone(), |_| Ok::<_, Error>(()))?;
            }
            match self.commit(draft, turn) {
                Err(Error::Moved { .. }) if attempts < crate::MAX_OVERTAKEN => attempts += 1,
                outcome => return outcome,
            }
        }
    }

    /// Begins to put changes together on the newest snapshot known here.
    #[must_use]
    pub fn draft(&self) -> Draft {
        Draft::new(Snapshot::clone(&self.snapshot()), self.shared.limits)
    }

    /// Stores the changes of a draft in one transaction, and ends the turn, if what it began with is still the newest
    /// snapshot: all of them or none. Returns the newest revision then.
    ///
    /// # Errors
    /// [`Error::Moved`]; of the disk or the network: [`Error::Database`], [`Error::Unavailable`],
    /// [`Error::Unknown`] or [`Error::Corrupt`].
    pub fn commit(&self, draft: Draft, turn: Turn) -> Result<Revision, Error> {
        let Draft { base, mut next, accepted, .. } = draft;
        let shared = &*self.shared;
        let _turn = shared.changing.lock();
        let newest = self.snapshot();
        if !newest.is_same_as(&base) {
            return Err(Error::Moved { newest: newest.revision() });
        }
        if accepted.is_empty() {
            return Ok(base.revision());
        }
        match &shared.backend {
            Backend::Local(local) => {
                let outcome = local.commit(&accepted, shared.limits.audit_rows);
                // After a failure, what is on the disk decides. If it cannot be read either, the next
                // change fails on the audit log's primary key instead of diverging from it.
                if outcome.is_err()
                    && let Ok(stored) = local.load()
                    && stored.revision() != base.revision()
                {
                    publish(&shared.newest, base.revision(), stored);
                }
                outcome?;
            }
            Backend::Remote(remote) => {
                let history = remote.commit(turn, &base, &accepted, shared.limits.audit_rows)?;
                next = next.in_history(history);
            }
        }
        let revision = next.revision();
        publish(&shared.newest, base.revision(), next);
        Ok(revision)
    }

    /// At most `limit` audit rows (capped at [`crate::MAX_AUDIT_PAGE`]) after `after`, oldest first.
    ///
    /// # Errors
    /// [`Error::Database`], [`Error::Unavailable`] or [`Error::Corrupt`].
    pub fn audit(&self, after: Revision, limit: usize) -> Result<Vec<AuditRow>, Error> {
        let limit = limit.min(crate::MAX_AUDIT_PAGE);
        match &self.shared.backend {
            Backend::Local(local) => local.audit(after, limit),
            Backend::Remote(remote) => remote.audit(after, limit),
        }
    }

    /// How much is stored.
    ///
    /// # Errors
    /// [`Error::Database`], [`Error::Unavailable`] or [`Error::Corrupt`].
    pub fn usage(&self) -> Result<Usage, Error> {
        let revisions = match &self.shared.backend {
            Backend::Local(local) => local.revisions()?,
            Backend::Remote(remote) => remote.revisions()?,
        };
        let snapshot = self.snapshot();
        Ok(Usage {
            documents: snapshot.len(),
            bytes: snapshot.bytes(),
            audit_rows: revisions.map_or(0, |(oldest, newest)| newest.0 - oldest.0 + 1),
            audit_pruned: revisions.map_or(0, |(oldest, _)| oldest.0 - 1),
        })
    }

    /// Runs a blocking call on a thread that may block. If the caller goes away before the answer,
    /// the call is still made.
    ///
    /// # Errors
    /// Those of `call`; [`Error::Stopped`] if the runtime is shutting down.
    ///
    /// # Panics
    /// If `call` does.
    pub async fn run<T, F>(&self, call: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    {
        let permit = self.shared.blocking.clone().acquire_owned().await.map_err(|_closed| Error::Stopped)?;
        let this = self.clone();
        let blocking = move || {
            let result = call(&this);
            drop(permit);
            result
        };
        match tokio::task::spawn_blocking(blocking).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_cancelled) => Err(Error::Stopped),
            },
        }
    }
}
