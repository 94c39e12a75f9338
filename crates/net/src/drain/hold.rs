//! What a drain waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Shared;

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Connection,
    Listener,
}

/// Something that a drain waits for, until it is dropped.
#[derive(Debug)]
pub struct Hold {
    shared: Arc<Shared>,
    kind: Kind,
}

impl Hold {
    pub(super) fn new(shared: &Arc<Shared>, kind: Kind) -> Self {
        let hold = Self { shared: Arc::clone(shared), kind };
        for shared in hold.all() {
            kind.counter(shared).fetch_add(1, Ordering::AcqRel);
        }
        hold
    }

    /// The drain, and the one that it is a part of.
    fn all(&self) -> impl Iterator<Item = &Shared> {
        [Some(&*self.shared), self.shared.whole.as_deref()].into_iter().flatten()
    }
}

impl Kind {
    fn counter(self, shared: &Shared) -> &AtomicUsize {
        match self {
            Self::Connection => &shared.connections,
            Self::Listener => &shared.listeners,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        for shared in self.all() {
            if self.kind.counter(shared).fetch_sub(1, Ordering::AcqRel) == 1 {
                shared.released.notify_waiters();
            }
        }
    }
}
