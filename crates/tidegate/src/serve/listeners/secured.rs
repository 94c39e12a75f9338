//! The listeners that have TLS at present.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::config::Secured;

/// The listeners that have TLS at present; clones share them.
#[derive(Clone, Debug, Default)]
pub struct SecuredListeners(Arc<Mutex<Vec<Secured>>>);

impl SecuredListeners {
    pub(in crate::serve) fn new(secured: Vec<Secured>) -> Self {
        Self(Arc::new(Mutex::new(secured)))
    }

    /// Each with its TLS.
    #[must_use]
    pub fn now(&self) -> Vec<Secured> {
        self.0.lock().clone()
    }

    /// From now on these have TLS.
    pub(super) fn replace(&self, secured: Vec<Secured>) {
        *self.0.lock() = secured;
    }
}
