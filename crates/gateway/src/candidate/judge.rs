//! The candidate's verdict on a request, by a route's configuration alone: a function that asks no store, server or other service.
//!
//! ```text
//!   maintenance ─> size of the head ─> preflight ─> who is it? ─> policy in force? ─> reply ─> size of the body ─> upstream
//!      503               431            204, 403       401, 403       503                            413
//! ```
//!
//! The order is that of `proxy.rs`. Not judged: what policies, breakers, servers and another service would say; whether a JWT
//! is good (that one is there is); bodies whose length is not stated. So a split that tells clients apart is judged by the
//! address where a JWT or another service would say who the client is.

use std::net::IpAddr;
use std::sync::Arc;

use http::Request;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use serde::Serialize;
use tidegate_access::jwt::JwtDenial;
use tidegate_access::keys::ApiKeys;
use tidegate_net::limits::MissingPolicy;

use crate::authentication::authenticate::StatedCredential;
use crate::authentication::identity::Identity;
use crate::config::{Action, Auth, RouteConfig};
use crate::response::refusal::Refusal;
use crate::response::replies::{Early, early};
use crate::routes::target::TargetPath;

/// A request, and what else a judgement depends on.
pub(crate) struct JudgedRequest<'a> {
    /// Lower case, without a port.
    pub(crate) host: &'a str,
    pub(crate) path: &'a TargetPath,
    pub(crate) client: IpAddr,
    /// The name in its connection's certificate.
    pub(crate) tls_name: Option<&'a str>,
    pub(crate) parts: &'a Parts,
    pub(crate) keys: &'a ApiKeys,
    /// What becomes of requests whose route lists a policy that is not in force.
    pub(crate) missing_policy: MissingPolicy,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JudgedOutcome {
    /// The route that takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<Arc<str>>,
    /// What that does with it.
    #[serde(flatten)]
    pub does: Does,
}

/// What a route does with a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Does {
    /// It goes to this upstream.
    Forward(Arc<str>),
    /// It is answered with this status, as the route says.
    Reply(u16),
    /// It is refused.
    Refuse {
        /// With this status.
        status: u16,
        /// The word for why, as in the access log.
        because: &'static str,
    },
}

impl Does {
    pub(super) fn refuse(refusal: &Refusal) -> Self {
        Self::Refuse { status: refusal.status(), because: refusal.word() }
    }
}

/// A route's configuration, and whether it lists a policy that is not in force.
type JudgedRoute<'r> = Option<(&'r RouteConfig, bool)>;

/// A request as a route sees it that asks who the client is.
struct SeenRequest {
    /// Without what says who the client is; `None`: nothing was taken off.
    parts: Option<Parts>,
    /// The client's identity, as far as it is judged, or why the request is refused.
    proof: Result<Option<Identity>, Does>,
}

impl JudgedRequest<'_> {
    /// What becomes of the request by one side and by the other.
    pub(crate) fn outcomes(
        &self,
        (one, other): (JudgedRoute<'_>, JudgedRoute<'_>),
    ) -> (JudgedOutcome, JudgedOutcome) {
        let auth = |side: JudgedRoute<'_>| side.and_then(|(route, _)| route.auth.clone());
        let (first, second) = (auth(one), auth(other));
        let seen = self.seen(first.as_ref());
        let seen_by_other = (first != second).then(|| self.seen(second.as_ref()));
        (self.outcome(one, &seen), self.outcome(other, seen_by_other.as_ref().unwrap_or(&seen)))
    }

    fn outcome(&self, side: JudgedRoute<'_>, seen: &SeenRequest) -> JudgedOutcome {
        let Some((route, lacks_policy)) = side else {
            return JudgedOutcome { route: None, does: Does::refuse(&Refusal::NoRoute) };
        };
        let does = self.does(route, lacks_policy, seen).unwrap_or_else(|refused| refused);
        JudgedOutcome { route: Some(Arc::clone(&route.name)), does }
    }

    fn does(&self, route: &RouteConfig, lacks_policy: bool, seen: &SeenRequest) -> Result<Does, Does> {
        let parts = seen.parts.as_ref().unwrap_or(self.parts);
        match early(route, parts, self.client) {
            Some(Early::Maintenance(reply)) => {
                return Err(Does::Refuse { status: reply.status.as_u16(), because: "maintenance" });
            }
            Some(Early::HeadTooLarge(refusal)) => return Err(Does::refuse(&refusal)),
            Some(Early::Preflight(reply)) => return Ok(Does::Reply(reply.status().as_u16())),
            None => {}
        }
        let nobody = Ok(None);
        let proof = if route.passes_preflight(parts) { &nobody } else { &seen.proof };
        let identity = proof.as_ref().map_err(Clone::clone)?;
        if lacks_policy && self.missing_policy == MissingPolicy::Deny {
            return Err(Does::Refuse { status: 503, because: "no_policy" });
        }
        let upstream = match &route.action {
            Action::Redirect(redirect) => return Ok(Does::Reply(redirect.status.as_u16())),
            Action::Reply(reply) => return Ok(Does::Reply(reply.status.as_u16())),
            Action::Forward { upstream } => upstream,
        };
        let length = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > route.max_body_bytes) {
            return Err(Does::refuse(&Refusal::TooLarge { limit: route.max_body_bytes }));
        }
        let share = route.split.as_ref().and_then(|split| {
            let position = split.side_of(parts, identity.as_ref(), self.client).share?;
            split.shares.get(position)
        });
        Ok(Does::Forward(Arc::clone(share.map_or(upstream, |share| &share.upstream))))
    }

    /// What is taken off the request is taken off a copy.
    fn seen(&self, auth: Option<&Auth>) -> SeenRequest {
        let Some(auth) = auth else { return SeenRequest { parts: None, proof: Ok(None) } };
        let (mut copy, ()) = Request::new(()).into_parts();
        (copy.method, copy.version) = (self.parts.method.clone(), self.parts.version);
        copy.uri = self.parts.uri.clone();
        copy.headers = self.parts.headers.clone();
        let stated = auth.take(&mut copy, self.tls_name.is_some());
        let proof = self.proof(auth, stated);
        SeenRequest { parts: Some(copy), proof: proof.map_err(|refusal| Does::refuse(&refusal)) }
    }

    /// The identity in what is judged of all ways that are demanded.
    fn proof(&self, auth: &Auth, mut stated: StatedCredential) -> Result<Option<Identity>, Refusal> {
        let mut proved = Vec::new();
        for way in auth.demanded(&mut stated)? {
            match way {
                Auth::Key(key) => proved.push(key.verify(stated.key(), self.keys, false)?),
                Auth::Jwt(_) => {
                    if stated.token()?.is_none() {
                        return Err(Refusal::Jwt(JwtDenial::Missing));
                    }
                }
                Auth::Certificate(certificate) => proved.push(certificate.verify(self.tls_name)?),
                Auth::Forward(_) | Auth::Any { .. } | Auth::All { .. } => {}
            }
        }
        Ok(if proved.is_empty() { None } else { auth.identity(proved) })
    }
}
