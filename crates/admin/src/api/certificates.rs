//! `GET /v1/certificates`: the certificates that this node shows its clients, and the servers of its upstreams.

use std::fmt::Debug;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::Value;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;

use super::Shared;

/// The certificates in force at the listeners of a process, and towards servers.
pub trait ShownCertificates: Debug + Send + Sync {
    /// All of them, the one that ends first before the others.
    fn shown(&self) -> Value;
}

/// The certificates that this node shows: names, end, and where each comes from. `origin` is `file`, with the file that it was read from,
/// or `acme`, with the authority's directory, of those that `listeners` show their clients; `upstream`, with the file, of those that the
/// servers of `upstreams` are shown if they demand one. A name that has no certificate yet has no `not_after`. `trouble` says why the
/// last order failed, and what comes next, or that the files of an upstream as they are now were refused.
#[utoipa::path(
    operation_id = "list_certificates", get, path = "/v1/certificates", tag = "operation",
    responses(
        (status = 200, description = "All of them, the one that ends first before the others.", body = Object,
            example = json!({"certificates": [
                {"names": ["pay.example"], "listeners": ["gateway[0]"], "origin": "file", "file": "/etc/tidegate/pay.pem", "not_after": "2027-01-31T08:00:00Z", "seconds_left": 5500000},
                {"names": ["shop.example"], "listeners": ["gateway[0]"], "origin": "acme", "directory": "https://acme.example/directory", "not_after": "2027-02-20T08:00:00Z", "seconds_left": 7228000},
                {"names": [], "listeners": [], "upstreams": ["billing"], "origin": "upstream", "file": "/etc/tidegate/client.pem", "not_after": "2027-03-02T08:00:00Z", "seconds_left": 8092000}
            ]})),
        Problems,
    )
)]
pub(super) async fn certificates(State(shared): State<Arc<Shared>>) -> Result<Json<Value>, Refusal> {
    let known = shared.explainers.certificates.as_ref();
    known
        .map(|known| Json(known.shown()))
        .ok_or_else(|| Refusal::not_found("listener of this process that shows certificates"))
}
