//! Replies that show what alert rules have found, and how many series clients have.

use http::Response;
use http::request::Parts as Head;
use tidegate_net::http::{Body, Peer};

use crate::access::Right;
use crate::batch;
use crate::intake::Intake;
use crate::refusal::Refusal;

impl Intake {
    /// The rules and what they have found.
    pub(crate) fn show_alerts(&self, head: &Head, peer: &Peer) -> Result<Response<Body>, Refusal> {
        self.admit(head, peer, Right::Read)?;
        let empty = || serde_json::json!({ "rules": [], "alerts": [], "resolved": [] });
        let found = self.parts.alerts.as_ref().map_or_else(empty, |alerts| alerts.to_json());
        Ok(batch::json(found.to_string().into_bytes()))
    }

    /// How many series the clients have that have the most.
    pub(crate) fn show_series(&self, head: &Head, peer: &Peer) -> Result<Response<Body>, Refusal> {
        self.admit(head, peer, Right::Read)?;
        Ok(batch::json(self.parts.series.to_json().to_string().into_bytes()))
    }
}
