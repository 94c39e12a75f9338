//! Refusals: why the gateway answers a request itself, with the status of each cause.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response};
use thiserror::Error;
use tidegate_access::jwt::JwtDenial;
use tidegate_access::keys::KeyDenial;
use tidegate_net::http::{Body, BodyError};
use tidegate_upstream::group::NoBackend;
use tidegate_wire::path::PathError;
use tidegate_wire::problem::{MEDIA_TYPE, Problem, Type};
use tidegate_wire::rate_limit_fields::whole_seconds;

use crate::limits::Denial;

/// The challenge of a route that takes client certificates.
pub(crate) const CERTIFICATE: &str = "Certificate";

/// Why a request was not answered by an upstream.
#[derive(Debug, Error)]
pub(crate) enum Refusal {
    /// Its path means different things to different servers.
    #[error("{0}")]
    Path(#[from] PathError),
    /// A server that takes encoded slashes for slashes could serve the path of another route.
    #[error(
        "the path has an encoded slash or a backslash, and with a slash in its place another route would take it"
    )]
    OtherRoute,
    /// Servers would doubt what it says.
    #[error("{0}")]
    Malformed(&'static str),
    /// It asks for something that this gateway does not do.
    #[error("{0}")]
    Unsupported(&'static str),
    /// No route is for it.
    #[error("no route is for this host, path and method")]
    NoRoute,
    /// It has no API key that is good here.
    #[error("{denial}; the response field www-authenticate says where this route reads API keys")]
    Unauthorized {
        /// Why not.
        denial: KeyDenial,
        /// Where the route reads keys.
        challenges: Vec<HeaderValue>,
    },
    /// It has nothing of what its route takes for a proof.
    #[error("a credential is needed; the response fields www-authenticate say what this route takes")]
    NoCredential {
        /// What the route takes.
        challenges: Vec<HeaderValue>,
    },
    /// Its API key is good, and does not open its route.
    #[error("{0}")]
    KeyLacks(KeyDenial),
    /// This node cannot say whether its key is still good.
    #[error("{}", KeyDenial::Stale)]
    StaleKeys,
    /// It has no token that is good on its route.
    #[error("{0}")]
    Jwt(JwtDenial),
    /// The gateway cannot verify its token, because it has no keys of the issuer yet.
    #[error("the keys of the tokens' issuer could not be fetched yet: try again later")]
    NoJwtKeys,
    /// The service that authenticates the route's clients has refused it with this reply.
    #[error("the service that authenticates this route's clients refused the request")]
    ByAuthority(Box<Response<Bytes>>),
    /// The service that authenticates the route's clients did not answer.
    #[error("the service that authenticates this route's clients did not answer: try again later")]
    NoAuthority,
    /// Its connection has shown no certificate, or one without a name.
    #[error("a client certificate with a name (a URI or a DNS name) is needed")]
    NoCertificate,
    /// Its certificate is not one that opens its route.
    #[error("the client certificate's name is not one that this route accepts")]
    OtherCertificate,
    /// It does not pass the limits of its route.
    #[error("{}", denied(.0))]
    Denied(Denial),
    /// Its fields are more than its route takes.
    #[error("the request's header fields are larger than {limit} bytes")]
    HeadTooLarge {
        /// The route's bound.
        limit: usize,
    },
    /// Its body is larger than its route takes.
    #[error("the request body is larger than {limit} bytes")]
    TooLarge {
        /// The route's bound.
        limit: u64,
    },
    /// Its body came too slowly.
    #[error("the request body did not arrive in time")]
    TooSlow,
    /// Its body broke off.
    #[error("the request body broke off")]
    BodyBroken,
    /// There is no room for its body in this process for now.
    #[error("this process holds as many bytes for its clients as it may: try again later")]
    NoRoom,
    /// A breaker is open.
    #[error("the upstream failed too often: it is asked again in a while")]
    Open {
        /// Nanoseconds until it is.
        wait: u64,
    },
    /// The upstream has as many requests as it can take without a queue.
    #[error("the upstream has as many requests as it can take now")]
    AtLimit,
    /// This process cannot keep up.
    #[error("this gateway has more requests than it can serve: those of less priority are refused")]
    Shed,
    /// There is no server for it.
    #[error("{0}")]
    NoBackend(#[from] NoBackend),
    /// This machine has no port or descriptor for a connection to a server.
    #[error("this machine has no room for a connection to the upstream now")]
    NoSocket,
    /// No server could be reached.
    #[error("no server of the upstream could be reached")]
    Unreachable,
    /// It asks for another protocol, and no server switches to it.
    #[error("no server of the upstream switches to the protocol that the request asks for")]
    NoUpgrade,
    /// A server took the request and gave no whole reply.
    #[error("a server of the upstream gave no valid reply")]
    BadReply,
    /// A server did not answer in time.
    #[error("the upstream did not answer in time")]
    TimedOut,
    /// One of these, for who may know which server it was, and why.
    #[error("{refusal}: {at}")]
    Explained {
        /// What anybody is told.
        refusal: Box<Self>,
        /// The server and the reason.
        at: Box<str>,
    },
}

/// Why the client's body could not be read.
impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooSlow => Self::TooSlow,
            BodyError::TooLarge { limit } => Self::TooLarge { limit: limit as u64 },
            BodyError::Broken(_) => Self::BodyBroken,
            BodyError::NoRoom => Self::NoRoom,
        }
    }
}

/// What a request is told that its route's limits deny.
fn denied(denial: &Denial) -> String {
    match denial {
        Denial::Quota { .. } => "the quota of a policy is used up".to_owned(),
        Denial::NoMatch => {
            "none of the route's policies applies to the request, and on_no_match is \"deny\"".to_owned()
        }
        Denial::NoPolicy { policy } => format!("policy {policy:?}, which the route lists, is not in force"),
        Denial::Invalid(why) | Denial::NoAnswer(why) => why.clone(),
    }
}

impl Refusal {
    /// The status of the reply.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Path(_)
            | Self::OtherRoute
            | Self::Malformed(_)
            | Self::BodyBroken
            | Self::Denied(Denial::Invalid(_)) => 400,
            Self::Jwt(denial) if denial.is_insufficient() => 403,
            Self::Unauthorized { .. } | Self::Jwt(_) | Self::NoCertificate | Self::NoCredential { .. } => 401,
            Self::ByAuthority(reply) => reply.status().as_u16(),
            Self::Denied(Denial::NoMatch) | Self::OtherCertificate | Self::KeyLacks(_) => 403,
            Self::NoRoute => 404,
            Self::TooSlow => 408,
            Self::TooLarge { .. } => 413,
            Self::Denied(Denial::Quota { .. }) => 429,
            Self::HeadTooLarge { .. } => 431,
            Self::Unsupported(_) => 501,
            Self::Unreachable | Self::NoUpgrade | Self::BadReply => 502,
            Self::NoRoom
            | Self::NoSocket
            | Self::Open { .. }
            | Self::AtLimit
            | Self::Shed
            | Self::NoBackend(_)
            | Self::NoJwtKeys
            | Self::StaleKeys
            | Self::NoAuthority => 503,
            Self::Denied(Denial::NoAnswer(_) | Denial::NoPolicy { .. }) => 503,
            Self::TimedOut => 504,
            Self::Explained { refusal, .. } => refusal.status(),
        }
    }

    /// The word for it in the access log and in traces.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Path(_) | Self::OtherRoute => "ambiguous_path",
            Self::Malformed(_) => "malformed",
            Self::Unsupported(_) => "unsupported",
            Self::NoRoute => "no_route",
            Self::Unauthorized { denial, .. } | Self::KeyLacks(denial) => match denial {
                KeyDenial::Missing => "no_key",
                KeyDenial::Unknown => "unknown_key",
                KeyDenial::Expired => "expired_key",
                KeyDenial::Stale => "stale_keys",
                KeyDenial::Route => "key_route",
                KeyDenial::Scope => "key_scope",
            },
            Self::NoCredential { .. } => "no_credential",
            Self::StaleKeys => "stale_keys",
            Self::Jwt(denial) => denial.word(),
            Self::NoJwtKeys => "no_jwt_keys",
            Self::ByAuthority(_) => "forward_auth",
            Self::NoAuthority => "no_forward_auth",
            Self::NoCertificate => "no_certificate",
            Self::OtherCertificate => "other_certificate",
            Self::Denied(Denial::Quota { .. }) => "quota",
            Self::Denied(Denial::NoMatch) => "no_match",
            Self::Denied(Denial::Invalid(_)) => "attributes",
            Self::Denied(Denial::NoAnswer(_)) => "no_decision",
            Self::Denied(Denial::NoPolicy { .. }) => "no_policy",
            Self::HeadTooLarge { .. } => "head_too_large",
            Self::TooLarge { .. } => "body_too_large",
            Self::TooSlow => "body_too_slow",
            Self::BodyBroken => "body_broken",
            Self::NoRoom => "no_room",
            Self::Open { .. } => "breaker_open",
            Self::AtLimit => "adaptive_limit",
            Self::Shed => "shed",
            Self::NoBackend(NoBackend::None) => "no_server",
            Self::NoBackend(NoBackend::Full) => "servers_full",
            Self::NoSocket => "no_socket",
            Self::Unreachable => "unreachable",
            Self::NoUpgrade => "no_upgrade",
            Self::BadReply => "bad_reply",
            Self::TimedOut => "timed_out",
            Self::Explained { refusal, .. } => refusal.word(),
        }
    }

    /// Whether no server has had any work of the request.
    pub(crate) fn is_unreachable(&self) -> bool {
        match self {
            Self::Explained { refusal, .. } => refusal.is_unreachable(),
            other => matches!(other, Self::Unreachable),
        }
    }

    /// Whether its cause is the lack of a working upstream, for which a route may have a fallback.
    pub(crate) fn is_of_upstream(&self) -> bool {
        matches!(self.status(), 502..=504)
            && !matches!(
                self,
                Self::NoRoom
                    | Self::Shed
                    | Self::Denied(_)
                    | Self::NoJwtKeys
                    | Self::StaleKeys
                    | Self::NoAuthority
            )
    }

    fn title(&self) -> &'static str {
        match self.status() {
            400 => "Bad Request",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "Not Found",
            408 => "Request Timeout",
            413 => "Content Too Large",
            429 => "Quota Exceeded",
            431 => "Request Header Fields Too Large",
            501 => "Not Implemented",
            502 => "Bad Gateway",
            503 => "Service Unavailable",
            _ => "Gateway Timeout",
        }
    }

    /// The reply.
    pub(crate) fn reply(self) -> Response<Body> {
        if let Self::ByAuthority(reply) = self {
            return reply.map(Body::Full);
        }
        let mut problem = Problem::new(self.status(), self.title(), self.to_string());
        let wait = match &self {
            Self::Open { wait } => Some(*wait),
            // A place may be free, or a server back, in a moment.
            Self::NoRoom
            | Self::NoSocket
            | Self::AtLimit
            | Self::Shed
            | Self::NoBackend(_)
            | Self::NoJwtKeys
            | Self::StaleKeys
            | Self::NoAuthority => Some(1),
            Self::Denied(Denial::NoAnswer(_) | Denial::NoPolicy { .. }) => Some(1),
            _ => None,
        };
        if wait.is_some() {
            problem.kind = Type::TemporaryReducedCapacity;
        }
        let mut challenges = Vec::new();
        match self {
            Self::Denied(Denial::Quota { policies }) => {
                problem.kind = Type::QuotaExceeded;
                problem.violated_policies = policies;
            }
            Self::Unauthorized { challenges: stated, .. } | Self::NoCredential { challenges: stated } => {
                challenges = stated;
            }
            Self::Jwt(denial) => challenges.extend(HeaderValue::from_str(&denial.challenge())),
            // No registered scheme: it says what is missing.
            Self::NoCertificate => challenges.push(HeaderValue::from_static(CERTIFICATE)),
            _ => {}
        }
        let mut reply = Response::new(Body::Full(Bytes::from(problem.to_json())));
        // Invariant: every status above is one.
        *reply.status_mut() = http::StatusCode::from_u16(problem.status).unwrap_or_default();
        reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        for challenge in challenges {
            reply.headers_mut().append(WWW_AUTHENTICATE, challenge);
        }
        if let Some(wait) = wait {
            reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
        }
        reply
    }
}
