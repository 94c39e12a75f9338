//! What the gateway asks of a limiter, which it does not know.

use std::future::Future;
use std::sync::Arc;

use http::HeaderMap;

/// What the limits of a route say of one request.
#[derive(Clone, Debug, Default)]
pub struct Ruling {
    /// Set if the request is denied.
    pub denial: Option<Denial>,
    /// Fields that tell the client where it stands, for the reply of either outcome.
    pub fields: HeaderMap,
}

/// Why a request is denied.
#[derive(Clone, Debug, Default)]
pub struct Denial {
    /// The policies that denied it.
    pub policies: Vec<String>,
}

/// A limiter.
pub trait Limits: Send + Sync + 'static {
    /// Charges a request, of which `attributes` are known, under the `policies` that its route lists. All
    /// are charged, or none.
    fn charge(
        &self,
        policies: &[Arc<str>],
        attributes: &[(&str, &[u8])],
    ) -> impl Future<Output = Ruling> + Send;
}

/// No limits at all: for a gateway whose routes list no policies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unlimited;

impl Limits for Unlimited {
    async fn charge(&self, _policies: &[Arc<str>], _attributes: &[(&str, &[u8])]) -> Ruling {
        Ruling::default()
    }
}
