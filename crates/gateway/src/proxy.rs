//! A request's way through the gateway.
//!
//! ```text
//!   normalise ─> route ─> shed ─> authenticate ─> limit ─> breaker ─> pick ─> forward ─> respond ─> record
//!                                                             ^                  |
//!                                                             `── again ─────────'
//! ```
//!
//! Any phase may answer the request itself; the reply then goes on at `respond`. A call of gRPC is told it in gRPC
//! ([`GrpcCall`]), once and behind all phases. `shed` refuses what matters least while a core is late, before anything is
//! asked or charged. What is from `breaker` on is in `forward.rs`. Each step is noted in the request's record, if it has one;
//! `record` passes that on to the access log and the traces, and has the request counted, when the reply's last byte is gone, which is after
//! the client has most of it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, COOKIE, FORWARDED, HOST, REFERER, SEC_WEBSOCKET_PROTOCOL, SET_COOKIE, VIA,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as HttpBody;
use tidegate_net::clock::monotonic;
use tidegate_net::http::{Body, GrpcCall, Peer, RequestBody, UpgradeOffer};

use crate::authentication::authenticate::StatedCredential;
use crate::authentication::places::of_referring_page;
use crate::candidate::JudgedRequest;
use crate::forwarding::arrival::Arrival;
use crate::forwarding::fields::FORWARDED_FOR;
use crate::forwarding::forwarded;
use crate::limits::{Denial, LimitedRequest, Ruling};
use crate::observed::record::{ReadsRecords, Recorder, RequestReaders, RequestTally, What};
use crate::response::answer::{GatewayReply, mark, own, refused};
use crate::response::compress::WantedEncoding;
use crate::response::refusal::Refusal;
use crate::response::replies::{
    Early, about_the_gateway, early, is_about_the_gateway, redirect, static_reply,
};
use crate::routes::client_address::client_address;
use crate::routes::host::bare_host;
use crate::routes::normal::Normal;
use crate::routes::route::{Route, RouteAction};
use crate::routes::target::{TargetPath, settle};
use crate::service::{ClientField, Gateway, GatewaySettings};

impl Gateway {
    /// Answers one request, and says by which route. The status is the one that it counts under.
    pub(crate) async fn proxy(
        &self,
        mut request: Request<RequestBody>,
        peer: &Peer,
    ) -> (GatewayReply, StatusCode) {
        let came = monotonic();
        let mut record = self.recorder(&mut request, peer, came);
        let must_go_on = UpgradeOffer::is_of_stream(&request);
        // A call is told how it ended by a success, which would open the stream.
        let call = GrpcCall::of(request.headers()).filter(|_| !must_go_on);
        let mut answer = if is_about_the_gateway(&request) {
            GatewayReply::own(None, about_the_gateway())
        } else {
            self.answer(Arrival::new(request, came), peer, &mut record).await
        };
        if must_go_on {
            answer = answer.on_stream(&mut record);
        }
        // What counts requests counts an answer in gRPC as the refusal that it is.
        let status = answer.reply.status();
        if let Some(route) = &answer.route {
            let now = monotonic();
            let took = u64::try_from(now.duration_since(came).as_nanos()).unwrap_or(u64::MAX);
            route.flow.answered(peer.core, status.as_u16(), took);
            answer.ready = Some(now);
        }
        if let Some(call) = call {
            answer = answer.told_to(&call);
        }
        match &mut answer.upgrade {
            Some((_, tunnel)) => {
                record.switched(&mut answer.reply);
                (tunnel.record, tunnel.held) = (record, answer.held.take());
            }
            None => answer.reply = record.replied(answer.reply, status, answer.held.take()),
        }
        (answer, status)
    }

    /// What takes down what becomes of a request.
    pub(crate) fn recorder(
        &self,
        request: &mut Request<RequestBody>,
        peer: &Peer,
        came: Instant,
    ) -> Recorder {
        let client = self.takes_trace(request.headers_mut());
        let span = self.spans().and_then(|spans| spans.begin(request.headers()));
        let traces = Some(self.traces()).filter(|traces| traces.is_watched());
        let at_end = [self.access_log().map(reader), traces.map(reader), span.and(self.spans()).map(reader)];
        let tally = self.counter(peer.core).map(|counter| RequestTally::new(counter, came));
        Recorder::new(request, peer, RequestReaders { at_end, span, client, tally })
    }

    /// The phases, one after the other.
    async fn answer(&self, arrival: Arrival, peer: &Peer, record: &mut Recorder) -> GatewayReply {
        let Arrival { mut parts, body, offer, came } = arrival;
        let mut normal = match self.normalise(&mut parts, peer, came, offer.as_ref()) {
            Ok(normal) => normal,
            Err(refusal) => return GatewayReply::without_route(refusal, record),
        };
        note_normalised(record, &normal, &parts);
        let route = match self.found(&normal, &parts) {
            Ok(route) => route,
            Err(refusal) => return GatewayReply::without_route(refusal, record),
        };
        record.routed(&route);
        record.step(|| What::Route);
        // Before anything else: what is refused is logged, too.
        let (stated, subprotocol) = self.take_credentials(&route, &normal, &mut parts, record);
        let settled = settle(&mut parts, &normal.path, &route.config);
        let early = early(&route.config, &parts, normal.client).map(Early::reply);
        let origin = route.config.cors.as_ref().and_then(|cors| cors.allowed(&parts.headers));
        if let Some(mut reply) = settled.err().map(|refusal| refusal.reply()).or(early) {
            record.step(|| What::Answer);
            mark(&route, &mut reply, origin);
            return GatewayReply::own(Some(route), reply);
        }
        let encoding = route.config.compress.then(|| WantedEncoding::of(&parts));
        if let Some(mut reply) = self.shed(&route, peer.core, record).await {
            mark(&route, &mut reply, origin);
            return GatewayReply::own(Some(route), reply);
        }
        normal.is_preflight = !normal.may_upgrade && body.is_end_stream() && passes(&route, &mut parts);
        let authenticated = self.authenticate(&route, stated, &mut normal, &parts, record).await;
        let ruling = match authenticated {
            Ok(()) => self.charge(&route, &mut normal, &parts, record).await,
            Err(_) => Ruling::default(),
        };
        let mut told = ruling.fields;
        told.extend(normal.cookies.drain(..).map(|cookie| (SET_COOKIE, cookie)));
        let (mut upgrade, mut is_own) = (None, true);
        let reply = match (authenticated, ruling.denial) {
            (Err(refusal), _) => Err(refusal),
            (Ok(()), Some(denial)) => Err(Refusal::Denied(denial)),
            (Ok(()), None) => match &route.action {
                RouteAction::Redirect(to) => redirect(to, &normal.host, &parts.uri).map(|it| own(it, &route)),
                RouteAction::Reply(reply) => Ok(own(static_reply(reply), &route)),
                RouteAction::Forward(main) => {
                    let (upstream, _) = route.side(main, &parts, normal.identity.as_ref(), normal.client);
                    let arrival = Arrival { parts, body, offer, came };
                    let sent = self.forward(&route, upstream, &normal, arrival, record).await;
                    sent.map(|(reply, agreed)| {
                        (upgrade, is_own) = (agreed, false);
                        with_subprotocol(reply, subprotocol.filter(|_| upgrade.is_some()))
                    })
                }
            },
        };
        let mut reply = reply.unwrap_or_else(|refusal| refused(&route, refusal, record));
        append(&mut reply, &told);
        mark(&route, &mut reply, origin);
        if let Some(asked) = encoding {
            reply = self.compressor().apply(reply, asked);
        }
        GatewayReply { route: Some(route), reply, is_own, upgrade, ready: None, held: ruling.held }
    }

    /// The route that takes a request. If there is a candidate, it is counted what that would change.
    fn found(&self, normal: &Normal<'_>, parts: &Parts) -> Result<Arc<Route>, Refusal> {
        let site = self.site();
        let found = site.route_for(&normal.host, &normal.path, parts)?;
        if let Some(candidate) = &site.candidate {
            let asking = JudgedRequest {
                host: &normal.host,
                path: &normal.path,
                client: normal.client,
                tls_name: normal.peer.tls_name.as_deref(),
                parts,
                keys: self.keys(),
                missing_policy: self.settings().missing_policy,
            };
            candidate.compare(&asking, found.map(|position| (position, &*site.routes[position])));
        }
        found.map(|position| Arc::clone(&site.routes[position])).ok_or(Refusal::NoRoute)
    }

    /// Takes the key or token off a request before anything else sees it, also what is logged of the request's target, and those of other
    /// routes off the page that it comes from. With it comes the subprotocol that a client of WebSocket must be answered.
    fn take_credentials(
        &self,
        route: &Route,
        normal: &Normal<'_>,
        parts: &mut Parts,
        record: &mut Recorder,
    ) -> (Option<StatedCredential>, Option<HeaderValue>) {
        if parts.headers.get_all(REFERER).iter().any(|page| page.as_bytes().contains(&b'?')) {
            let site = self.site();
            of_referring_page(&mut parts.headers, &normal.host, |parameter| site.is_secret(parameter));
            record.note(|record| record.asked.referer = parts.headers.get(REFERER).cloned());
        }
        let Some(auth) = &route.config.auth else { return (None, None) };
        let mut stated = auth.take(parts, normal.peer.tls_name.is_some());
        if auth.is_in_target() {
            record.note(|record| {
                record.asked.target = parts.uri.clone();
                record.asked.referer = parts.headers.get(REFERER).cloned();
            });
        }
        let subprotocol = stated.subprotocol.take();
        (Some(stated), subprotocol)
    }

    /// What is answered to a request that matters less than what this core can do.
    async fn shed(&self, route: &Route, core: usize, record: &mut Recorder) -> Option<Response<Body>> {
        let shedder = self.shedder().filter(|shedder| shedder.refuses(core, route.config.priority))?;
        record.note(|record| record.refusal = Some(Refusal::Shed.word()));
        // In a box: a timer takes far more room than what most requests need here.
        Box::pin(shedder.hold()).await;
        record.step(|| What::Shed);
        Some(Refusal::Shed.reply())
    }

    /// One form of host, path and client for everything that follows.
    fn normalise<'a>(
        &self,
        parts: &mut Parts,
        peer: &'a Peer,
        since: Instant,
        offer: Option<&UpgradeOffer>,
    ) -> Result<Normal<'a>, Refusal> {
        if parts.method == Method::CONNECT {
            return Err(Refusal::Unsupported("this gateway opens no tunnels"));
        }
        // It would show the client what the gateway tells its servers.
        if parts.method == Method::TRACE {
            return Err(Refusal::Unsupported("this gateway forwards no TRACE"));
        }
        if parts.headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() {
            return Err(Refusal::Malformed("the length of the body is stated more than once"));
        }
        // The target's own authority counts for more than the field (RFC 9112, 3.2.2).
        if let Some(authority) = parts.uri.authority() {
            let host = HeaderValue::from_str(authority.as_str());
            parts.headers.insert(HOST, host.map_err(|_| Refusal::Unsupported("the host is no name"))?);
        }
        let host = parts.headers.get(HOST).map(HeaderValue::as_bytes).unwrap_or_default();
        if host.is_empty() && parts.version != Version::HTTP_10 {
            return Err(Refusal::Malformed("the request names no host"));
        }
        let path = TargetPath::read(parts.uri.path())?;
        let (peer_ip, GatewaySettings { trusted_hops, client_from, .. }) =
            (peer.address.ip(), self.settings());
        let client = match client_from {
            ClientField::XForwardedFor => client_address(&parts.headers, peer_ip, trusted_hops),
            ClientField::Forwarded => {
                let stated = forwarded::client_address(&parts.headers, trusted_hops)?;
                stated.unwrap_or(peer_ip.to_canonical())
            }
        };
        if trusted_hops == 0 {
            let has_field = || match client_from {
                ClientField::XForwardedFor => parts.headers.contains_key(FORWARDED_FOR),
                ClientField::Forwarded => parts.headers.contains_key(FORWARDED),
            };
            self.untrusted().see(peer_ip, "gateway.trusted_proxy_hops", has_field);
        }
        Ok(Normal {
            peer,
            host: bare_host(&String::from_utf8_lossy(host)),
            path,
            identity: None,
            cookies: Vec::new(),
            client,
            since,
            may_upgrade: offer.is_some(),
            must_go_on: offer.is_some_and(UpgradeOffer::is_stream),
            is_preflight: false,
            explains: self.settings().explains_failures && is_from_here(peer_ip, &parts.headers),
        })
    }

    /// Charges the request under the limits that its route lists.
    async fn charge(
        &self,
        route: &Route,
        normal: &mut Normal<'_>,
        parts: &Parts,
        record: &mut Recorder,
    ) -> Ruling {
        if let Some(denial) = self.settings().missing_policy.denial(|| route.lacks.as_ref()) {
            return Ruling { denial: Some(denial), ..Ruling::default() };
        }
        let request = LimitedRequest {
            route: &route.config.name,
            method: parts.method.as_str(),
            host: &normal.host,
            path: &normal.path.normal,
            other_path: normal.path.other.as_deref(),
            query: parts.uri.query().unwrap_or_default(),
            client: normal.client,
            fields: &parts.headers,
            tls_name: normal.peer.tls_name.as_deref(),
            identity: normal.identity.as_ref(),
            is_preflight: normal.is_preflight,
            wants_verdicts: record.is_on(),
        };
        if route.config.policies.is_empty() {
            self.limits().pass(&request);
            return Ruling::default();
        }
        let asked = monotonic();
        let mut ruling = self.limits().charge(&route.config.policies, &request).await;
        normal.since = monotonic();
        route.flow.limited(normal.peer.core, normal.since.duration_since(asked));
        if let Some(Denial::Quota { .. }) = ruling.denial {
            route.flow.denied(normal.peer.core);
        }
        record.step(|| What::Limit);
        for verdict in std::mem::take(&mut ruling.verdicts) {
            record.step(|| What::Verdict(verdict));
        }
        ruling
    }
}

/// Notes where a request comes from, and its path if it was written otherwise.
fn note_normalised(record: &mut Recorder, normal: &Normal<'_>, parts: &Parts) {
    record.note(|record| {
        record.client = normal.client;
        record.path = (normal.path.normal != parts.uri.path()).then(|| normal.path.normal.clone());
    });
    record.step(|| What::Normalise);
}

/// Adds fields to a reply; those of the same names stay beside them.
fn append(reply: &mut Response<Body>, told: &HeaderMap) {
    for (name, value) in told {
        reply.headers_mut().append(name, value.clone());
    }
}

/// A reader of records, as a record holds it.
fn reader<R: ReadsRecords + 'static>(reader: &Arc<R>) -> Arc<dyn ReadsRecords> {
    Arc::<R>::clone(reader)
}

/// Whether a request was made on this machine, and not passed on by a proxy or a tunnel on it.
fn is_from_here(peer: IpAddr, fields: &HeaderMap) -> bool {
    let passed_on = [FORWARDED, VIA, FORWARDED_FOR].iter().any(|name| fields.contains_key(name));
    peer.to_canonical().is_loopback() && !passed_on
}

/// A reply that tells a client of WebSocket the one subprotocol that it has offered, if the server tells it of none: the server has not
/// heard of it.
fn with_subprotocol(mut reply: Response<Body>, subprotocol: Option<HeaderValue>) -> Response<Body> {
    if let Some(subprotocol) = subprotocol {
        reply.headers_mut().entry(SEC_WEBSOCKET_PROTOCOL).or_insert(subprotocol);
    }
    reply
}

/// Whether a request without a body is a preflight that its route lets pass without credentials. Credentials that it has all
/// the same are removed, since the gateway has not verified them.
fn passes(route: &Route, parts: &mut Parts) -> bool {
    let passes = route.config.passes_preflight(parts);
    if passes {
        parts.headers.remove(AUTHORIZATION);
        parts.headers.remove(COOKIE);
    }
    passes
}
