//! A request that has come, on its way through the phases.

use std::time::Instant;

use http::Request;
use http::request::Parts;
use tidegate_net::http::{RequestBody, UpgradeOffer};

/// A request that has come.
pub(crate) struct Arrival {
    /// In a box: phases hand it on, and it is larger than all else that they do.
    pub(crate) parts: Box<Parts>,
    pub(crate) body: RequestBody,
    /// Its client's offer to go on in another protocol.
    pub(crate) offer: Option<UpgradeOffer>,
    /// When it came.
    pub(crate) came: Instant,
}

impl Arrival {
    pub(crate) fn new(mut request: Request<RequestBody>, came: Instant) -> Self {
        let offer = UpgradeOffer::take(&mut request);
        let (parts, body) = request.into_parts();
        Self { parts: Box::new(parts), body, offer, came }
    }
}
