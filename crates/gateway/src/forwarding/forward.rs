//! How a request is forwarded: breakers, attempts at servers, and another upstream when all is lost.
//!
//! ```text
//!   route's breaker ─> upstream's breaker ─> pick ─> attempt ─> reply
//!        |                     ^                        |
//!        |                     `──────── again ─────────'
//!        `── or none of these gives a reply: the route's fallback upstream, once, in the same time
//! ```
//!
//! An attempt is repeated when that is safe ([`crate::forwarding::attempt`]), another server is left, the upstream's budget allows it, and
//! time is left. Where no connection could be made, no server had any work: the next attempt is free, if it goes to a server
//! whose own last request did not fail. In an outage of all servers there is no such server, so that the budget bounds
//! attempts. Between two attempts that reached a server there is a pause that doubles and is drawn at random, so that clients
//! who failed together do not come back together. Where no time is left for it, the client gets the last reply.
//!
//! The fallback upstream gets what may be repeated, or what no server has been sent. It has no fallback of its own, so
//! that a request is at most at two upstreams. Its first attempt is free, since a budget would let one request in ten reach
//! the fallback. Further attempts come out of the budget of the route's upstream, so that a request has one budget.
//!
//! What a server did counts for that server, with each attempt. An upstream's breaker, and a route's, judge what became of the
//! request in the end: an attempt that another server made good is no failure of the upstream. Nor is one while another server
//! works ([`Upstream::counts`]): ejection is for that. Refusals of an upstream's breaker or for lack of places say nothing to a
//! route's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version};
use tidegate_algorithms::breaker::{Outcome, Phase};
use tidegate_algorithms::time::Tick;
use tidegate_net::clock::monotonic;
use tidegate_net::http::{Body, RequestBody, UpgradeOffer};
use tidegate_upstream::backend::Place;
use tidegate_upstream::group::hash;
use tidegate_wire::trace_context::TraceContext;
use tokio::time::sleep;

use crate::config::Protocol;
use crate::forwarding::arrival::Arrival;
use crate::forwarding::attempt::{Failure, FaultOf, ServerExchange};
use crate::forwarding::fields::{self, Onward};
use crate::forwarding::forwarded;
use crate::forwarding::hedging::PlacedAttempt;
use crate::forwarding::message::Message;
use crate::forwarding::mirror::Way;
use crate::forwarding::offer::Offer;
use crate::forwarding::payload::{RequestPayload, Streaming};
use crate::forwarding::sending::{Sending, TriedServers};
use crate::forwarding::tunnel::Tunnel;
use crate::observed::flow::Passing;
use crate::observed::record::{AttemptEnd, Recorder, What};
use crate::random::{fraction, random};
use crate::response::body::ReplySource;
use crate::response::refusal::Refusal;
use crate::response::replies::{respond, switching};
use crate::routes::client_address::as_attribute;
use crate::routes::normal::Normal;
use crate::routes::route::Route;
use crate::routes::target::forward_to;
use crate::servers::breaker::{BreakerAdmission, SharedBreaker};
use crate::servers::pool::Return;
use crate::servers::upstream::Upstream;
use crate::service::{ClientField, Gateway, GatewaySettings};

/// The first pause between two attempts that reached a server, at most; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(25);

/// A reply's head, and the server that gave it.
type ServerReply = (Box<ServerExchange>, usize, Place);

impl Gateway {
    /// Has a server answer; with its reply comes the offer to which it has agreed.
    pub(crate) async fn forward(
        &self,
        route: &Route,
        upstream: &Arc<Upstream>,
        normal: &Normal<'_>,
        arrival: Arrival,
        record: &mut Recorder,
    ) -> Result<(Response<Body>, Option<(UpgradeOffer, Tunnel)>), Refusal> {
        let begun = self.clock().beside(normal.since);
        let Arrival { mut parts, body, offer, .. } = arrival;
        // gRPC is spoken in HTTP/2 from end to end: whoever writes its name over anything else is bounded like others.
        let speaks_http2 = parts.version == Version::HTTP_2 && upstream.config.protocol != Protocol::Http1;
        let payload = payload(body, &parts.headers, route, speaks_http2, normal.peer.core)?;
        let offered = Offer::of(&parts.headers, &route.config, normal)?;
        let is_head = parts.method == Method::HEAD;
        let key = upstream.key(&parts.headers, normal.client);
        let other = route.fallback.as_ref().map(|it| (it, it.key(&parts.headers, normal.client)));
        onward(&mut parts.headers, parts.version, route, normal, self.settings(), record.trace());
        forward_to(&mut parts, &route.config)?;
        if let Some(identity) = &normal.identity {
            self.identity_fields().tell(identity, &mut parts.headers);
        }
        record.note(|record| {
            record.request_id = fields::request_id(&parts.headers);
            record.trace_id = fields::caller(&parts.headers).map(TraceContext::trace_id).or(record.trace_id);
            record.sent = record.span.map(|_| parts.uri.clone());
        });
        let mirror = route.mirror.as_ref().filter(|_| offered.is_none());
        let copy = mirror.and_then(|mirror| {
            let key = mirror.upstream.key(&parts.headers, normal.client);
            mirror.copy(&parts, &payload, key)
        });
        let mut message = Message::new(parts, payload, offered);
        // Without a bound of its own, what can be repeated has the time of one attempt for all of them.
        let whole = (!message.is_streaming()).then_some(route.config.first_byte_timeout);
        let deadline = route.config.timeout.or(whole).map(|allowed| begun.instant + allowed);
        let (hedge, core, explains) = (route.hedge.as_deref(), normal.peer.core, normal.explains);
        let (budget, mut answered_by) = (upstream, upstream);
        let sending = Sending { route, upstream, budget, hedge, key, core, begun, deadline, explains };
        upstream.budget().request(core, begun.tick);
        let mut sent = self.behind_breaker(&sending, &mut message, record).await;
        if let (Err(failure), Some((other, key))) = (&sent, other)
            && failure.may_go_elsewhere(&message)
            && deadline.is_none_or(|deadline| monotonic() < deadline)
        {
            record.step(|| What::Fallback);
            answered_by = other;
            let begun = self.clock().moment();
            let sending = Sending { upstream: other, hedge: None, key, begun, ..sending };
            sent = self.try_servers(&sending, &mut message, record).await;
        }
        let (mut exchange, server, place) = sent.map_err(|failure| failure.refusal)?;
        if let Some(copy) = copy {
            let patience = route.config.timeout.unwrap_or(route.config.first_byte_timeout);
            let way = Way { core, resolver: self.resolver().clone(), clock: self.clock(), patience };
            copy.send(exchange.reply.status(), exchange.heard.duration_since(begun.instant), way);
        }
        if exchange.reply.status() == StatusCode::SWITCHING_PROTOCOLS {
            let mut passing = Passing::on(&route.flow, core);
            passing.goes_to(answered_by.pools[server].flow());
            let (server, idle) = (hyper::upgrade::on(&mut exchange.reply), route.config.upgrade_idle_timeout);
            let tunnel = Tunnel::new(server, exchange.sender, place, idle, passing);
            return Ok((switching(exchange.reply, message.upgrade.as_ref(), route), offer.zip(Some(tunnel))));
        }
        let (pool, promised) = (Arc::clone(&answered_by.pools[server]), exchange.idle_time());
        let back = Return::new(exchange.sender, promised, pool, core, exchange.heard);
        let last = route.config.reply_timeout.map(|allowed| begun.instant + allowed);
        Ok((respond(exchange.reply, route, back, place, is_head, last).await, None))
    }

    /// What a server of `upstream` answers to a question of the gateway's own, and what its connection goes back with.
    pub(crate) async fn ask_server(
        &self,
        route: &Route,
        upstream: &Arc<Upstream>,
        normal: &Normal<'_>,
        message: &mut Message,
        deadline: Instant,
    ) -> Result<(Response<ReplySource>, Return, Place), Failure> {
        let key = hash(as_attribute(normal.client).as_bytes());
        let (core, begun) = (normal.peer.core, self.clock().moment());
        let (deadline, hedge, explains) = (Some(deadline), None, false);
        let sending =
            Sending { route, upstream, budget: upstream, hedge, key, core, begun, deadline, explains };
        upstream.budget().request(core, begun.tick);
        let (exchange, server, place) = self.try_servers(&sending, message, &mut Recorder::default()).await?;
        let (pool, promised) = (Arc::clone(&upstream.pools[server]), exchange.idle_time());
        let back = Return::new(exchange.sender, promised, pool, core, exchange.heard);
        Ok((exchange.reply, back, place))
    }

    /// Tries the servers of the route's upstream, unless the route's own breaker is open.
    async fn behind_breaker(
        &self,
        sending: &Sending<'_>,
        message: &mut Message,
        record: &mut Recorder,
    ) -> Result<ServerReply, Failure> {
        let begun = sending.begun;
        let admission = admit(sending.route.breaker.as_deref(), "route", begun.tick, record)?;
        let sent = self.try_servers(sending, message, record).await;
        let failed = sent.as_ref().map_or(true, |(exchange, ..)| exchange.reply.status().is_server_error());
        let is_of_servers = sent.as_ref().err().is_none_or(|failure| failure.fault_of == FaultOf::Server);
        if let Some(admission) = admission
            && is_of_servers
        {
            let now = monotonic();
            let took = servers_time(begun.instant, now, message);
            admission.ended(Outcome { failed, took }, begun.tick_at(now));
        }
        sent
    }

    /// Tries the servers of an upstream, unless its breaker is open.
    async fn try_servers(
        &self,
        sending: &Sending<'_>,
        message: &mut Message,
        record: &mut Recorder,
    ) -> Result<ServerReply, Failure> {
        let upstream = sending.upstream;
        let admission = admit(upstream.breaker.as_deref(), "upstream", sending.begun.tick, record)?;
        let mut last = None;
        let sent = self.attempts(sending, message, record, &mut last).await;
        if let (Some(admission), Some((server, outcome, now))) = (admission, last)
            && upstream.counts(server, outcome.failed, now)
        {
            admission.ended(outcome, now);
        }
        sent
    }

    /// Tries servers until one answers or no attempt is left. `last`: which was the last, what it did, and when that was known.
    async fn attempts(
        &self,
        sending: &Sending<'_>,
        message: &mut Message,
        record: &mut Recorder,
        last: &mut Option<(usize, Outcome, Tick)>,
    ) -> Result<ServerReply, Failure> {
        let &Sending { upstream, deadline, mut begun, .. } = sending;
        let mut tried = TriedServers::new();
        let mut pause = FIRST_PAUSE;
        let mut picked = None;
        loop {
            let permit = upstream.enter(begun.tick).map_err(Failure::of_gateway)?;
            let (server, place) = picked.take().map_or_else(|| pick(sending, &tried, begun.tick), Ok)?;
            record.step(|| What::Pick);
            tried.push(server);
            if let Some(trace) = record.attempt(upstream, server) {
                message.tell_trace(trace);
            }
            let mut placed = PlacedAttempt { server, place, permit, begun: begun.instant };
            let sent = match sending.hedge {
                None => self.attempt(sending, server, begun.instant).send(message).await,
                // In a box: two attempts take twice the room, and few routes have them.
                Some(_) => {
                    let sent = self.hedged(sending, message, placed, &mut tried, record);
                    let (sent, winner) = Box::pin(sent).await;
                    placed = winner;
                    sent
                }
            };
            record.attempt_ended(|| end_of(&sent));
            let heard = sent.as_ref().map_or_else(|_| monotonic(), |exchange| exchange.heard);
            let (now, took) = (begun.tick_at(heard), servers_time(placed.begun, heard, message));
            if let Ok(ServerExchange { reply, .. }) = sent.as_deref() {
                upstream.pools[placed.server].flow().answered(sending.core, reply.status().as_u16(), took);
            }
            let fault_of = sent.as_ref().err().map(|failure| failure.fault_of);
            if fault_of == Some(FaultOf::Client) {
                *last = None;
                return sent.map(|exchange| (exchange, placed.server, placed.place));
            }
            let failed = sent.as_ref().map_or(true, |exchange| exchange.reply.status().is_server_error());
            if fault_of != Some(FaultOf::Gateway) {
                placed.ended(upstream, failed, took, now);
                *last = Some((placed.server, Outcome { failed, took }, now));
            }
            let is_unsent = sent.as_ref().is_err_and(|failure| failure.is_unsent);
            let may_repeat = is_unsent || (message.is_repeatable() && is_worth_repeating(&sent));
            let rest = if is_unsent { Duration::ZERO } else { pause.mul_f64(fraction()) };
            let may_try = failed
                && may_repeat
                && tried.len() < upstream.config.retries.attempts.min(count(upstream)) as usize
                && deadline.is_none_or(|deadline| heard + rest < deadline)
                && upstream.breaker.as_ref().is_none_or(|breaker| breaker.phase() != Phase::Open);
            // With no server, no time or no leave of the breaker left, what this one did is what the client is told.
            picked = if may_try { sending.next(&tried, &sent, now) } else { None };
            if picked.is_none() {
                return sent.map(|exchange| (exchange, placed.server, placed.place));
            }
            drop((sent, placed));
            if !is_unsent {
                // In a box: a timer takes far more room than what most requests need here.
                Box::pin(sleep(rest)).await;
                record.step(|| What::Pause);
                pause *= 2;
            }
            begun = self.clock().moment();
        }
    }
}

/// Leave of a breaker, if there is one.
fn admit<'b>(
    breaker: Option<&'b SharedBreaker>,
    of: &'static str,
    now: Tick,
    record: &mut Recorder,
) -> Result<Option<BreakerAdmission<'b>>, Failure> {
    let Some(breaker) = breaker else { return Ok(None) };
    let admitted = breaker.admit(now);
    record.step(|| What::Breaker { of, state: breaker.phase() });
    admitted.map(Some).map_err(|wait| Failure::of_gateway(Refusal::Open { wait }))
}

/// A server that the request was not sent to.
fn pick(sending: &Sending<'_>, tried: &[usize], now: Tick) -> Result<(usize, Place), Failure> {
    let picked = sending.upstream.group.pick(sending.key, tried, now);
    picked.map_err(|none| Failure::of_gateway(none.into()))
}

fn end_of(sent: &Result<Box<ServerExchange>, Failure>) -> AttemptEnd {
    match sent {
        Ok(exchange) => AttemptEnd::Reply { status: exchange.reply.status(), was_kept: exchange.was_kept },
        Err(failure) => AttemptEnd::Failure(failure.refusal.word()),
    }
}

/// Servers that can be tried at all.
fn count(upstream: &Upstream) -> u32 {
    u32::try_from(upstream.group.backends().len()).unwrap_or(u32::MAX)
}

/// Whether another server may do better: this one gave no reply, or said that it is only this one, now. A
/// server that says when to come back is taken at its word.
fn is_worth_repeating(sent: &Result<Box<ServerExchange>, Failure>) -> bool {
    let Ok(exchange) = sent else { return true };
    let status = exchange.reply.status();
    let is_for_now = matches!(
        status,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    );
    is_for_now && !exchange.reply.headers().contains_key(RETRY_AFTER)
}

/// The body, as far as it is there; refused at once if it says that it is too large. If `speaks_http2`, a body of gRPC
/// may be a dialogue.
fn payload(
    body: RequestBody,
    fields: &HeaderMap,
    route: &Route,
    speaks_http2: bool,
    core: usize,
) -> Result<RequestPayload, Refusal> {
    let limit = route.config.max_body_bytes;
    let stated = fields.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if stated.is_some_and(|stated| stated > limit) {
        return Err(Refusal::TooLarge { limit });
    }
    match body.into_whole() {
        Ok(bytes) if bytes.len() as u64 > limit => Err(Refusal::TooLarge { limit }),
        Ok(bytes) => {
            route.flow.request_bytes(core, bytes.len());
            Ok(RequestPayload::Whole(bytes))
        }
        Err(body) => {
            let kind = fields.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
            let is_dialogue = speaks_http2 && kind.starts_with(b"application/grpc");
            let (config, passing) = (Arc::clone(&route.config), Passing::on(&route.flow, core));
            let streaming = Streaming::new(body, config, is_dialogue, passing);
            Ok(RequestPayload::Streaming(Box::new(streaming)))
        }
    }
}

/// Makes the head of a request the one that the upstream gets, its target aside.
pub(crate) fn onward(
    fields: &mut HeaderMap,
    received: Version,
    route: &Route,
    normal: &Normal<'_>,
    settings: GatewaySettings,
    trace: Option<TraceContext>,
) {
    let trace = trace.unwrap_or_else(|| fields::trace(fields, random()));
    let edits = &route.config.request_fields;
    let (peer, is_tls) = (normal.peer.address, normal.peer.is_tls);
    let (is_trusted, peer_ip) = (settings.trusted_hops > 0, peer.ip().to_canonical());
    if is_trusted && settings.client_from == ClientField::Forwarded {
        forwarded::translate(fields, normal.client, peer_ip, settings.trusted_hops);
    }
    let prefix = &route.config.strip_prefix;
    let about = Onward { peer, is_tls, is_trusted, trace, received, prefix, edits };
    fields::onward(fields, &about);
    if route.config.compress {
        fields::strengthen_tags(fields);
    }
    if settings.sends_forwarded {
        forwarded::tell(fields, normal.client, peer_ip, edits);
    }
}

/// Nanoseconds from then to `now` that servers took. While a client sends its body no server can answer, so that slow clients
/// make no server slow. A body is sent once: all that was waited for it lies after the first attempt began.
fn servers_time(begun: Instant, now: Instant, message: &Message) -> u64 {
    let took = u64::try_from(now.duration_since(begun).as_nanos()).unwrap_or(u64::MAX);
    took.saturating_sub(message.awaited())
}
