//! Changing what is in force: one place through which every change of any service's documents goes.
//!
//! ```text
//!   request --edit--> queue --batch--> worker: for each edit, what would be? --mistakes--> 422
//!                    (bounded)            |
//!                                         `--> control store, one transaction --> in force --> 200
//!                                                     (durable)
//!   file reload ------------------------------> all parts --------------------> in force
//!   another node's change --control--> follow --> the next parts -------------> in force
//! ```
//!
//! The sets of all services ([`Parts`]) are made together and put in force together, or none is. An
//! *edit* is a function from the parts in force to a change, so that who changes a part of a document
//! reads and writes it in one step: two at once cannot undo one another. Where nodes share the control
//! store, edits that another node's change overtook are decided again on what that one left.
//!
//! The work is done on a blocking thread, not on one that serves, and goes on if the client who asked
//! for it leaves. Edits that wait are made together, in one transaction. When the answer is sent, the
//! change is durable and in force at this node.
//!
//! A change, and a new file, must not set aside what is in force (422, or the old file stays). What
//! another node stored, and what is stored at the start, is taken as it is: documents that cannot be
//! in force with this node's file are set aside, and that is said (fault 57).
//!
//! Bounds: [`MAX_WAITING`] edits, [`MAX_TOGETHER`] in one transaction.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_algorithms::policy::Mistake;
use tokio::sync::{oneshot, watch};

use crate::MAX_WAITING;
use crate::control::Control;
use crate::difference::ChangeLines;
use crate::document::{Author, Change, Revision};
use crate::draft::Draft;
use crate::error::{ChangeError, Error};
use crate::service::{Layers, Parts, Services};
use crate::snapshot::Snapshot;

/// Most edits that are stored in one transaction.
pub const MAX_TOGETHER: usize = 256;

/// From the parts that are newest to the change that is wanted, if any. Called again when another node's
/// change came first.
pub type Edit = Box<dyn Fn(&Parts) -> Result<Option<Change>, ChangeError> + Send>;

/// The same to changes that are made in this order, all of them or none.
type ConfigurationEdits = Box<dyn Fn(&Parts) -> Result<Vec<Change>, ChangeError> + Send>;

/// What is in force of all services, and the way to change it. Clones share it.
#[derive(Clone, Debug)]
pub struct Configuration {
    changes: Arc<Changes>,
}

/// How changes fare, for the metrics page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeStats {
    /// Edits that wait.
    pub waiting: usize,
    /// Edits that were turned away because too many waited.
    pub turned_away: u64,
    /// Transactions that changes were stored in.
    pub transactions: u64,
    /// Changes that were stored.
    pub stored: u64,
}

/// What the worker needs.
#[derive(Debug)]
struct Changes {
    control: Control,
    in_force: watch::Sender<Parts>,
    /// Held while what is in force is replaced.
    replacing: Mutex<()>,
    queue: Mutex<EditQueue>,
    turned_away: AtomicU64,
    transactions: AtomicU64,
    stored: AtomicU64,
}

#[derive(Default)]
struct EditQueue {
    waiting: VecDeque<WaitingEdit>,
    /// Whether a worker will look at `waiting` again.
    is_worked_on: bool,
}

impl fmt::Debug for EditQueue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("EditQueue").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

/// An edit and who waits for it.
struct WaitingEdit {
    edit: ConfigurationEdits,
    author: Author,
    answer: oneshot::Sender<Result<Revision, ChangeError>>,
}

impl Configuration {
    /// The configuration of these services: what is stored and what the file declares are in force when
    /// this returns. Blocks for as long as making the sets takes.
    #[must_use]
    pub fn start(control: Control, services: Services, layers: &Layers) -> Self {
        let stored = Snapshot::clone(&control.snapshot());
        let parts = Parts::assemble(services.into_list(), layers, stored);
        parts.announce(None);
        parts.put_in_force();
        let changes = Changes {
            control,
            in_force: watch::Sender::new(parts),
            replacing: Mutex::default(),
            queue: Mutex::default(),
            turned_away: AtomicU64::default(),
            transactions: AtomicU64::default(),
            stored: AtomicU64::default(),
        };
        Self { changes: Arc::new(changes) }
    }

    /// What is in force.
    #[must_use]
    pub fn parts(&self) -> Parts {
        self.changes.in_force.borrow().clone()
    }

    /// Tells of whatever is put in force. Only the newest is kept.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Parts> {
        self.changes.in_force.subscribe()
    }

    /// The control store.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.changes.control
    }

    /// How changes fare.
    #[must_use]
    pub fn stats(&self) -> ChangeStats {
        let changes = &self.changes;
        ChangeStats {
            waiting: changes.queue.lock().waiting.len(),
            turned_away: changes.turned_away.load(Ordering::Relaxed),
            transactions: changes.transactions.load(Ordering::Relaxed),
            stored: changes.stored.load(Ordering::Relaxed),
        }
    }

    /// Stores `change` and puts it in force.
    ///
    /// # Errors
    /// As [`Configuration::edit`].
    pub async fn change(&self, change: Change, author: Author) -> Result<Revision, ChangeError> {
        self.edit(author, move |_| Ok(Some(change.clone()))).await
    }

    /// Stores the change that `edit` makes of the newest documents, and puts it in force. `edit` may find that there
    /// is nothing to change. The change is made even if nobody waits for the answer any more.
    ///
    /// # Errors
    /// Those of `edit`; when the set that would result has mistakes, the precondition does not hold, too
    /// many edits wait, or the store failed. Nothing is changed then.
    pub async fn edit(
        &self,
        author: Author,
        edit: impl Fn(&Parts) -> Result<Option<Change>, ChangeError> + Send + 'static,
    ) -> Result<Revision, ChangeError> {
        self.edit_all(author, move |parts| Ok(edit(parts)?.into_iter().collect())).await
    }

    /// As [`Configuration::edit`], of several changes: in one transaction, and in force together. What they make is
    /// judged when all of them are made.
    ///
    /// # Errors
    /// As [`Configuration::edit`].
    pub async fn edit_all(
        &self,
        author: Author,
        edit: impl Fn(&Parts) -> Result<Vec<Change>, ChangeError> + Send + 'static,
    ) -> Result<Revision, ChangeError> {
        let (answer, answered) = oneshot::channel();
        Changes::enqueue(&self.changes, WaitingEdit { edit: Box::new(edit), author, answer })?;
        // The worker goes away without an answer only when the process does.
        answered.await.unwrap_or_else(|_| Err(Error::Stopped.into()))
    }

    /// Puts in force what other nodes store, for as long as it is polled.
    pub async fn follow(&self) {
        let mut newest = self.changes.control.watch();
        // What was stored between assembling the first set and now.
        newest.mark_changed();
        while newest.changed().await.is_ok() {
            newest.borrow_and_update();
            if self.blocking(Changes::catch_up).await.is_none() {
                return;
            }
        }
    }

    /// Puts another file's layers in force, and says in the log what they change.
    ///
    /// # Errors
    /// When what is in force would not go with them; the old layers stay then, all of them.
    pub async fn replace_file(&self, layers: Layers) -> Result<(), Vec<Mistake>> {
        // A runtime that is shutting down serves nobody any more.
        self.blocking(move |changes| changes.replace_file(&layers)).await.unwrap_or(Ok(()))
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Changes) -> T + Send + 'static,
    ) -> Option<T> {
        let changes = self.changes.clone();
        tokio::task::spawn_blocking(move || work(&changes)).await.ok()
    }
}

impl Changes {
    /// Has an edit made in its turn.
    fn enqueue(this: &Arc<Self>, waiting: WaitingEdit) -> Result<(), ChangeError> {
        let mut queue = this.queue.lock();
        if queue.waiting.len() >= MAX_WAITING {
            this.turned_away.fetch_add(1, Ordering::Relaxed);
            return Err(ChangeError::TooManyWaiting);
        }
        queue.waiting.push_back(waiting);
        if !std::mem::replace(&mut queue.is_worked_on, true) {
            let changes = this.clone();
            tokio::task::spawn_blocking(move || changes.work());
        }
        Ok(())
    }

    /// Makes the changes that wait, until none does.
    fn work(&self) {
        let _on_panic = GiveUp(self);
        loop {
            let mut queue = self.queue.lock();
            let count = queue.waiting.len().min(MAX_TOGETHER);
            let batch: Vec<_> = queue.waiting.drain(..count).collect();
            if batch.is_empty() {
                queue.is_worked_on = false;
                return;
            }
            drop(queue);
            self.make(batch);
        }
    }

    /// Makes a batch of changes: each is made or refused by itself, those that are made are stored
    /// together.
    fn make(&self, batch: Vec<WaitingEdit>) {
        let mut attempts = 1;
        loop {
            // The task that puts other nodes' changes in force does not wait for this turn.
            let turn = match self.control.take_turn() {
                Ok(turn) => turn,
                Err(error) => return fail(batch, error),
            };
            let _replacing = self.replacing.lock();
            let mut draft = self.control.draft();
            let before = self.in_force.borrow().clone();
            let mut parts = before.after(draft.snapshot());
            let outcomes: Vec<_> = batch.iter().map(|one| decide(one, &mut draft, &mut parts)).collect();
            let made: usize = outcomes.iter().flatten().flatten().map(|made| made.len()).sum();
            match self.control.commit(draft, turn) {
                Err(Error::Moved { .. }) if attempts < crate::MAX_OVERTAKEN => attempts += 1,
                Err(error) if made > 0 => return fail_made(batch, outcomes, error),
                _ => {
                    self.transactions.fetch_add(u64::from(made > 0), Ordering::Relaxed);
                    self.stored.fetch_add(made as u64, Ordering::Relaxed);
                    let newest = parts.documents().revision();
                    self.replace(&before, parts);
                    for (waiting, outcome) in batch.into_iter().zip(outcomes) {
                        answer(waiting, outcome.map(|made| made.map_or(newest, ChangeLines::write)));
                    }
                    return;
                }
            }
        }
    }

    /// Puts in force what is newest, if it is not.
    fn catch_up(&self) {
        let _turn = self.replacing.lock();
        let (newest, before) = (self.control.snapshot(), self.in_force.borrow().clone());
        if newest.is_same_as(before.documents()) {
            return;
        }
        tracing::info!(revision = newest.revision().0, "a change of another node is in force");
        let next = before.after(&newest);
        self.replace(&before, next);
    }

    fn replace_file(&self, layers: &Layers) -> Result<(), Vec<Mistake>> {
        let _turn = self.replacing.lock();
        let before = self.in_force.borrow().clone();
        let next = before.with_file(layers);
        let objections = before.objections(&next, None);
        if !objections.is_empty() {
            return Err(objections);
        }
        self.replace(&before, next);
        Ok(())
    }

    fn replace(&self, before: &Parts, next: Parts) {
        next.announce(Some(before));
        next.put_in_force();
        self.in_force.send_replace(next);
    }
}

/// What becomes of one edit on `parts`, which are then the next ones.
fn decide(
    WaitingEdit { edit, author, .. }: &WaitingEdit,
    draft: &mut Draft,
    parts: &mut Parts,
) -> Result<Option<ChangeLines>, ChangeError> {
    let changes = edit(parts)?;
    if changes.is_empty() {
        return Ok(None);
    }
    let lines = ChangeLines::new(parts, &changes, author);
    let next = draft.add_all(changes.clone(), author, |snapshot| {
        let next = parts.after(snapshot);
        judge(parts, &next, &changes).map(|()| next)
    })?;
    *parts = next;
    Ok(Some(lines))
}

/// Whether these changes may make `next` of `parts`.
///
/// # Errors
/// [`ChangeError::Mistakes`], each once.
pub(crate) fn judge(parts: &Parts, next: &Parts, changes: &[Change]) -> Result<(), ChangeError> {
    let mut objections = Vec::new();
    for change in changes {
        for objection in parts.objections(next, Some(change)) {
            if !objections.contains(&objection) {
                objections.push(objection);
            }
        }
    }
    if objections.is_empty() { Ok(()) } else { Err(ChangeError::Mistakes(objections)) }
}

/// Lets the next edit start a worker if this one panics. Who waits is told that there is no answer.
struct GiveUp<'a>(&'a Changes);

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.queue.lock() = EditQueue::default();
        }
    }
}

fn answer(waiting: WaitingEdit, outcome: Result<Revision, ChangeError>) {
    // The client may have left; the change is made all the same.
    drop(waiting.answer.send(outcome));
}

/// Tells everyone of a failure that kept the batch from being decided.
fn fail(batch: Vec<WaitingEdit>, error: Error) {
    let error = Arc::new(error);
    for waiting in batch {
        answer(waiting, Err(ChangeError::Control(error.clone())));
    }
}

/// Tells those of a failure to store whose changes would have been stored, and the others what they
/// did wrong.
fn fail_made(batch: Vec<WaitingEdit>, outcomes: Vec<Result<Option<ChangeLines>, ChangeError>>, error: Error) {
    let error = Arc::new(error);
    for (waiting, outcome) in batch.into_iter().zip(outcomes) {
        let failed = || ChangeError::Control(error.clone());
        answer(waiting, outcome.and_then(|_| Err(failed())));
    }
}
