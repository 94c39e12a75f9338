//! `/openapi.json`: the OpenAPI 3.1 document, generated from the handlers and their types.

use std::sync::LazyLock;

use bytes::Bytes;
use http::HeaderName;
use http::header::CONTENT_TYPE;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::reply::JSON;
use super::{check, classic, clients, decisions, explain, permits, policies, set_aside};

#[derive(OpenApi)]
#[openapi(
    info(title = "Tidegate", description = "Rate-limit decisions, permits, and the configuration behind them."),
    paths(
        classic::health,
        classic::rate_limit,
        classic::configure,
        classic::configure_client,
        classic::client_config,
        classic::delete_client_config,
        decisions::decide,
        decisions::refund,
        check::check,
        explain::explain,
        permits::acquire,
        permits::renew,
        permits::release,
        policies::list,
        policies::read_policy,
        policies::put,
        policies::delete,
        policies::audit,
        set_aside::set_aside,
        policies::denied_clients,
        clients::read,
        clients::put,
        clients::delete,
    ),
    modifiers(&AdminScheme)
)]
struct Document;

struct AdminScheme;

impl Modify for AdminScheme {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        let components = document.components.get_or_insert_default();
        components.security_schemes.insert("admin".to_owned(), scheme.into());
    }
}

/// `GET /openapi.json`
pub(super) async fn document() -> ([(HeaderName, &'static str); 1], Bytes) {
    ([(CONTENT_TYPE, JSON)], bytes())
}

/// The document, of which all replies share the bytes.
fn bytes() -> Bytes {
    static BYTES: LazyLock<Bytes> = LazyLock::new(|| {
        // Invariant: the document is made of strings, numbers and lists of them, which always serialise.
        Bytes::from(serde_json::to_vec(&Document::openapi()).unwrap_or_default())
    });
    BYTES.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_60_all_replies_share_the_bytes_of_the_document() {
        assert!(bytes().starts_with(b"{\"openapi\":\"3.1."));
        assert_eq!(bytes().as_ptr(), bytes().as_ptr());
        assert!(!bytes().is_unique());
    }
}
