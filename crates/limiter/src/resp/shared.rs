//! What the conversations of all clients share.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use tidegate_access::tokens::TokensInForce;

use super::throttle::Dialect;
use crate::ad_hoc::AdHoc;
use crate::engine::Engine;

/// What all sessions share.
#[derive(Debug)]
pub(super) struct RespState {
    pub(super) cell: AdHoc,
    crab: AdHoc,
    pub(super) tokens: TokensInForce,
    pub(super) sessions: AtomicI64,
}

impl RespState {
    pub(super) fn new(engine: &Arc<Engine>, tokens: TokensInForce) -> Self {
        Self {
            cell: AdHoc::new(engine.clone(), "CL.THROTTLE"),
            crab: AdHoc::new(engine.clone(), "THROTTLE"),
            tokens,
            sessions: AtomicI64::new(0),
        }
    }

    /// The counters of a dialect.
    pub(super) fn counters(&self, dialect: Dialect) -> &AdHoc {
        match dialect {
            Dialect::Cell => &self.cell,
            Dialect::Crab => &self.crab,
        }
    }
}
