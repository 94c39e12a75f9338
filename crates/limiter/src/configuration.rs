//! Changing what is in force: one place through which every change of policies goes.
//!
//! ```text
//!   admin API --change--> assemble what would be --ok--> control store --> in force --> 200
//!                               |                         (durable)
//!                               `-- mistakes --> 422, nothing changed
//!   file reload --replace_file--> assemble --ok--> in force
//!   another node's change --control--> follow --> assemble --ok--> in force
//! ```
//!
//! A change is checked against everything it will meet before it is stored, so what is stored can
//! always be assembled. Changes queue behind one lock: two of them can not each be sound and their
//! sum not. When the answer is sent, the change is durable and in force at this node. Where nodes
//! share the control store, a change that another node's overtook is checked again from the start.
//!
//! Nodes may have different files. What another node stored and cannot be assembled with the file of
//! this one is not in force here: it says so in its log, and its revision in force stays behind.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_algorithms::policy::Mistake;
use tidegate_control::{Author, Change, Control, Error, MAX_OVERTAKEN, Revision, Snapshot};

use crate::engine::Engine;
use crate::error::ChangeError;
use crate::policy_set::{Candidate, FileLayer, PolicySet, candidates};

/// The engine together with the layers that its policies come from.
#[derive(Debug)]
pub struct Configuration {
    engine: Arc<Engine>,
    control: Control,
    file: Mutex<Arc<FileLayer>>,
    changing: tokio::sync::Mutex<()>,
}

impl Configuration {
    /// Configuration of `engine`, which was assembled from the same file layer and control store.
    #[must_use]
    pub fn new(engine: Arc<Engine>, control: Control, file: FileLayer) -> Self {
        Self { engine, control, file: Mutex::new(Arc::new(file)), changing: tokio::sync::Mutex::new(()) }
    }

    /// The control store.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The file's layer in force.
    #[must_use]
    pub fn file(&self) -> Arc<FileLayer> {
        // A panic under the lock leaves one whole layer or the other.
        self.file.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stores `change` and puts it in force.
    ///
    /// # Errors
    /// When the set that would result has mistakes, the precondition does not hold, or the store
    /// failed; nothing is changed then.
    pub async fn change(&self, change: Change, author: Author) -> Result<Revision, ChangeError> {
        let _turn = self.changing.lock().await;
        let mut attempts = 1;
        loop {
            let snapshot = self.control.run(Control::refreshed).await?;
            let set = self.with_change(&snapshot, &change)?;
            let (base, change, author) = (snapshot.revision(), change.clone(), author.clone());
            match self.control.run(move |control| control.apply_at(base, &[change], &author)).await {
                Err(Error::Moved { .. }) if attempts < MAX_OVERTAKEN => attempts += 1,
                outcome => {
                    let revision = outcome?;
                    self.engine.replace(set);
                    return Ok(revision);
                }
            }
        }
    }

    /// Puts in force what other nodes store, for as long as it is polled.
    pub async fn follow(&self) {
        let mut newest = self.control.watch();
        // What was stored between assembling the first set and now.
        newest.mark_changed();
        while newest.changed().await.is_ok() {
            let _turn = self.changing.lock().await;
            let snapshot = newest.borrow_and_update().clone();
            if snapshot.revision() == self.engine.set().revision() {
                continue;
            }
            let revision = snapshot.revision().0;
            match self.assemble(&self.file(), &snapshot) {
                Ok(set) => {
                    tracing::info!(revision, "a change of another node is in force");
                    self.engine.replace(set);
                }
                Err(mistakes) => {
                    let mistakes: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
                    tracing::error!(
                        revision,
                        mistakes = mistakes.join("; "),
                        "what another node stored does not go with this node's file; the old policies stay"
                    );
                }
            }
        }
    }

    /// The set that `change` would make of what is stored.
    fn with_change(&self, snapshot: &Snapshot, change: &Change) -> Result<PolicySet, ChangeError> {
        let others = candidates(snapshot)
            .filter(|document| (document.kind, document.name) != (change.kind, &*change.name));
        let next = Revision(snapshot.revision().0 + 1);
        let changed = change.body.as_deref().map(|body| Candidate {
            kind: change.kind,
            name: &change.name,
            body,
            revision: next,
        });
        PolicySet::assemble(&self.file(), next, others.chain(changed), self.engine.tallies())
            .map_err(ChangeError::Mistakes)
    }

    fn assemble(&self, file: &FileLayer, snapshot: &Snapshot) -> Result<PolicySet, Vec<Mistake>> {
        PolicySet::assemble(file, snapshot.revision(), candidates(snapshot), self.engine.tallies())
    }

    /// Puts another file layer in force.
    ///
    /// # Errors
    /// When it cannot stand together with what is stored; the old layer stays in force.
    pub async fn replace_file(&self, file: FileLayer) -> Result<(), Vec<Mistake>> {
        let _turn = self.changing.lock().await;
        let set = self.assemble(&file, &self.control.snapshot())?;
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(file);
        self.engine.replace(set);
        Ok(())
    }
}
