//! The guard: the scope that a route needs, and whether a request's token has it.
//!
//! The guard runs before the route. A route that is not named here needs the scope `read` or, unless the request is a
//! GET, `configure`. So a new route is closed until someone opens it.
//!
//! Without tokens everything is open, except that the configuration then answers only requests that a
//! page of another site cannot have made: see [`crate::origins`].

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::body::Body;
use axum::extract::{MatchedPath, State};
use axum::middleware::Next;
use axum::response::IntoResponse;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Method, Response, Uri};
use tidegate_net::clock::monotonic;

use crate::origins::{ForeignPage, TrustedOrigins};
use crate::refusal::Refusal;
use crate::sessions::Sessions;
use crate::tokens::{Credential, Denial, Scope, TokensInForce, bearer};

/// The author of a request, for the audit log: a token's name, or `local` where no token is demanded; and its
/// address.
#[derive(Clone, Debug)]
pub struct Actor {
    name: Arc<str>,
    from: Option<IpAddr>,
}

impl Actor {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address at the other end of the connection.
    #[must_use]
    pub fn from(&self) -> Option<IpAddr> {
        self.from
    }
}

impl From<Arc<str>> for Actor {
    fn from(name: Arc<str>) -> Self {
        Self { name, from: None }
    }
}

/// The address at the other end of a request's connection, as [`crate::routes::Api`] leaves it for the guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedFrom(pub(crate) IpAddr);

/// What a request to the route with this template needs; `None`: nothing.
#[must_use]
pub fn needed(template: &str, method: &Method) -> Option<Scope> {
    match template {
        "/api/v1/health" | "/openapi.json" => None,
        // They hold no data: what they show they ask for.
        _ if is_of_the_console(template) => None,
        // It says who asks, and asks for a token itself.
        "/v1/session" => None,
        "/api/v1/ratelimit" | "/v1/decisions" | "/v1/check" => Some(Scope::Decide),
        "/v1/permits" | "/v1/permits/{permit}" | "/v1/permits/{permit}/renew" => Some(Scope::Decide),
        "/v1/refunds" => Some(Scope::Refund),
        // It changes nothing.
        "/v1/playground" => Some(Scope::Read),
        _ if *method == Method::GET || *method == Method::HEAD => Some(Scope::Read),
        _ => Some(Scope::Configure),
    }
}

/// Whether it is one of the console's own files.
fn is_of_the_console(template: &str) -> bool {
    matches!(template, "/" | "/dashboard" | "/console.js" | "/console.css" | "/console.svg")
}

/// What stands before the HTTP API.
#[derive(Debug, Default)]
pub struct Guard {
    /// Who may do what. A public bind without tokens is refused where settings are checked.
    pub tokens: TokensInForce,
    /// Which hosts and origins are trusted beside this machine's own.
    pub origins: TrustedOrigins,
    /// The sessions that pages of this server have.
    pub sessions: Sessions,
    /// Whether the cookies of sessions are for TLS only.
    pub secure_cookies: AtomicBool,
}

impl Guard {
    /// Lets a request through that may do `scope`; who makes it.
    ///
    /// # Errors
    /// When its token, or its session's, does not have the scope; when another site's page may have sent it.
    pub fn admit(&self, scope: Scope, uri: &Uri, headers: &HeaderMap) -> Result<Actor, Refusal> {
        let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        if given.is_none()
            && let Some(credential) = self.session(scope, uri, headers)?
        {
            return if credential.may(scope) {
                Ok(Arc::<str>::from(credential.name()).into())
            } else {
                Err(Denial::Scope(scope).into())
            };
        }
        let tokens = self.tokens.load();
        let actor: Arc<str> = match tokens.admit(scope, given.and_then(bearer)) {
            Ok(Some(token)) => token.name().into(),
            Ok(None) => {
                if matches!(scope, Scope::Read | Scope::Configure) {
                    self.origins.expect_local(uri, headers)?;
                }
                "local".into()
            }
            Err(denial) => return Err(denial.into()),
        };
        Ok(actor.into())
    }

    /// The token of the session by whose cookie a request asks, if the session is good for requests of this scope
    /// and the token is still in force.
    ///
    /// # Errors
    /// When another site's page may have sent it.
    pub fn session(
        &self,
        scope: Scope,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Option<Credential>, ForeignPage> {
        if !matches!(scope, Scope::Read | Scope::Configure) {
            return Ok(None);
        }
        let found = self.sessions.find(headers, monotonic());
        let Some(credential) = found.filter(|credential| self.tokens.load().contains(credential)) else {
            return Ok(None);
        };
        // A browser names the origin of whatever can change something.
        TrustedOrigins::expect_own(uri, headers, scope != Scope::Read)?;
        Ok(Some(credential))
    }

    /// Lets a request for a page through. Where no token is demanded, a page that is had under a foreign name could ask
    /// for nothing, so it is refused like what it would ask for.
    fn admit_page(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ForeignPage> {
        match self.tokens.load().admit(Scope::Read, None) {
            Ok(None) => self.origins.expect_local(uri, headers),
            // Whoever opens it signs in.
            Ok(Some(_)) | Err(_) => Ok(()),
        }
    }

    /// Whether the bearer may ask for a decision.
    #[must_use]
    pub fn may_decide(&self, authorization: Option<&[u8]>) -> bool {
        let tokens = self.tokens.load();
        tokens.admit(Scope::Decide, authorization.and_then(bearer)).is_ok()
    }
}

/// Lets a request to a route through that may have it, with who makes it. Leaves the matched template
/// on the reply, where [`crate::routes::Api`] finds it.
pub(crate) async fn admit(
    State(guard): State<Arc<Guard>>,
    path: MatchedPath,
    mut request: axum::extract::Request,
    next: Next,
) -> Response<Body> {
    let (uri, headers) = (request.uri(), request.headers());
    let admitted = match needed(path.as_str(), request.method()) {
        Some(scope) => guard.admit(scope, uri, headers).map(Some),
        None if is_of_the_console(path.as_str()) => {
            guard.admit_page(uri, headers).map(|()| None).map_err(Refusal::from)
        }
        None => Ok(None),
    };
    let mut reply = match admitted {
        Err(refusal) => refusal.into_response(),
        Ok(actor) => {
            if let Some(mut actor) = actor {
                actor.from = request.extensions().get().map(|AskedFrom(address)| *address);
                request.extensions_mut().insert(actor);
            }
            next.run(request).await
        }
    };
    reply.extensions_mut().insert(path);
    reply
}
