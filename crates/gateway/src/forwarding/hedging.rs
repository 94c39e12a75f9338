//! Hedging: a second server is asked the same when the first is later than almost all replies of the route.
//!
//! ```text
//!   attempt ──(the route's 95th percentile)──> another server, the budget, its breaker: a second attempt
//!      `── whichever reply's head is there first goes on; the other attempt is dropped with its connection
//! ```
//!
//! Only what asks and changes nothing (GET, HEAD, OPTIONS) with its body at hand is sent twice. The second attempt is one
//! of the upstream's `retries.attempts` and comes out of the same budget, so that an upstream that is slow as a whole is not
//! asked twice. The delay is known once the route had [`LEAST`](tidegate_algorithms::recent::LEAST) replies. A time is noted
//! from the first attempt's begin to the head that won: hedged requests stay above the percentile that made them hedged.
//!
//! A dropped attempt does not count, neither for a breaker nor for a server: its reply is not known.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use tidegate_algorithms::breaker::Phase;
use tidegate_algorithms::time::Tick;
use tidegate_net::clock::monotonic;
use tidegate_upstream::backend::Place;
use tokio::time::timeout_at;

use crate::forwarding::attempt::{Failure, FaultOf, ServerExchange};
use crate::forwarding::message::Message;
use crate::forwarding::sending::{Sending, TriedServers};
use crate::observed::record::{Forestalled, Recorder};
use crate::routes::hedge::{Hedge, HedgeStats};
use crate::servers::adaptive::AttemptPermit;
use crate::servers::upstream::Upstream;
use crate::service::Gateway;

/// Where an attempt is, and what it owes an account to.
pub(crate) struct PlacedAttempt<'a> {
    pub(crate) server: usize,
    pub(crate) place: Place,
    pub(crate) permit: Option<AttemptPermit<'a>>,
    pub(crate) begun: Instant,
}

impl PlacedAttempt<'_> {
    /// Takes note of how it ended: `took` nanoseconds of its server.
    pub(crate) fn ended(&mut self, upstream: &Upstream, failed: bool, took: u64, now: Tick) {
        if let Some(permit) = self.permit.take() {
            permit.ended(failed, took, now);
        }
        upstream.ended(self.server, failed, took, now);
    }
}

impl Gateway {
    /// What became of second attempts, of routes that have them.
    #[must_use]
    pub fn hedges(&self) -> Vec<HedgeStats> {
        let site = self.site();
        let stats =
            site.routes.iter().filter_map(|route| Some(route.hedge.as_ref()?.stats(&route.config.name)));
        stats.collect()
    }

    /// Sends `message` to where `first` is, and once more if that is late. What is given back is the attempt whose end
    /// this is; the servers of both are among `tried`.
    pub(crate) async fn hedged<'a>(
        &self,
        sending: &Sending<'a>,
        message: &mut Message,
        first: PlacedAttempt<'a>,
        tried: &mut TriedServers,
        record: &mut Recorder,
    ) -> (Result<Box<ServerExchange>, Failure>, PlacedAttempt<'a>) {
        let begun = first.begun;
        let late = sending.hedge.and_then(|hedge| Some((hedge, hedge.after()?, message.copy_to_ask()?)));
        let ended = match late {
            Some((hedge, after, copy)) => {
                let twice = Twice { hedge, copy, late: begun + after, first };
                self.twice(twice, sending, message, tried, record).await
            }
            None => (self.attempt(sending, first.server, begun).send(message).await, first),
        };
        if let (Some(hedge), Ok(_)) = (sending.hedge, &ended.0) {
            hedge.took(monotonic().duration_since(begun));
        }
        ended
    }

    async fn twice<'a>(
        &self,
        Twice { hedge, mut copy, late, mut first }: Twice<'a>,
        sending: &Sending<'a>,
        message: &mut Message,
        tried: &mut TriedServers,
        record: &mut Recorder,
    ) -> (Result<Box<ServerExchange>, Failure>, PlacedAttempt<'a>) {
        let one = self.attempt(sending, first.server, first.begun);
        let mut one = pin!(one.send(message));
        if let Ok(sent) = timeout_at(late.into(), one.as_mut()).await {
            return (sent, first);
        }
        let Some(mut second) = self.second_place(sending, tried) else {
            hedge.refused.fetch_add(1, Relaxed);
            return (one.await, first);
        };
        tried.push(second.server);
        let next = record.next_span();
        if let Some((_, trace)) = next {
            copy.tell_trace(trace);
        }
        let span = next.map_or(0, |(span, _)| span);
        let other = self.attempt(sending, second.server, second.begun);
        let mut other = pin!(other.send(&mut copy));
        let (mut sent, mut is_second) = tokio::select! {
            sent = one.as_mut() => (sent, false),
            sent = other.as_mut() => (sent, true),
        };
        if !is_good(&sent) {
            // One attempt failed: only the other one is left.
            let loser = if is_second { &mut second } else { &mut first };
            if sent.as_ref().err().is_none_or(|failure| failure.fault_of == FaultOf::Server) {
                let took =
                    u64::try_from(monotonic().duration_since(loser.begun).as_nanos()).unwrap_or(u64::MAX);
                loser.ended(sending.upstream, true, took, self.tick());
            }
            sent = if is_second { one.await } else { other.await };
            is_second = !is_second;
        }
        if !is_second {
            hedge.lost.fetch_add(1, Relaxed);
            if next.is_some() {
                let (upstream, took) =
                    (Arc::clone(sending.upstream), monotonic().duration_since(second.begun));
                let lost = Forestalled { upstream, server: second.server, begun: second.begun, took, span };
                record.note(|record| record.forestalled.push(lost));
            }
            return (sent, first);
        }
        hedge.won.fetch_add(1, Relaxed);
        record.overtaken(sending.upstream, second.server, second.begun, span);
        (sent, second)
    }

    /// Another server, if there is one, the breaker is closed, and the budget has something left.
    fn second_place<'a>(&self, sending: &Sending<'a>, tried: &[usize]) -> Option<PlacedAttempt<'a>> {
        let (upstream, now) = (sending.upstream, self.tick());
        let is_closed = upstream.breaker.as_ref().is_none_or(|breaker| breaker.phase() == Phase::Closed);
        if tried.len() >= upstream.config.retries.attempts as usize || !is_closed {
            return None;
        }
        let (server, place) = upstream.group.pick(sending.key, tried, now).ok()?;
        let permit = upstream.enter(now).ok()?;
        let placed = || PlacedAttempt { server, place, permit, begun: monotonic() };
        sending.budget.budget().try_attempt(now).then(placed)
    }
}

/// What a second attempt is made of, and when.
struct Twice<'a> {
    hedge: &'a Hedge,
    copy: Message,
    late: Instant,
    first: PlacedAttempt<'a>,
}

fn is_good(sent: &Result<Box<ServerExchange>, Failure>) -> bool {
    sent.as_ref().is_ok_and(|exchange| !exchange.reply.status().is_server_error())
}
