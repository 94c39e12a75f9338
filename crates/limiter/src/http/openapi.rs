//! `/openapi.json`: the OpenAPI 3.1 document, generated from the handlers and their types.
//!
//! What holds for every operation is said here and not beside each: the scope that it needs, and that
//! what may be absent is never `null`. A copy is kept in `docs/openapi.json`, so that a change of the
//! interface is a change in review.

use std::sync::LazyLock;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Response};
use serde_json::{Value, json};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::auth::needed;
use super::{
    check, classic, clients, decisions, documents, explain, explain_route, permits, policies, reply,
    set_aside, usage,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "Tidegate", description = "Rate-limit decisions, permits, routes, and the configuration behind them."),
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
        explain_route::explain_route,
        permits::acquire,
        permits::renew,
        permits::release,
        policies::list,
        policies::read_policy,
        policies::put,
        policies::delete,
        documents::list_routes,
        documents::read_route,
        documents::put_route,
        documents::delete_route,
        documents::list_upstreams,
        documents::read_upstream,
        documents::put_upstream,
        documents::delete_upstream,
        policies::audit,
        set_aside::set_aside,
        policies::denied_clients,
        clients::list,
        clients::read,
        clients::put,
        clients::delete,
        usage::reset,
        usage::nearest,
    ),
    components(schemas(super::schema::ProblemSchema)),
    modifiers(&TokenScheme)
)]
struct Document;

struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        let components = document.components.get_or_insert_default();
        components.security_schemes.insert(TOKEN.to_owned(), scheme.into());
    }
}

/// The name of the one way to say who one is.
const TOKEN: &str = "token";

/// The document's bytes: it never changes.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
    // Invariant, here and below: the document is made of maps with strings as keys, which always serialise.
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or_default();
    state_scopes(&mut document);
    deny_null(&mut document);
    Bytes::from(serde_json::to_vec(&document).unwrap_or_default())
});

/// Says of each operation which scope it needs, from the table that decides it.
fn state_scopes(document: &mut Value) {
    let Some(paths) = document["paths"].as_object_mut() else { return };
    for (path, operations) in paths {
        for (method, operation) in operations.as_object_mut().into_iter().flatten() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap_or_default();
            let Some(scope) = needed(path, &method) else { continue };
            operation["security"] = json!([{}, { TOKEN: [] }]);
            let scope = format!("Needs a token with the scope `{}` where tokens are demanded.", scope.word());
            operation["description"] = match operation["description"].as_str() {
                Some(text) if !text.is_empty() => format!("{text}\n\n{scope}").into(),
                _ => scope.into(),
            };
        }
    }
}

/// Takes `null` out of the types of what may be absent: absent is what it is then, in requests as in replies.
fn deny_null(schema: &mut Value) {
    if let Some(parameters) = schema.get_mut("parameters").and_then(Value::as_array_mut) {
        parameters.iter_mut().filter_map(|it| it.get_mut("schema")).for_each(deny_null_here);
    }
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let optional = properties.iter_mut().filter(|(name, _)| required.iter().all(|it| it != *name));
        optional.for_each(|(_, property)| deny_null_here(property));
    }
    match schema {
        Value::Object(fields) => fields.values_mut().for_each(deny_null),
        Value::Array(items) => items.iter_mut().for_each(deny_null),
        _ => {}
    }
}

fn deny_null_here(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    if let Some(Value::Array(types)) = fields.get_mut("type") {
        types.retain(|it| it != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            fields.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = fields.get_mut("oneOf") {
        choices.retain(|it| it["type"] != "null");
        if let [Value::Object(only)] = &choices[..] {
            let only = only.clone();
            fields.remove("oneOf");
            fields.extend(only);
        }
    }
}

/// `GET /openapi.json`
pub(super) async fn document() -> Response<Body> {
    reply::bytes(200, bytes()).map(Body::from)
}

/// The document, of which all replies share the bytes.
fn bytes() -> Bytes {
    DOCUMENT.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_60_all_replies_share_the_bytes_of_the_document() {
        let document: Value = serde_json::from_slice(&bytes()).unwrap();
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
        assert_eq!(bytes().as_ptr(), bytes().as_ptr());
        assert!(!bytes().is_unique());
    }
}
