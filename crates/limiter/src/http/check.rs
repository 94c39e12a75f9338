//! `/v1/check`: for nginx `auth_request`, Traefik `forwardAuth` and Caddy `forward_auth`.
//!
//! ```text
//!   client --request--> proxy --/v1/check--> 204, let it through   | RateLimit fields, for the proxy
//!                                            429, a limit is spent  | to copy into its own reply
//!                                            403, no policy applies and on_no_match is "deny"
//!                                            400, a source has two values, or the proxy states two requests
//! ```
//!
//! A proxy passes on what its client wrote, so each attribute has one source, which the configuration
//! names (decision 0065), and nothing else is looked at:
//!
//! | attribute | source, unless `[attributes.check]` names one |
//! |---|---|
//! | `path`, `method` | the pair of header fields in `http.proxy_headers`, if any |
//! | `ip` | the address that connected, or that trusted proxies state ([`super::proxied`]) |
//! | `client_id` | the same, also where the configured source has no value |
//!
//! The source `tls_name` is the name in the certificate that the proxy showed, not its client.
//!
//! A parameter of the query that is no attribute's source is refused, not ignored: it is a mistake in the
//! proxy's configuration, or a client that added to a value which the proxy did not escape.

use std::borrow::Cow;

use http::StatusCode;
use http::request::Parts;
use smallvec::SmallVec;
use tidegate_access::schema::Problems;
use tidegate_algorithms::policy::{Attributes, Source, Sources};
use tidegate_net::http::{Answered, Peer, Plain, Unwritten};
use tidegate_net::stats::Route;
use tidegate_wire::path::{Readings, readings};
use tidegate_wire::problem::{self, Problem};

use super::ApiState;
use super::proxied::{OriginalRequest, client_address};
use super::quota::describe;
use super::reply::{Refusal, Reply, Stated, no_content};
use crate::answers::Door;
use crate::decision::Decision;
use crate::engine::Ask;
use crate::policy_set::{CLIENT_ID, PolicySet};
use crate::sources::{self, AddressText, RequestFields, SourceError};

/// The attribute that has a normal form.
const PATH: &str = "path";

/// An attribute's name and value.
type CheckedAttribute<'a> = (&'a str, Cow<'a, [u8]>);

/// The attributes of a request; seldom more than eight.
type NamedValues<'a> = SmallVec<[CheckedAttribute<'a>; 8]>;

/// The same as the engine takes them.
type AttributePairs<'a> = SmallVec<[(&'a str, &'a [u8]); 8]>;

/// A parameter's name and value.
type QueryParameter<'q> = (Cow<'q, str>, Cow<'q, str>);

/// Lets a request through or not, by status, for a proxy that asks on behalf of its client.
#[utoipa::path(
    get, path = "/v1/check", tag = "decisions",
    params(("x-forwarded-for" = Option<String>, Header, description = "the client's address as the proxy in front states it, believed as far as http.trusted_proxy_hops says", example = "203.0.113.7")),
    responses(
        (status = 204, description = "let it through"),
        Problems,
    )
)]
pub(super) async fn check(shared: &ApiState, head: &Parts, peer: &Peer) -> Reply {
    match decide(shared, head, peer).await {
        Ok(decision) => reply_to(shared, &decision),
        Err(refusal) => refusal.reply(),
    }
}

/// As [`check`], from the buffer that the request was read into to the one that the reply leaves from. `None`, without
/// a trace, for everything but a decision; the request has no query.
pub(super) fn check_at_once(
    shared: &ApiState,
    request: &Plain<'_>,
    peer: &Peer,
    reply: Unwritten<'_>,
    route: Route,
) -> Option<Answered> {
    let set = shared.engine.in_force();
    let request = ProxiedRequest::read(shared, &set, request, "", peer).ok()?;
    let attributes = request.attributes(&set).ok()?;
    let decision = shared.engine.decide_now(&ask(&pairs(&attributes)))?;
    if decision.allowed {
        let mut head = reply.head(StatusCode::NO_CONTENT);
        describe(shared, &decision, &mut head);
        return Some(head.end_without_body(route));
    }
    let denied = reply_to(shared, &decision);
    let mut head = reply.head(denied.status());
    for (name, value) in denied.headers() {
        head.field(name, |field| field.extend_from_slice(value.as_bytes()));
    }
    Some(head.end(route, |body| body.extend_from_slice(denied.body())))
}

async fn decide(shared: &ApiState, head: &Parts, peer: &Peer) -> Result<Decision, Refusal> {
    let set = shared.engine.in_force();
    let query = head.uri.query().unwrap_or_default();
    let request = ProxiedRequest::read(shared, &set, &head.headers, query, peer)?;
    let attributes = request.attributes(&set)?;
    shared.engine.decide(&ask(&pairs(&attributes))).await.map_err(Stated::Flat.refusal())
}

fn pairs<'a>(attributes: &'a [CheckedAttribute<'_>]) -> AttributePairs<'a> {
    attributes.iter().map(|(name, value)| (*name, &**value)).collect()
}

fn ask<'a>(pairs: &'a [(&'a str, &'a [u8])]) -> Ask<'a> {
    Ask { attributes: Attributes::new(pairs), cost: 1, peek: false, can_release: false, door: Door::Http }
}

/// Whether any policy needs the path, itself or a part of it.
fn looks_at_path(set: &PolicySet) -> bool {
    let part = |(name, source): (&str, &Source)| matches!(source, Source::PathPart(_)) && set.uses(name);
    set.uses(PATH) || set.sources().check.iter().any(part)
}

/// What is known of the request that a proxy asks about.
struct ProxiedRequest<'a, F> {
    fields: &'a F,
    method: Option<&'a [u8]>,
    /// Every reading of it (fault 54).
    path: Option<Readings<'a>>,
    query: Vec<QueryParameter<'a>>,
    address: AddressText,
    tls_name: Option<&'a str>,
}

impl<'a, F: RequestFields> ProxiedRequest<'a, F> {
    /// Looks for what does not depend on the sources; `fields` and `query` are those of the check itself.
    fn read(
        shared: &ApiState,
        set: &PolicySet,
        fields: &'a F,
        query: &'a str,
        peer: &'a Peer,
    ) -> Result<Self, Refusal> {
        let address = client_address(fields, peer.address.ip(), shared.settings.trusted_hops)?;
        if shared.settings.trusted_hops == 0 {
            let has_field = || fields.values("x-forwarded-for").next().is_some();
            shared.untrusted.see(peer.address.ip(), "http.trusted_proxy_hops", has_field);
        }
        let proxied = OriginalRequest::read(fields, shared.settings.proxy_headers)?;
        let query = parameters(query, &set.sources().check)?;
        let path = proxied.target.filter(|_| looks_at_path(set)).map(readings);
        Ok(Self {
            fields,
            method: proxied.method,
            path,
            query,
            address: sources::address_text(address),
            tls_name: peer.tls_name.as_deref(),
        })
    }

    /// The attributes that policies may look at.
    fn attributes<'s>(&'s self, set: &'s PolicySet) -> Result<NamedValues<'s>, Refusal> {
        let address = self.address.as_bytes();
        let sources = &set.sources().check;
        let mut attributes =
            NamedValues::from(sources.read(|name| set.uses(name), |source| self.look(source))?);
        let has_client = attributes.iter().any(|(name, _)| *name == CLIENT_ID);
        let path = self.path.as_ref();
        let others = path.map(|path| path.other.iter().chain(&path.literal)).into_iter().flatten();
        let built_in = [("method", self.method), (PATH, path.map(|path| &*path.first))]
            .into_iter()
            .chain(others.map(|other| (PATH, Some(&other[..]))))
            .chain([("ip", Some(address))])
            .filter(|(name, _)| sources.of(name).is_none())
            .chain([(CLIENT_ID, Some(address).filter(|_| !has_client))]);
        for (name, value) in built_in {
            attributes.extend(value.map(|value| (name, Cow::Borrowed(value))));
        }
        if sources.of(PATH).is_some()
            && set.uses(PATH)
            && let Some((_, stated)) = attributes.iter_mut().find(|(name, _)| *name == PATH)
        {
            let read = readings(stated);
            let others: Vec<_> = read.other.into_iter().chain(read.literal).collect();
            *stated = Cow::Owned(read.first.into_owned());
            attributes.extend(others.into_iter().map(|other| (PATH, Cow::Owned(other))));
        }
        Ok(attributes)
    }

    fn look(&self, source: &Source) -> Result<Option<Cow<'_, [u8]>>, SourceError> {
        Ok(match source {
            Source::Header(name) => sources::header(self.fields, name)?.map(Cow::Borrowed),
            Source::Cookie(name) => sources::cookie(self.fields, name)?.map(Cow::Borrowed),
            Source::Query(name) => {
                let stated = self.query.iter().find(|(other, _)| other == name);
                stated.map(|(_, value)| Cow::Borrowed(value.as_bytes()))
            }
            // Where servers disagree on separators, of the reading with more of them: parts do not vanish in others.
            Source::PathPart(number) => {
                let path = self.path.as_ref().map(|path| path.other.as_deref().unwrap_or(&path.first));
                path.and_then(|path| path.split(|byte| *byte == b'/').nth(*number)).map(Cow::Borrowed)
            }
            Source::Address => Some(Cow::Borrowed(self.address.as_bytes())),
            Source::TlsName => self.tls_name.map(|name| Cow::Borrowed(name.as_bytes())),
        })
    }
}

/// The parameters of the check's own query, each of which must be a source.
fn parameters<'q>(text: &'q str, sources: &Sources) -> Result<Vec<QueryParameter<'q>>, SourceError> {
    let mut parameters: Vec<QueryParameter<'q>> = Vec::new();
    for (name, value) in form_urlencoded::parse(text.as_bytes()) {
        if parameters.iter().any(|(other, _)| *other == name) {
            return Err(SourceError::RepeatedParameter(name.into_owned()));
        }
        let known = sources.iter().any(|(_, source)| matches!(source, Source::Query(it) if *it == name));
        if !known {
            return Err(SourceError::UnknownParameter(name.into_owned()));
        }
        parameters.push((name, value));
    }
    Ok(parameters)
}

fn reply_to(shared: &ApiState, decision: &Decision) -> Reply {
    let mut reply = if decision.allowed {
        no_content()
    } else if decision.no_match() {
        let detail = "no policy applies to the request (concurrency limits never do here), and on_no_match is \"deny\"";
        Refusal(Problem::new(403, "Forbidden", detail)).reply()
    } else {
        let denied = decision.parts.iter().filter(|part| !part.verdict.allowed);
        let policies: Vec<String> = denied.map(|part| part.policy.to_string()).collect();
        let denial = Problem {
            kind: problem::Type::QuotaExceeded,
            violated_policies: policies,
            ..Problem::new(429, "Quota Exceeded", "the quota of a policy is used up")
        };
        Refusal(denial).reply()
    };
    describe(shared, decision, reply.headers_mut());
    reply
}
