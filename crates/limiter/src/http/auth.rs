//! What a route needs, and who has it.
//!
//! One place says which scope a request needs, and it is asked before the route is: a route that is not
//! named here needs `read` or, unless it is a GET, `configure`. So a new route is closed until someone
//! opens it.
//!
//! Without tokens everything is open, except that the configuration then answers only requests that a
//! page of another site cannot have made: see [`super::origin`].

use std::sync::Arc;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, Uri};

use super::Shared;
use super::reply::Refusal;
use super::{CHECK, DECISIONS, RATELIMIT};
use crate::credential::{Scope, bearer};

/// Who asks, for the audit log: a token's name, or `local` where none is demanded.
#[derive(Clone, Debug)]
pub(super) struct Actor(Arc<str>);

impl Actor {
    pub(super) fn name(&self) -> &str {
        &self.0
    }
}

/// What a request to the route with this template needs; `None`: nothing.
pub(super) fn needed(template: &str, method: &Method) -> Option<Scope> {
    match template {
        "/api/v1/health" | "/openapi.json" => None,
        RATELIMIT | DECISIONS | CHECK => Some(Scope::Decide),
        "/v1/permits" | "/v1/permits/{permit}" | "/v1/permits/{permit}/renew" => Some(Scope::Decide),
        "/v1/refunds" => Some(Scope::Refund),
        _ if *method == Method::GET || *method == Method::HEAD => Some(Scope::Read),
        _ => Some(Scope::Configure),
    }
}

impl Shared {
    /// Lets a request through that may do `scope`; who makes it.
    pub(super) fn admit(&self, scope: Scope, uri: &Uri, headers: &HeaderMap) -> Result<Actor, Refusal> {
        let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let tokens = self.settings.tokens.load();
        let actor = match tokens.admit(scope, given.and_then(bearer)) {
            Ok(Some(token)) => token.name().into(),
            Ok(None) => {
                if matches!(scope, Scope::Read | Scope::Configure) {
                    self.settings.origins.expect_local(uri, headers)?;
                }
                "local".into()
            }
            Err(denial) => return Err(Refusal::Denied(denial)),
        };
        Ok(Actor(actor))
    }

    /// Whether the bearer may ask for a decision.
    pub(super) fn may_decide(&self, authorization: Option<&[u8]>) -> bool {
        let tokens = self.settings.tokens.load();
        tokens.admit(Scope::Decide, authorization.and_then(bearer)).is_ok()
    }
}
