//! Permits of concurrency limits that routed requests hold: taken with the decision, renewed while the request
//! lasts, given back at its end.
//!
//! ```text
//!   decide_routed ─> RoutedPermit ─> HeldPermit ── a third of the lease ──> renew ─┐
//!                                       |   ^                                      |
//!                                       |   `──────────────────────────────────────┘
//!                                       `── dropped: the request has ended ──> release
//! ```
//!
//! Its holder only has to drop it, also in the middle of a request (fault 44). If the store cannot be reached then, the
//! lease ends by itself.

use std::sync::Arc;
use std::time::Duration;

use tidegate_algorithms::limit::PermitId;
use tidegate_algorithms::policy::{Attributes, counted};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::decision::Decision;
use crate::engine::{Engine, HeldPermit};

/// How often a permit is renewed within its lease: two renewals may fail.
const RENEWALS: u32 = 3;

/// A permit, with what is needed to find it again.
#[derive(Debug)]
pub(crate) struct RoutedPermit {
    id: PermitId,
    policies: Vec<Arc<str>>,
    attributes: Vec<(String, Vec<u8>)>,
    lease: Duration,
}

/// A permit that is held until this is dropped.
#[derive(Debug)]
pub struct RoutedHold {
    _ended: oneshot::Sender<()>,
}

impl RoutedPermit {
    /// The permit that a decision handed out, if it did.
    pub(crate) fn of(decision: &Decision, attributes: &[(&str, &[u8])]) -> Option<Self> {
        let id = decision.permit?;
        let granting = decision.parts.iter().filter(|part| part.grants());
        let shortest = granting.clone().map(|part| part.window_seconds).min()?;
        let attributes =
            attributes.iter().map(|(name, value)| ((*name).to_owned(), counted(value).into_owned()));
        Some(Self {
            id,
            policies: granting.map(|part| Arc::clone(&part.policy)).collect(),
            attributes: attributes.collect(),
            lease: Duration::from_secs(shortest),
        })
    }

    /// Holds it. Called within a runtime.
    pub(crate) fn hold(self, engine: Arc<Engine>) -> RoutedHold {
        let (ended, end) = oneshot::channel();
        drop(tokio::spawn(self.keep(engine, end)));
        RoutedHold { _ended: ended }
    }

    async fn keep(self, engine: Arc<Engine>, mut end: oneshot::Receiver<()>) {
        let policies: Vec<&str> = self.policies.iter().map(|policy| &**policy).collect();
        let pairs: Vec<(&str, &[u8])> =
            self.attributes.iter().map(|(name, value)| (&**name, &**value)).collect();
        let held = HeldPermit { id: self.id, policies: &policies, attributes: Attributes::new(&pairs) };
        while timeout(self.lease / RENEWALS, &mut end).await.is_err() {
            match engine.renew(&held).await {
                // It is gone: an operator has reset the client, or the store has lost it. There is nothing to give back.
                Ok(None) => return,
                Ok(Some(_)) => {}
                Err(error) => tracing::debug!(%error, "a permit could not be renewed"),
            }
        }
        if let Err(error) = engine.release(&held).await {
            tracing::debug!(%error, "a permit could not be given back: its lease will end");
        }
    }
}
