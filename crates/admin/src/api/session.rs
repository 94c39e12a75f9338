//! `/v1/session`: who asks, and a cookie in the place of a token for pages of this server.
//!
//! What a session is good for is said in [`tidegate_access::sessions`]. The cookie is out of scripts' reach
//! (`HttpOnly`), is sent with no request that another site's page makes (`SameSite=Strict`), and only over TLS where
//! the listener has TLS at present. A request by cookie that changes something must name this server as its origin.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{AUTHORIZATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;
use tidegate_access::guard::Guard;
use tidegate_access::refusal::Refusal;
use tidegate_access::schema::Problems;
use tidegate_access::sessions::{LIFETIME, NAME, SECRET_BYTES};
use tidegate_access::tokens::{Denial, Scope, bearer};
use tidegate_net::clock::monotonic;
use tidegate_wire::problem::Problem;
use utoipa::ToSchema;

use super::Shared;
use crate::{Families, Family};

/// The user of a session, with the scopes.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Who {
    /// The token's name; `local` where none is demanded.
    name: String,
    /// Its scopes.
    scopes: Vec<&'static str>,
}

/// Begins a session of the token that the request carries.
#[utoipa::path(
    operation_id = "begin_session", post, path = "/v1/session", tag = "configuration",
    responses(
        (status = 200, description = "The reply sets the session's cookie, unless no token is demanded.", body = Who,
            headers(("set-cookie" = String, description = "the session, for 12 hours")),
            example = json!({"name": "ops", "scopes": ["read", "configure"]})),
        Problems,
    )
)]
pub(super) async fn begin(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let guard = &shared.guard;
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).and_then(bearer);
    let tokens = guard.tokens.load();
    if !tokens.demands(Scope::Read) {
        return Ok(Json(local(guard, &uri, &headers)?).into_response());
    }
    let credential = given.and_then(|secret| tokens.find(secret)).ok_or(Denial::Unknown)?.clone();
    // A session of any other token is good for nothing, and would only make one that is end sooner.
    if !credential.may(Scope::Read) && !credential.may(Scope::Configure) {
        return Err(Denial::Scope(Scope::Read).into());
    }
    let mut secret = [0; SECRET_BYTES];
    let filled = getrandom(&mut secret, GetRandomFlags::empty());
    if filled != Ok(SECRET_BYTES) {
        let detail = "the system has no random numbers; try again";
        return Err(Refusal(Problem::new(503, "Service Unavailable", detail)));
    }
    let who = Who { name: credential.name().to_owned(), scopes: words(|scope| credential.may(scope)) };
    let value = guard.sessions.begin(credential, secret, monotonic());
    Ok(([(SET_COOKIE, cookie(guard, &value, LIFETIME.as_secs())?)], Json(who)).into_response())
}

/// Says who asks, by token or by session.
#[utoipa::path(
    operation_id = "get_session", get, path = "/v1/session", tag = "configuration",
    responses(
        (status = 200, description = "Who asks.", body = Who,
            example = json!({"name": "ops", "scopes": ["read", "configure"]})),
        Problems,
    )
)]
pub(super) async fn read(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Who>, Refusal> {
    let tokens = shared.guard.tokens.load();
    if !tokens.demands(Scope::Read) {
        return Ok(Json(local(&shared.guard, &uri, &headers)?));
    }
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).and_then(bearer);
    let credential = match given {
        Some(secret) => tokens.find(secret).cloned(),
        None => shared.guard.session(Scope::Read, &uri, &headers)?,
    };
    let credential = credential.ok_or(Denial::Unknown)?;
    Ok(Json(Who { name: credential.name().to_owned(), scopes: words(|scope| credential.may(scope)) }))
}

/// Ends the session that the request's cookie names.
#[utoipa::path(
    operation_id = "end_session", delete, path = "/v1/session", tag = "configuration",
    params(("tidegate_session" = Option<String>, Cookie, description = "the session", example = "5f0c")),
    responses(
        (status = 204, description = "It is over.", headers(("set-cookie" = String, description = "takes the cookie away"))),
        Problems,
    )
)]
pub(super) async fn end(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    // Another site's page must not end it either.
    if shared.guard.session(Scope::Configure, &uri, &headers)?.is_some() {
        shared.guard.sessions.end(&headers);
    }
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie(&shared.guard, "", 0)?)]).into_response())
}

/// The user where no token is demanded: requests from this machine, unless a page of another site sent them.
fn local(guard: &Guard, uri: &Uri, headers: &HeaderMap) -> Result<Who, Refusal> {
    guard.origins.expect_local(uri, headers)?;
    Ok(Who { name: "local".to_owned(), scopes: words(|_| true) })
}

fn words(has: impl Fn(Scope) -> bool) -> Vec<&'static str> {
    Scope::ALL.into_iter().filter(|scope| has(*scope)).map(Scope::word).collect()
}

fn cookie(guard: &Guard, value: &str, seconds: u64) -> Result<HeaderValue, Refusal> {
    let secure = if guard.secure_cookies.load(Ordering::Relaxed) { "; Secure" } else { "" };
    let text = format!("{NAME}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::try_from(text).map_err(|_| Refusal::not_found("session"))
}

/// How many sessions there are.
#[derive(Debug)]
pub struct SessionCount(pub Arc<Guard>);

impl Family for SessionCount {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let (count, evicted) = self.0.sessions.count();
        families.gauge("tidegate_sessions", "Sessions of the admin API", count as u64)?;
        let help = "Sessions that were ended to make room for others";
        families.counter("tidegate_sessions_evicted", help, evicted)
    }
}
