//! `/v1/explain?client_id=...`: why would this request be denied? `/v1/explain/route?host=...&path=...`: which
//! way would it take, and why?
//!
//! The decision service and the gateway answer, as values from the binary; here are the addresses, the rights
//! and the documents.

use std::borrow::Cow;
use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use serde_json::Value;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_wire::bodies::LimitsBody;

use super::Shared;

/// Who explains routes.
pub trait ExplainRoute: Debug + Send + Sync {
    /// What would become of the request that these parameters describe.
    fn explain<'a>(
        &'a self,
        parameters: &'a [(String, String)],
    ) -> Pin<Box<dyn Future<Output = Result<Value, NoExplanation>> + Send + 'a>>;
}

/// What is wrong with a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoExplanation {
    /// Its name.
    pub parameter: String,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub accepted: &'static str,
}

/// Says what each policy would do to a request, and why, and what the numbers would that come with it. Charges nothing.
#[utoipa::path(
    get, path = "/v1/explain", tag = "decisions",
    params(
        ("client_id" = Option<String>, Query, max_length = 512, description = "the client that asks; any other parameter is an attribute too", example = "user123"),
        ("cost" = Option<u64>, Query, maximum = 1_000_000_000, description = "units, 1 if absent"),
        ("not_applying" = Option<u64>, Query, maximum = 1_000_000_000, description = "most policies that do not apply which are listed; the others are counted in not_listed. All if absent"),
        ("limits" = Option<String>, Query, description = "numbers that come with the request, as JSON: `limits` of POST /v1/decisions; request_limits of the reply says whether they decide", example = "{\"limit\":100,\"window_seconds\":60}"),
    ),
    responses(
        (status = 200, description = "What would happen.", body = ref("#/components/schemas/Explanation"),
            example = json!({"allowed": true, "revision": 7, "policies": [{"policy": {"name": "default", "limit": 100, "window_seconds": 60}, "origin": "built-in", "applies": true}]})),
        Problems,
    )
)]
pub(super) async fn explain(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let query = query.unwrap_or_default();
    let mut attributes: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
    let cost = number(&mut attributes, "cost")?.unwrap_or(1);
    let listed = number(&mut attributes, "not_applying")?
        .map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    let limits = limits(&mut attributes)?;
    let pairs: Vec<(&str, &[u8])> =
        attributes.iter().map(|(name, value)| (&**name, value.as_bytes())).collect();
    shared.limits.explain(&pairs, cost, listed, limits.as_ref()).await.map(Json).map_err(Refusal)
}

/// Takes the parameter `limits`, if it is a JSON object, out of those that are attributes.
fn limits(attributes: &mut Vec<(Cow<'_, str>, Cow<'_, str>)>) -> Result<Option<LimitsBody>, Refusal> {
    let is_limits = |(name, text): &(Cow<'_, str>, Cow<'_, str>)| name == "limits" && text.starts_with('{');
    let Some(at) = attributes.iter().position(is_limits) else { return Ok(None) };
    let (_, text) = attributes.remove(at);
    serde_json::from_str(&text).map(Some).map_err(|error| {
        let accepted = "numbers as in {\"limit\":100,\"window_seconds\":60}";
        Refusal::field("/limits", format!("is no limit: {error}"), accepted)
    })
}

/// The largest number in a query.
const MOST: u64 = 1_000_000_000;

/// Takes the parameter `name`, a number, out of those that are attributes.
fn number(attributes: &mut Vec<(Cow<'_, str>, Cow<'_, str>)>, name: &str) -> Result<Option<u64>, Refusal> {
    let Some(at) = attributes.iter().position(|(other, _)| other == name) else {
        return Ok(None);
    };
    let (_, text) = attributes.remove(at);
    let accepted = "a whole number from 0 to 1000000000";
    match text.parse() {
        Ok(number) if number <= MOST => Ok(Some(number)),
        _ => Err(Refusal::field(format!("/{name}"), format!("is {text:?}"), accepted)),
    }
}

/// Says which route a request would take and why not the others, what its limits would say, and which server would
/// get it, with every candidate's score. Charges and sends nothing.
#[utoipa::path(
    get, path = "/v1/explain/route", tag = "gateway",
    params(
        ("host" = Option<String>, Query, description = "the request's host", example = "shop.example"),
        ("path" = Option<String>, Query, description = "its path, with its query if it has one; / if absent", example = "/api/users/7"),
        ("method" = Option<String>, Query, description = "its method; GET if absent", example = "GET"),
        ("client_ip" = Option<String>, Query, description = "the client's address; 127.0.0.1 if absent. A parameter header.NAME is a header field", example = "203.0.113.7"),
    ),
    responses(
        (status = 200, description = "What would happen.", body = Object,
            example = json!({"host": "shop.example", "path": "/api/users/7", "client": "203.0.113.7", "route": "api", "considered": [{"route": "api", "matches": "shop.example /api/* -> upstream app", "taken": true}], "action": {"forward": {"upstream": "app", "balance": "least_requests", "next": "127.0.0.1:3000"}}})),
        Problems,
    )
)]
pub(super) async fn explain_route(
    State(shared): State<Arc<Shared>>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    answer(shared.explainers.routes.as_ref(), "route in this process", query).await
}

/// What `explainer` says, if this process has one.
pub(super) async fn answer(
    explainer: Option<&Arc<dyn ExplainRoute>>,
    missing: &str,
    query: Option<String>,
) -> Result<Json<Value>, Refusal> {
    let Some(explainer) = explainer else {
        return Err(Refusal::not_found(missing));
    };
    let query = query.unwrap_or_default();
    let parameters: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let explained = explainer.explain(&parameters).await;
    explained.map(Json).map_err(|NoExplanation { parameter, problem, accepted }| {
        Refusal::field(format!("/{parameter}"), problem, accepted)
    })
}
