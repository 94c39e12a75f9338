//! `/openapi.json`: the OpenAPI 3.1 document of a listener, made of what each service describes.
//!
//! What holds for every operation is said here and not beside each: the scope that it needs, and that
//! what may be absent is never `null`. A copy is kept in `docs/openapi.json`, so that a change of the
//! interface is a change in review.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use http::{Method, Response};
use serde_json::{Value, json};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use crate::guard::{Guard, needed};
use crate::reply;
use crate::routes::ApiRoutes;

/// The path of the document.
pub const PATH: &str = "/openapi.json";

#[derive(OpenApi)]
#[openapi(
    info(title = "Tidegate", description = "Rate-limit decisions, permits, routes, and the configuration behind them."),
    components(schemas(crate::schema::ProblemSchema)),
    modifiers(&TokenScheme)
)]
struct AccessOpenApi;

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

/// The document of what these services describe, each with `paths` and `components`.
#[must_use]
pub fn document(services: impl IntoIterator<Item = Value>) -> Bytes {
    // Invariant, here and below: the document is made of maps with strings as keys, which always serialise.
    let mut document = serde_json::to_value(AccessOpenApi::openapi()).unwrap_or_default();
    for mut service in services {
        merge(&mut document["paths"], service["paths"].take());
        merge(&mut document["components"]["schemas"], service["components"]["schemas"].take());
    }
    state_scopes(&mut document);
    deny_null(&mut document);
    Bytes::from(serde_json::to_vec(&document).unwrap_or_default())
}

fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}

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

/// The route of the document. All its replies share the bytes.
#[must_use]
pub fn routes(document: Bytes, guard: &Arc<Guard>) -> ApiRoutes {
    let page = move || std::future::ready(page(&document));
    ApiRoutes::new(Router::new().route(PATH, get(page)), &[PATH], guard)
}

fn page(document: &Bytes) -> Response<Body> {
    reply::bytes(200, document.clone()).map(Body::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_the_paths_and_schemas_of_all_services() {
        let part = |name: &str| json!({"paths": {format!("/{name}"): {"get": {}}}, "components": {"schemas": {name: {}}}});
        let document = document([part("a"), part("b")]);
        let read: Value = serde_json::from_slice(&document).unwrap();
        assert!(read["openapi"].as_str().unwrap().starts_with("3.1."));
        for name in ["a", "b"] {
            assert!(read["paths"][format!("/{name}")]["get"]["security"].is_array(), "{read}");
            assert!(read["components"]["schemas"][name].is_object(), "{read}");
        }
        assert!(read["components"]["schemas"]["Problem"].is_object(), "{read}");
    }

    #[tokio::test]
    async fn fault_60_all_replies_share_the_bytes_of_the_document() {
        let document = Bytes::from(b"{}".to_vec());
        for _ in 0..2 {
            let body = axum::body::to_bytes(page(&document).into_body(), usize::MAX).await.unwrap();
            assert_eq!(body.as_ptr(), document.as_ptr());
        }
    }
}
