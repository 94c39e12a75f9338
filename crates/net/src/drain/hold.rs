//! What a drain waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::DrainState;

#[derive(Clone, Copy, Debug)]
pub(super) enum HoldKind {
    Connection,
    Listener,
}

/// Something that a drain waits for, until it is dropped.
#[derive(Debug)]
pub struct Hold {
    shared: Arc<DrainState>,
    kind: HoldKind,
}

impl Hold {
    pub(super) fn new(shared: &Arc<DrainState>, kind: HoldKind) -> Self {
        let hold = Self { shared: Arc::clone(shared), kind };
        for shared in hold.all() {
            kind.counter(shared).fetch_add(1, Ordering::AcqRel);
        }
        hold
    }

    /// The drain, and the one that it is a part of.
    fn all(&self) -> impl Iterator<Item = &DrainState> {
        [Some(&*self.shared), self.shared.whole.as_deref()].into_iter().flatten()
    }
}

impl HoldKind {
    fn counter(self, shared: &DrainState) -> &AtomicUsize {
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
