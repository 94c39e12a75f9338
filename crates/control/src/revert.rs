//! Going back to an earlier revision, by changes that lead forward.
//!
//! ```text
//!   audit log, rows after the revision ── of each document the first ──> what it was then
//!                                                                             | where it is otherwise now
//!                                                                             v
//!                                              one transaction: put it, or delete it ──> in force, as any change
//! ```
//!
//! Nothing is taken out of the history: each document that goes back is a change of its own, with a revision and an audit row, so
//! that going back can itself be gone back from. All of them are judged together, as what they make: a document that no longer goes
//! with the file is a mistake, and nothing is changed.
//!
//! Only documents of services that this process has go back, since nobody here could judge the others; and of these not the kinds
//! that the caller keeps. Decided again, as any edit, where another node's change came first.
//!
//! Bound: [`MAX_CHANGES`] documents of a kind that were touched since, and as many in all that change.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::MAX_CHANGES;
use crate::configuration::{Configuration, judge};
use crate::control::{Backend, Control};
use crate::document::{Action, Author, Change, Kind, Revision};
use crate::error::{ChangeError, Error};
use crate::service::Parts;

/// The revision that is gone back to, and what the caller presumes.
#[derive(Clone, Copy, Debug)]
pub struct Revert {
    /// What is to be in force again.
    pub to: Revision,
    /// The newest revision that the caller knows; anything later is somebody's work that would be undone unseen.
    pub expected: Option<Revision>,
    /// Kinds that stay as they are.
    pub stays: &'static [Kind],
}

/// What went back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reverted {
    /// The newest revision then; the same as before if nothing had to change.
    pub revision: Revision,
    /// The documents, and what was done to each.
    pub changes: Vec<(Kind, Arc<str>, Action)>,
}

/// What going back would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The newest revision: what [`Revert::expected`] has to be for just this to be done.
    pub revision: Revision,
    /// The documents, in the order in which they would be changed.
    pub changes: Vec<PreviewedChange>,
}

/// A document that would go back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviewedChange {
    /// What it describes.
    pub kind: Kind,
    /// Its name.
    pub name: Arc<str>,
    /// As it is now; `None`: there is none.
    pub now: Option<Arc<str>>,
    /// As it would be; `None`: it would be deleted.
    pub then: Option<Arc<str>>,
}

impl Configuration {
    /// What [`Configuration::revert`] would do now, judged as that judges it. Nothing is changed.
    ///
    /// # Errors
    /// Those of [`Configuration::revert`], but for what can only go wrong where something is stored.
    pub async fn preview(&self, wanted: Revert) -> Result<Preview, ChangeError> {
        let (control, parts) = (self.control().clone(), self.parts());
        let previewed = tokio::task::spawn_blocking(move || preview(&control, &parts, wanted)).await;
        // There is no answer only when the process ends.
        previewed.unwrap_or_else(|_| Err(Error::Stopped.into()))
    }

    /// Puts what was stored at an earlier revision in force again.
    ///
    /// # Errors
    /// [`ChangeError::NotThere`], [`ChangeError::Pruned`] or [`ChangeError::Overtaken`]; those of
    /// [`Configuration::edit_all`].
    pub async fn revert(&self, wanted: Revert, author: Author) -> Result<Reverted, ChangeError> {
        let made = Arc::new(Mutex::new(Vec::new()));
        let (control, told) = (self.control().clone(), Arc::clone(&made));
        let edit = move |parts: &Parts| {
            let changes = changes_back(&control, parts, wanted)?;
            let done = |change: &Change| {
                let action = if change.body.is_some() { Action::Put } else { Action::Delete };
                (change.kind, Arc::clone(&change.name), action)
            };
            // Of the last decision: the ones before it were overtaken.
            *told.lock() = changes.iter().map(done).collect();
            Ok(changes)
        };
        let revision = self.edit_all(author, edit).await?;
        let changes = std::mem::take(&mut *made.lock());
        Ok(Reverted { revision, changes })
    }
}

fn preview(control: &Control, parts: &Parts, wanted: Revert) -> Result<Preview, ChangeError> {
    let parts = parts.after(&control.snapshot());
    let changes = changes_back(control, &parts, wanted)?;
    let now = parts.documents();
    judge(&parts, &parts.after(&now.changed(&changes)?), &changes)?;
    let revision = now.revision();
    let shown = |change: Change| {
        let before = now.get(change.kind, &change.name).map(|document| Arc::clone(&document.body));
        PreviewedChange { kind: change.kind, name: change.name, now: before, then: change.body }
    };
    Ok(Preview { revision, changes: changes.into_iter().map(shown).collect() })
}

/// The changes that make of `parts` what was stored then: deletions first, so that there is room for what is put.
fn changes_back(control: &Control, parts: &Parts, wanted: Revert) -> Result<Vec<Change>, ChangeError> {
    let Revert { to, expected, stays } = wanted;
    let now = parts.documents();
    let newest = now.revision();
    if to > newest {
        return Err(ChangeError::NotThere { wanted: to, newest });
    }
    if let Some(expected) = expected.filter(|expected| *expected != newest) {
        return Err(ChangeError::Overtaken { expected, newest });
    }
    let oldest = Revision(control.usage()?.audit_pruned);
    if to < oldest {
        return Err(ChangeError::Pruned { wanted: to, oldest });
    }
    let (mut gone, mut put) = (Vec::new(), Vec::new());
    for kind in parts.kinds().into_iter().filter(|kind| !stays.contains(kind)) {
        for (name, before) in then(control, parts, to, kind)? {
            let body = now.get(kind, &name).map(|document| &document.body);
            match (before, body) {
                (Some(before), body) if body != Some(&before) => put.push(Change::put(kind, name, before)),
                (None, Some(_)) => gone.push(Change::delete(kind, name)),
                _ => {}
            }
        }
    }
    gone.extend(put);
    if gone.len() > MAX_CHANGES {
        return Err(Error::TooManyChanges { count: gone.len() }.into());
    }
    Ok(gone)
}

/// What the documents of this kind that were touched since were then.
fn then(
    control: &Control,
    parts: &Parts,
    to: Revision,
    kind: Kind,
) -> Result<BTreeMap<Arc<str>, Option<Arc<str>>>, ChangeError> {
    let rows = control.first_before(to, kind)?;
    if rows.len() > MAX_CHANGES {
        return Err(Error::TooManyChanges { count: rows.len() }.into());
    }
    let mut before: BTreeMap<Arc<str>, Option<Arc<str>>> = BTreeMap::new();
    for (name, body) in rows {
        before.insert(name.into(), body.map(Arc::from));
    }
    // Changes that are decided in the same transaction have no audit row yet.
    let stored = control.snapshot();
    for (_, name) in
        parts.documents().changes_after(stored.revision()).into_iter().flatten().filter(|(it, _)| *it == kind)
    {
        let body = || stored.get(kind, name).map(|document| Arc::clone(&document.body));
        before.entry(Arc::clone(name)).or_insert_with(body);
    }
    Ok(before)
}

impl Control {
    /// Of each document of this kind that was changed after this revision: its name, and what it was before the first
    /// of these changes. One more than [`MAX_CHANGES`] at most.
    ///
    /// # Errors
    /// [`Error::Database`], [`Error::Unavailable`] or [`Error::Corrupt`].
    fn first_before(&self, after: Revision, kind: Kind) -> Result<Vec<(String, Option<String>)>, Error> {
        match &self.shared.backend {
            Backend::Local(local) => local.first_before(after, kind),
            Backend::Remote(remote) => remote.first_before(after, kind),
        }
    }
}
