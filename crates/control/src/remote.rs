//! The configuration that all nodes share: documents and audit log in PostgreSQL.
//!
//! ```text
//!   a node's change --commit--> audit, document --NOTIFY--> every node's follower --> its watchers
//! ```
//!
//! Revisions are the primary key of the audit table, as in the local database. A change inserts the
//! revision after the one that it was decided on: of two nodes at once, one finds the row there and
//! decides again. So that this is seldom, nodes take turns ([`crate::turn`]). Nothing else is locked.
//! Beside each revision a node knows which history it is of, by a digest of its audit row, because a
//! database that lost its newest revisions gives their numbers to others: a node that was out of
//! contact meanwhile then loads everything anew.
//!
//! A follower holds one connection, listens, and also asks unprompted ([`crate::follow`]), so that a
//! lost notification, or a proxy that passes none on, costs a second and not the change. A
//! change or a look at the audit log takes the connection of the one before, or opens its own
//! ([`crate::spare`]).
//!
//! When the database is away, what is known stays in force, a change is [`Error::Unavailable`], and
//! the follower connects again (fault 24: after a random part of a growing pause). A process that
//! starts meanwhile begins with the copy on its disk ([`crate::copy`]) and follows later.
//!
//! Deliberately absent: reading the clock; changes on the copy.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_postgres::{Place, Session};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::copy::{DocumentsCopy, keep};
use crate::counts::{self, Added, Batch, Period, Sums};
use crate::database_error::in_time;
use crate::document::{Accepted, AuditRow, Kind, Revision};
use crate::error::Error;
use crate::follow::{self, Contact};
use crate::link::open;
use crate::messages::{Messages, outbox};
use crate::nodes::{NodeIdentity, NodeList};
use crate::presence::NodesPresent;
use crate::rows;
use crate::secrets::{self, Secret, SecretUpdate};
use crate::snapshot::{History, Snapshot, publish};
use crate::spare::Spare;
use crate::turn::{self, Turn};
use crate::uses::{self, Use};

/// A database that other nodes change too.
#[derive(Debug)]
pub(crate) struct Remote {
    place: Place,
    data_dir: PathBuf,
    runtime: Handle,
    contact: Arc<Contact>,
    spare: Arc<Spare>,
    /// The revision in this node's copy; 0 without one.
    kept: Arc<AtomicU64>,
    tasks: [AbortHandle; 3],
}

impl Remote {
    /// Connects, brings the schema up to date, loads everything and begins to follow; without the
    /// database, begins with the copy in `data_dir`.
    ///
    /// # Errors
    /// [`Error::NothingToStartWith`], [`Error::Newer`] or [`Error::Corrupt`].
    pub(crate) fn connect(
        place: Place,
        data_dir: &Path,
        runtime: &Handle,
    ) -> Result<(Self, watch::Sender<Arc<Snapshot>>), Error> {
        let copy = DocumentsCopy::new(data_dir, place.address());
        let saved = copy.load();
        let patience = if saved.is_ok() { crate::CONNECTING_BESIDE_A_COPY } else { crate::CONNECTING };
        let first = runtime.block_on(follow::first(&place, patience));
        let reached = first.is_ok();
        let (snapshot, saved) = match (first, saved) {
            (Ok(snapshot), saved) => (snapshot, saved.ok()),
            (Err(Error::Unavailable { .. } | Error::Late), Ok(saved)) => (saved.clone(), Some(saved)),
            (Err(error @ (Error::Unavailable { .. } | Error::Late)), Err(why)) => {
                let reason = match error {
                    Error::Unavailable { reason } => reason,
                    _ => format!("no answer within {:?}", crate::OPERATION),
                };
                return Err(Error::NothingToStartWith { reason, path: copy.path().to_owned(), copy: why });
            }
            (Err(error), _) => return Err(error),
        };
        let newest = watch::Sender::new(Arc::new(snapshot));
        let (messages, told) = outbox();
        let contact = Arc::new(Contact::new(reached, messages));
        let kept = Arc::new(AtomicU64::new(saved.as_ref().map_or(0, |saved| saved.revision().0)));
        let following = follow::follow(place.clone(), newest.clone(), Arc::clone(&contact), told);
        let keeping = keep(copy, saved, newest.subscribe(), Arc::clone(&kept));
        let spare = Arc::new(Spare::default());
        let closing = Arc::clone(&spare);
        let tasks = [
            runtime.spawn(following).abort_handle(),
            runtime.spawn(keeping).abort_handle(),
            runtime.spawn(async move { closing.close_unused().await }).abort_handle(),
        ];
        let data_dir = data_dir.to_owned();
        Ok((Self { place, data_dir, runtime: runtime.clone(), contact, spare, kept, tasks }, newest))
    }

    /// Whether the follower is connected.
    pub(crate) fn is_reachable(&self) -> bool {
        self.contact.is_reachable.load(Ordering::Relaxed)
    }

    /// For how long the follower has heard nothing; [`std::time::Duration::MAX`]: since the start.
    pub(crate) fn silence(&self) -> std::time::Duration {
        self.contact.silence()
    }

    /// Whether the database has answered since the start.
    pub(crate) fn was_reached(&self) -> bool {
        self.contact.was_reached.load(Ordering::Relaxed)
    }

    /// The number of this node.
    pub(crate) fn node(&self) -> u32 {
        self.contact.node
    }

    /// The nodes that are there; `None` while that is not known.
    pub(crate) fn present(&self) -> Option<NodesPresent> {
        self.contact.present()
    }

    /// Has this node be listed as this.
    pub(crate) fn introduce(&self, identity: NodeIdentity) {
        self.contact.introduce(identity);
    }

    /// The nodes by name.
    pub(crate) fn listed(&self) -> NodeList {
        self.contact.listed()
    }

    /// What the nodes say to each other.
    pub(crate) fn messages(&self) -> &Messages {
        &self.contact.messages
    }

    /// The revision in this node's copy.
    pub(crate) fn kept(&self) -> Revision {
        Revision(self.kept.load(Ordering::Relaxed))
    }

    /// Waits for this node's turn to change something, and publishes what other nodes have changed. Without a
    /// turn, but as new, where that takes too long.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Late`] or [`Error::Corrupt`].
    pub(crate) fn take_turn(&self, newest: &watch::Sender<Arc<Snapshot>>) -> Result<Turn, Error> {
        let taking = async |client: &mut Session| {
            let is_taken = turn::take(client).await?;
            let known = newest.borrow().clone();
            let later = rows::later(client, &known).await;
            if later.is_err() && is_taken {
                turn::roll_back(client).await.unwrap_or_default();
            }
            if let Some(later) = later? {
                publish(newest, known.revision(), later);
            }
            Ok(is_taken)
        };
        let taking = self.first_on(self.spare.take(), &taking);
        let (is_taken, session) = self.runtime.block_on(in_time(taking))?;
        if is_taken {
            return Ok(Turn::held(session, Arc::clone(&self.spare), self.runtime.clone()));
        }
        self.spare.keep(session);
        Ok(Turn::default())
    }

    /// Writes accepted changes and their audit rows in one transaction, prunes the audit log to
    /// `audit_rows`, and tells the other nodes; within `turn`, unless the server has ended it meanwhile. `base` is
    /// what they were decided on; the history of the last of them.
    ///
    /// # Errors
    /// [`Error::Moved`] or [`Error::Unavailable`]: then nothing was written. [`Error::Unknown`].
    pub(crate) fn commit(
        &self,
        turn: Turn,
        base: &Snapshot,
        accepted: &[Accepted],
        audit_rows: u64,
    ) -> Result<History, Error> {
        let write = async |client: &mut Session| rows::commit(client, base, accepted, audit_rows).await;
        let begin_and_write = async |client: &mut Session| {
            turn::begin(client).await?;
            write(client).await
        };
        let whole = async {
            if let Some(session) = turn.into_session() {
                match self.on(session, &write).await {
                    // The server has ended the turn, and nothing was written.
                    Err(Error::Unavailable { .. }) => {}
                    outcome => return outcome,
                }
            }
            self.first_on(self.spare.take(), &begin_and_write).await
        };
        let outcome = self.runtime.block_on(in_time(whole));
        self.keep(outcome).map_err(|error| match error {
            // It may have been committed a moment before it was cut.
            Error::Late => Error::Unknown { reason: Error::Late.to_string() },
            error => error,
        })
    }

    /// At most `limit` audit rows after `after`, oldest first.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Corrupt`].
    pub(crate) fn audit(&self, after: Revision, limit: usize) -> Result<Vec<AuditRow>, Error> {
        self.run(async |client| rows::audit(client, after, limit).await)
    }

    /// What documents of this kind were before their first change after this revision.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Late`] or [`Error::Corrupt`].
    pub(crate) fn first_before(
        &self,
        after: Revision,
        kind: Kind,
    ) -> Result<Vec<(String, Option<String>)>, Error> {
        self.run(async |client| rows::first_before(client, after, kind).await)
    }

    /// Oldest and newest revision of the audit log.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub(crate) fn revisions(&self) -> Result<Option<(Revision, Revision)>, Error> {
        self.run(async |client| rows::revisions(client).await)
    }

    /// All secrets, by name; those of this node's copy while the database is away.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Late`], where there is no copy.
    pub(crate) fn secrets(&self) -> Result<Vec<Secret>, Error> {
        let database = self.place.address();
        match self.run(async |client| secrets::load(client).await) {
            Ok(found) => {
                if let Err(error) = secrets::keep(&self.data_dir, &database, &found) {
                    tracing::debug!(%error, "no copy of the secrets can be kept");
                }
                Ok(found)
            }
            Err(error) => secrets::kept(&self.data_dir, &database).ok_or(error),
        }
    }

    /// Puts a secret in the place of the known version; its version then.
    ///
    /// # Errors
    /// [`Error::Moved`], [`Error::Full`], [`Error::Unavailable`] or [`Error::Unknown`].
    pub(crate) fn put_secret(&self, update: SecretUpdate<'_>) -> Result<u64, Error> {
        let outcome = self.run(async |client| secrets::store(client, update).await);
        outcome.map_err(|error| match error {
            Error::Late => Error::Unknown { reason: Error::Late.to_string() },
            error => error,
        })
    }

    /// Adds a batch of counted requests.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Late`].
    pub(crate) fn add_counts(&self, batch: &Batch, now: u64) -> Result<Added, Error> {
        self.run(async |client| counts::store(client, batch, now).await)
    }

    /// All sums of a period, and the number of the writer's last batch.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Late`].
    pub(crate) fn read_counts<A: Default>(
        &self,
        period: Period,
        writer: u64,
        add: impl Fn(&mut A, u64, &str, &Sums),
    ) -> Result<(A, u64), Error> {
        self.run(async |client| counts::load(client, period, writer, &add).await)
    }

    /// Keeps when documents were last of use.
    ///
    /// # Errors
    /// [`Error::Unavailable`] or [`Error::Late`].
    pub(crate) fn keep_uses(&self, kind: Kind, uses: &[Use]) -> Result<(), Error> {
        self.run(async |client| uses::store(client, kind, uses).await)
    }

    /// What is kept of documents that were of use in this second or later.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Late`] or [`Error::Corrupt`].
    pub(crate) fn uses(&self, kind: Kind, since: u64) -> Result<Vec<Use>, Error> {
        self.run(async |client| uses::load(client, kind, since).await)
    }

    /// Runs an operation within [`crate::OPERATION`], on a connection that nobody else uses.
    fn run<T>(&self, operation: impl AsyncFn(&mut Session) -> Result<T, Error>) -> Result<T, Error> {
        let whole = self.first_on(self.spare.take(), &operation);
        self.keep(self.runtime.block_on(in_time(whole)))
    }

    /// Runs an operation on a connection that nobody else uses, and returns the connection. It runs twice
    /// where the first connection was an old one and turned out to be broken.
    async fn first_on<T>(
        &self,
        old: Option<Session>,
        operation: &impl AsyncFn(&mut Session) -> Result<T, Error>,
    ) -> Result<(T, Session), Error> {
        if let Some(session) = old {
            match self.on(session, operation).await {
                // The server may have restarted since. Nothing was written.
                Err(Error::Unavailable { .. }) => {}
                outcome => return outcome,
            }
        }
        self.on(open(&self.place, |_, _| {}).await?, operation).await
    }

    /// Runs an operation on this connection. Of one that was overtaken, the connection is kept.
    async fn on<T>(
        &self,
        mut session: Session,
        operation: &impl AsyncFn(&mut Session) -> Result<T, Error>,
    ) -> Result<(T, Session), Error> {
        match operation(&mut session).await {
            Ok(done) => Ok((done, session)),
            Err(error) => {
                if matches!(error, Error::Moved { .. }) {
                    self.spare.keep(session);
                }
                Err(error)
            }
        }
    }

    /// Keeps the connection, which is still good, for the next operation.
    fn keep<T>(&self, outcome: Result<(T, Session), Error>) -> Result<T, Error> {
        let (done, session) = outcome?;
        self.spare.keep(session);
        Ok(done)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}
