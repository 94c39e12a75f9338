//! A request's way through the gateway.
//!
//! ```text
//!   normalise ─> route ─> limit ─> breaker ─> pick ─> forward ─> respond
//!                                     ^                  |
//!                                     `── again ─────────'
//! ```
//!
//! An attempt is repeated when that is safe ([`crate::attempt`]), another server is left, the upstream's
//! budget allows it, and time is left. Between two attempts that reached a server there is a pause that
//! doubles and is drawn at random, so that clients who failed together do not come back together.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, RETRY_AFTER};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use tidegate_algorithms::breaker::Outcome;
use tidegate_net::clock::monotonic;
use tidegate_net::http::{Body, Peer, RequestBody, UpgradeOffer};
use tidegate_upstream::backend::Place;
use tidegate_upstream::group::hash;
use tidegate_wire::path::normal_form;
use tokio::time::sleep;

use crate::attempt::{Attempt, Exchange, Message};
use crate::body::{RequestPayload, Return, Streaming};
use crate::client_address::{as_attribute, client_address};
use crate::config::{BalanceKey, RouteConfig};
use crate::fields::{self, Onward};
use crate::limits::{LimitedRequest, Limits, Ruling};
use crate::refusal::Refusal;
use crate::replies::{before_limits, respond, static_reply, switching};
use crate::route::{Route, RouteAction};
use crate::service::Gateway;
use crate::target::{bare_host, forwarded_path};
use crate::tunnel::Tunnel;
use crate::upstream::Upstream;

/// The first pause between two attempts that reached a server, at most; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(25);

/// What is known of a request once it is normalised.
struct Normal {
    /// Lower case, without a port.
    host: String,
    path: String,
    client: IpAddr,
    /// The client offers to go on in another protocol, and its connection allows that.
    may_upgrade: bool,
}

impl<L: Limits> Gateway<L> {
    /// Answers one request, and says by which route.
    pub(crate) async fn proxy(&self, mut request: Request<RequestBody>, peer: &Peer) -> Answer {
        let offer = UpgradeOffer::take(&mut request);
        let (mut parts, body) = request.into_parts();
        let normal = match self.normalise(&mut parts, peer, offer.is_some()) {
            Ok(normal) => normal,
            Err(refusal) => return Answer::without_route(refusal),
        };
        let site = self.site();
        let found =
            site.table.find(&normal.host, &normal.path, |position| site.routes[position].accepts(&parts));
        let Some(route) = found.map(|position| Arc::clone(&site.routes[position])) else {
            return Answer::without_route(Refusal::NoRoute);
        };
        if let Some(reply) = before_limits(&route.config, &parts, normal.client) {
            return Answer { route: Some(route), reply, upgrade: None };
        }
        let origin = route.config.cors.as_ref().and_then(|cors| cors.allowed(&parts.headers));
        let ruling = self.charge(&route, &normal, &parts).await;
        let told = ruling.fields;
        let mut upgrade = None;
        let reply = match ruling.denial {
            Some(denial) => Err(Refusal::Denied(denial)),
            None => match &route.action {
                RouteAction::Reply(reply) => Ok(static_reply(reply)),
                RouteAction::Forward(upstream) => {
                    let request = Request::from_parts(parts, body);
                    let sent = self.forward(&route, upstream, &normal, request, peer).await;
                    sent.map(|(reply, tunnel)| {
                        upgrade = offer.zip(tunnel);
                        reply
                    })
                }
            },
        };
        let mut reply = reply.unwrap_or_else(|refusal| match &route.config.fallback {
            Some(fallback) if refusal.is_of_upstream() => static_reply(fallback),
            _ => refusal.reply(),
        });
        for (name, value) in &told {
            reply.headers_mut().append(name, value.clone());
        }
        if let Some(cors) = &route.config.cors {
            cors.mark(reply.headers_mut(), origin);
        }
        Answer { route: Some(route), reply, upgrade }
    }

    /// One form of host, path and client for everything that follows.
    fn normalise(&self, parts: &mut Parts, peer: &Peer, may_upgrade: bool) -> Result<Normal, Refusal> {
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
        let path = normal_form(parts.uri.path().as_bytes())?;
        Ok(Normal {
            host: bare_host(&String::from_utf8_lossy(host)),
            path: String::from_utf8_lossy(&path).into_owned(),
            client: client_address(&parts.headers, peer.address.ip(), self.settings().trusted_hops),
            may_upgrade,
        })
    }

    /// Charges the request under the limits that its route lists.
    async fn charge(&self, route: &Route, normal: &Normal, parts: &Parts) -> Ruling {
        if route.config.policies.is_empty() {
            return Ruling::default();
        }
        let request = LimitedRequest {
            route: &route.config.name,
            method: parts.method.as_str(),
            host: &normal.host,
            path: &normal.path,
            query: parts.uri.query().unwrap_or_default(),
            client: normal.client,
            fields: &parts.headers,
        };
        self.limits().charge(&route.config.policies, &request).await
    }

    /// Has a server answer.
    async fn forward(
        &self,
        route: &Route,
        upstream: &Arc<Upstream>,
        normal: &Normal,
        request: Request<RequestBody>,
        peer: &Peer,
    ) -> Result<(Response<Body>, Option<Tunnel>), Refusal> {
        let started = monotonic();
        let (mut parts, body) = request.into_parts();
        let admission = match &route.breaker {
            Some(breaker) => Some(breaker.admit(self.tick()).map_err(|wait| Refusal::Open { wait })?),
            None => None,
        };
        let payload = payload(body, &parts.headers, &route.config)?;
        let offered = fields::offered_protocol(&parts.headers, &route.config.upgrades);
        let offered = offered.filter(|_| normal.may_upgrade);
        let key = match &upstream.config.key {
            BalanceKey::Field(name) => parts.headers.get(name).map(|value| hash(value.as_bytes())),
            BalanceKey::Address => None,
        };
        let key = key.unwrap_or_else(|| hash(as_attribute(normal.client).as_bytes()));
        let is_head = parts.method == Method::HEAD;
        onward(&mut parts, route, normal, peer, self.settings().trusted_hops > 0, self.random())?;
        let mut message = Message::new(parts, payload, offered);
        let sending = Sending { route, upstream, key, core: peer.core, started };
        let sent = self.try_servers(&sending, &mut message).await;
        if let Some(admission) = admission {
            let took = nanos(monotonic().duration_since(started));
            let failed =
                sent.as_ref().map_or(true, |(exchange, ..)| exchange.reply.status().is_server_error());
            admission.ended(Outcome { failed, took }, self.tick());
        }
        let (mut exchange, server, place) = sent?;
        if exchange.reply.status() == StatusCode::SWITCHING_PROTOCOLS {
            let server = hyper::upgrade::on(&mut exchange.reply);
            let idle_timeout = route.config.upgrade_idle_timeout;
            let tunnel = Tunnel { server, sender: exchange.sender, place, idle_timeout };
            return Ok((switching(exchange.reply, route), Some(tunnel)));
        }
        let back =
            Return { sender: exchange.sender, pool: Arc::clone(&upstream.pools[server]), core: peer.core };
        Ok((respond(exchange.reply, route, back, place, is_head).await, None))
    }

    /// Tries servers until one answers or no attempt is left.
    async fn try_servers(
        &self,
        sending: &Sending<'_>,
        message: &mut Message,
    ) -> Result<(Exchange, usize, Place), Refusal> {
        let &Sending { route, upstream, key, core, started } = sending;
        // Without a bound of its own, what can be repeated has the time of one attempt for all of them.
        let whole = (!message.is_streaming()).then_some(route.config.first_byte_timeout);
        let deadline = route.config.timeout.or(whole).map(|allowed| started + allowed);
        upstream.budget().request(self.tick());
        let mut tried = Vec::new();
        let mut pause = FIRST_PAUSE;
        let mut picked = None;
        loop {
            let now = self.tick();
            let admission = match &upstream.breaker {
                Some(breaker) => Some(breaker.admit(now).map_err(|wait| Refusal::Open { wait })?),
                None => None,
            };
            let (server, place) = match picked.take() {
                Some(picked) => picked,
                None => upstream.group.pick(key, &tried, now)?,
            };
            tried.push(server);
            let patience = route.config.first_byte_timeout;
            let attempt = Attempt { upstream, server, core, resolver: self.resolver(), patience, deadline };
            let begun = monotonic();
            let sent = attempt.send(message).await;
            let (now, took) = (self.tick(), nanos(monotonic().duration_since(begun)));
            let is_unsent = sent.as_ref().is_err_and(|failure| failure.is_unsent);
            let failed = match &sent {
                Ok(exchange) => exchange.reply.status().is_server_error(),
                Err(failure) if failure.is_of_client => {
                    return sent.map(|it| (it, server, place)).map_err(|it| it.refusal);
                }
                Err(_) => true,
            };
            if let Some(admission) = admission {
                admission.ended(Outcome { failed, took }, now);
            }
            let backend = place.backend();
            if !failed {
                upstream.group.succeeded(backend, took, now);
            } else if upstream.group.failed(backend, now) {
                tracing::warn!(upstream = %upstream.config.name, server = %backend.target(), "a server failed too often in a row: it gets nothing for a while");
            }
            let may_repeat = is_unsent || (message.is_repeatable() && is_worth_repeating(&sent));
            let may_try = failed
                && may_repeat
                && tried.len() < upstream.config.retries.attempts.min(count(upstream)) as usize
                && deadline.is_none_or(|deadline| monotonic() < deadline);
            // With no server left, what this one did is what the client is told.
            picked = if may_try { upstream.group.pick(key, &tried, now).ok() } else { None };
            if picked.is_none() || !upstream.budget().try_attempt(now) {
                return sent.map(|exchange| (exchange, server, place)).map_err(|failure| failure.refusal);
            }
            drop((sent, place));
            if !is_unsent {
                let [random, ..] = self.random();
                sleep(pause.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)).await;
                pause *= 2;
            }
        }
    }
}

/// What all attempts of one request share.
struct Sending<'a> {
    route: &'a Route,
    upstream: &'a Upstream,
    /// What a hash ring goes by.
    key: u64,
    /// The core that serves the client.
    core: usize,
    started: Instant,
}

/// A reply, and the route that made it.
pub(crate) struct Answer {
    pub(crate) route: Option<Arc<Route>>,
    pub(crate) reply: Response<Body>,
    /// The server has agreed to go on in the protocol that the client offered.
    pub(crate) upgrade: Option<(UpgradeOffer, Tunnel)>,
}

impl Answer {
    fn without_route(refusal: Refusal) -> Self {
        Self { route: None, reply: refusal.reply(), upgrade: None }
    }
}

/// Servers that can be tried at all.
fn count(upstream: &Upstream) -> u32 {
    u32::try_from(upstream.group.backends().len()).unwrap_or(u32::MAX)
}

/// Whether another server may do better: this one gave no reply, or said that it is only this one, now. A
/// server that says when to come back is taken at its word.
fn is_worth_repeating(sent: &Result<Exchange, crate::attempt::Failure>) -> bool {
    let Ok(exchange) = sent else { return true };
    let status = exchange.reply.status();
    let is_for_now = matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    );
    is_for_now && !exchange.reply.headers().contains_key(RETRY_AFTER)
}

/// The body, as far as it is there; refused at once if it says that it is too large.
fn payload(body: RequestBody, fields: &HeaderMap, route: &RouteConfig) -> Result<RequestPayload, Refusal> {
    let limit = route.max_body_bytes;
    let stated = fields.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if stated.is_some_and(|stated| stated > limit) {
        return Err(Refusal::TooLarge { limit });
    }
    match body.into_whole() {
        Ok(bytes) if bytes.len() as u64 > limit => Err(Refusal::TooLarge { limit }),
        Ok(bytes) => Ok(RequestPayload::Whole(bytes)),
        Err(body) => {
            let kind = fields.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
            let is_dialogue = kind.starts_with(b"application/grpc");
            let streaming = Streaming::new(body, limit, route.idle_timeout, is_dialogue);
            Ok(RequestPayload::Streaming(Box::new(streaming)))
        }
    }
}

/// Makes the head of a request the one that the upstream gets.
fn onward(
    parts: &mut Parts,
    route: &Route,
    normal: &Normal,
    peer: &Peer,
    is_trusted: bool,
    random: [u64; 3],
) -> Result<(), Refusal> {
    let trace = fields::trace(&parts.headers, random);
    let edits = &route.config.request_fields;
    let about = Onward { peer: peer.address, is_tls: peer.is_tls, is_trusted, trace, edits };
    fields::onward(&mut parts.headers, &about);
    // The server in front has asked the client for its body already.
    parts.headers.remove(EXPECT);
    parts.version = Version::HTTP_11;
    let RouteConfig { strip_prefix, add_prefix, replace_path, .. } = &*route.config;
    let path = match replace_path {
        Some(path) => Cow::Borrowed(&**path),
        None => forwarded_path(parts.uri.path(), &normal.path, strip_prefix, add_prefix),
    };
    let target = match parts.uri.query() {
        Some(query) => Cow::Owned(format!("{path}?{query}")),
        None => path,
    };
    let target =
        PathAndQuery::try_from(target.as_ref()).map_err(|_| Refusal::Unsupported("the target is no path"))?;
    parts.uri = Uri::from(target);
    Ok(())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
