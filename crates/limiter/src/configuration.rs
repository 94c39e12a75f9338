//! Changing what is in force: one place through which every change of policies goes.
//!
//! ```text
//!   admin API --change--> assemble what would be --ok--> control store --> in force --> 200
//!                               |                         (durable)
//!                               `-- mistakes --> 422, nothing changed
//!   file reload --replace_file--> assemble --ok--> in force
//! ```
//!
//! A change is checked against everything it will meet before it is stored, so what is stored can
//! always be assembled. Changes queue behind one lock: two of them can not each be sound and their
//! sum not. When the answer is sent, the change is durable and in force at this node.

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_algorithms::policy::Mistake;
use tidegate_control::{Author, Change, Control, Revision};

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
        let snapshot = self.control.snapshot();
        let others = candidates(&snapshot)
            .filter(|document| (document.kind, document.name) != (change.kind, &*change.name));
        let next = Revision(snapshot.revision().0 + 1);
        let changed = change.body.as_deref().map(|body| Candidate {
            kind: change.kind,
            name: &change.name,
            body,
            revision: next,
        });
        let set = PolicySet::assemble(&self.file(), next, others.chain(changed), self.engine.tallies())
            .map_err(ChangeError::Mistakes)?;
        // One process owns the control store and changes take turns here: this one becomes `next`.
        let revision = self.control.run(move |control| control.apply(&[change], &author)).await?;
        self.engine.replace(set);
        Ok(revision)
    }

    /// Puts another file layer in force.
    ///
    /// # Errors
    /// When it cannot stand together with what is stored; the old layer stays in force.
    pub async fn replace_file(&self, file: FileLayer) -> Result<(), Vec<Mistake>> {
        let _turn = self.changing.lock().await;
        let snapshot = self.control.snapshot();
        let set =
            PolicySet::assemble(&file, snapshot.revision(), candidates(&snapshot), self.engine.tallies())?;
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(file);
        self.engine.replace(set);
        Ok(())
    }
}
