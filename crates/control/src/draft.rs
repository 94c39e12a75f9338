//! Changes that are put together: decided on a snapshot, and not stored yet.

use crate::document::{Accepted, Author, Change, Precondition};
use crate::error::Error;
use crate::snapshot::{Limits, Snapshot};

/// Changes that are put together and not yet stored.
#[derive(Debug)]
pub struct Draft {
    pub(crate) base: Snapshot,
    pub(crate) next: Snapshot,
    limits: Limits,
    pub(crate) accepted: Vec<Accepted>,
}

impl Draft {
    pub(crate) fn new(base: Snapshot, limits: Limits) -> Self {
        Self { next: base.clone(), base, limits, accepted: Vec::new() }
    }

    /// What would be stored.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.next
    }

    /// Whether nothing would change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.accepted.is_empty()
    }

    /// Adds a change, if `check` accepts the snapshot that it makes. Refused, it leaves no trace.
    ///
    /// # Errors
    /// As [`Draft::add_all`].
    pub fn add<T, E: From<Error>>(
        &mut self,
        change: Change,
        author: Author,
        check: impl FnOnce(&Snapshot) -> Result<T, E>,
    ) -> Result<T, E> {
        self.add_all(vec![change], &author, check)
    }

    /// Adds changes in order, if `check` accepts the snapshot that all of them make: all or none.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::InvalidActor`], [`Error::PreconditionFailed`], [`Error::NotFound`],
    /// [`Error::Full`] or [`Error::TooManyChanges`]; those of `check`.
    pub fn add_all<T, E: From<Error>>(
        &mut self,
        changes: Vec<Change>,
        author: &Author,
        check: impl FnOnce(&Snapshot) -> Result<T, E>,
    ) -> Result<T, E> {
        let count = self.accepted.len() + changes.len();
        if count > crate::MAX_CHANGES {
            return Err(Error::TooManyChanges { count }.into());
        }
        if author.actor.is_empty() || author.actor.len() > crate::MAX_ACTOR_BYTES {
            return Err(Error::InvalidActor { bytes: author.actor.len() }.into());
        }
        let mut next = self.next.clone();
        let made = changes.into_iter().map(|change| {
            let before = next.apply(&change, &self.limits)?;
            Ok(Accepted { change, author: author.clone(), revision: next.revision(), before })
        });
        let made = made.collect::<Result<Vec<_>, Error>>()?;
        let checked = check(&next)?;
        self.accepted.extend(made);
        self.next = next;
        Ok(checked)
    }
}

impl Snapshot {
    /// What these changes would make of it, whatever they presume.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::NotFound`] or [`Error::Full`].
    pub fn changed<'c>(&self, changes: impl IntoIterator<Item = &'c Change>) -> Result<Self, Error> {
        let mut next = self.clone();
        for change in changes {
            next.apply(&change.clone().when(Precondition::None), &Limits::default())?;
        }
        Ok(next)
    }
}
