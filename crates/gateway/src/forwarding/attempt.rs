//! One attempt: a connection to one server, the request on it, and the head of its reply.
//!
//! | what went wrong | may it be tried again |
//! |---|---|
//! | no connection, or it was closed before a byte of the request was written | always |
//! | a kept connection that was closed before the first byte of a reply | if the request is safe to repeat; once, on a new connection to the same server, which is not blamed |
//! | a server of HTTP/2 says that it has not looked at the request | always; on a kept connection that is no fault of the server, which is asked again on a new one |
//! | the server took the request and gave no reply, or none in time | if the request is safe to repeat |
//! | the client's body broke off, came too slowly or was too large | never; it is not the server's fault |
//! | the request offers to go on in another protocol, and the server speaks HTTP/2 alone | always; it is not the server's fault |
//! | this machine has no port or descriptor left for a connection (fault 37) | always; it is not the server's fault |
//!
//! A server may close a kept connection while a request is on its way there: that says nothing of the server, so that it is
//! asked once more before any other. Whether it read the request is not known, so that this is counted. It is known of HTTP/2: a
//! server that wants no more requests on a connection says which was the last that it looked at (GOAWAY), and one that has too
//! many refuses the stream (RFC 9113, 8.7). A new connection is shared only when the request it was made for is on it, so that no
//! other request is before that.

use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

use http::Response;
use tidegate_net::clock::{Clock, monotonic};
use tidegate_net::http::BoxError;
use tidegate_upstream::connect::Resolver;
use tidegate_upstream::failure::in_words;
use tokio::time::timeout_at;

use crate::config::ServerConfig;
use crate::forwarding::doubt::Doubt;
use crate::forwarding::fields;
use crate::forwarding::message::Message;
use crate::forwarding::progress::BodyProgress;
use crate::forwarding::unanswered::{How, Unanswered};
use crate::response::body::ReplySource;
use crate::response::refusal::Refusal;
use crate::servers::connection::{self, HyperSender, Sender};
use crate::servers::upstream::Upstream;

/// A reply whose head has come.
#[derive(Debug)]
pub(crate) struct ServerExchange {
    pub(crate) reply: Response<ReplySource>,
    pub(crate) sender: Sender,
    /// When it was there.
    pub(crate) heard: Instant,
    /// Whether the connection was there before.
    pub(crate) was_kept: bool,
    /// Whether the connection may not carry another request: the server may take that for the same client's, or is about to
    /// close the connection.
    is_spent: bool,
}

impl ServerExchange {
    /// How long the connection may wait for another request, if that is known.
    pub(crate) fn idle_time(&self) -> Option<Duration> {
        if self.is_spent { Some(Duration::ZERO) } else { fields::idle_time(self.reply.headers()) }
    }
}

/// Why an attempt gave no reply.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What the client is told if this was the last attempt.
    pub(crate) refusal: Refusal,
    /// Nothing of the request has reached a server.
    pub(crate) is_unsent: bool,
    pub(crate) fault_of: FaultOf,
}

/// The side that is to blame for the lack of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultOf {
    Server,
    Client,
    /// This process or its machine lacks something.
    Gateway,
}

/// What Linux says when it lacks something for one more connection: a port (`EADDRNOTAVAIL`), descriptors (`EMFILE`,
/// `ENFILE`), room in its buffers (`ENOBUFS`).
const LACKS: [i32; 4] = [99, 24, 23, 105];

impl Failure {
    /// Nothing was sent to anybody, and no server is to blame.
    pub(crate) fn of_gateway(refusal: Refusal) -> Self {
        Self { refusal, is_unsent: true, fault_of: FaultOf::Gateway }
    }

    /// Whether another upstream may be sent the request: this one gave no reply, and it is safe.
    pub(crate) fn may_go_elsewhere(&self, message: &Message) -> bool {
        self.fault_of != FaultOf::Client
            && self.refusal.is_of_upstream()
            && (self.is_unsent || message.is_repeatable())
    }

    fn of_server(refusal: Refusal, is_unsent: bool) -> Self {
        Self { refusal, is_unsent, fault_of: FaultOf::Server }
    }
}

/// Where and how long.
pub(crate) struct Attempt<'a> {
    /// The route's name, for the log.
    pub(crate) route: &'a str,
    pub(crate) upstream: &'a Upstream,
    /// The server's position in its group.
    pub(crate) server: usize,
    pub(crate) core: usize,
    pub(crate) resolver: &'a Resolver,
    pub(crate) clock: Clock,
    /// When it begins.
    pub(crate) begun: Instant,
    /// Longest wait for the reply's head, from when the server last took some of the request.
    pub(crate) patience: Duration,
    /// When it must be there at any rate.
    pub(crate) deadline: Option<Instant>,
    /// Whether the client may know which server failed, and why.
    pub(crate) explains: bool,
}

impl Attempt<'_> {
    /// Sends `message` and waits for the head of its reply. It is in a box, since it is handed on from phase to phase.
    pub(crate) async fn send(&self, message: &mut Message) -> Result<Box<ServerExchange>, Failure> {
        let server = &self.upstream.config.servers[self.server];
        // That is done in HTTP/1.1.
        let offers = message.upgrade.is_some();
        // A second kept connection may have been closed as well: the next one is new.
        let mut may_be_kept = true;
        loop {
            let pool = &self.upstream.pools[self.server];
            let kept = match std::mem::take(&mut may_be_kept) {
                true => pool.take(self.core, offers, self.begun),
                false => None,
            };
            let was_kept = kept.is_some();
            let sender = match kept {
                Some(sender) => sender,
                // In a box: connecting takes far more room than all the rest, and is rare.
                None => Box::pin(self.connect(server, offers)).await?,
            };
            // Connecting takes its time.
            let since = if was_kept { self.begun } else { monotonic() };
            pool.flow().connected(self.core, was_kept);
            message.goes_to(pool.flow(), self.core);
            let (sender, sent) = match (sender, message.bytes(server)) {
                (Sender::Direct(mut direct), Some(bytes)) => {
                    let sent = direct.send(bytes, message.is_to_head(), self.until(since)).await;
                    let sent = sent.map(|sent| sent.map(|reply| reply.map(|()| ReplySource::Direct)));
                    (Sender::Direct(direct), sent.map(|sent| sent.map_err(Unanswered::from)))
                }
                // In a box for the same reason.
                (sender, _) => match Box::pin(self.through_hyper(sender, was_kept, message, server)).await {
                    Ok((sender, sent)) => (Sender::Hyper(sender), sent),
                    Err(_) if was_kept => continue,
                    Err(error) => return Err(self.failed(Refusal::Unreachable, true, &error)),
                },
            };
            let error = match sent {
                Some(Ok(reply)) => match Doubt::of(&reply).or_else(|| message.doubt(&reply)) {
                    None => {
                        let is_spent = message.binds_connection()
                            || (message.is_to_head() && fields::says_no_length(&reply));
                        let heard = monotonic();
                        return Ok(Box::new(ServerExchange { reply, sender, heard, was_kept, is_spent }));
                    }
                    Some(doubt) => return Err(self.bad_reply(&doubt, false)),
                },
                Some(Err(error)) => error,
                None => return Err(self.failed(Refusal::TimedOut, false, &"no reply in time")),
            };
            if error.how == How::Unsent {
                if was_kept {
                    continue;
                }
                return Err(self.failed(Refusal::Unreachable, true, &error.why));
            }
            if error.how == How::Refused && was_kept && message.is_at_hand() {
                continue;
            }
            if let Some(refusal) = message.progress.as_ref().and_then(|progress| progress.fault()) {
                return Err(Failure { refusal, is_unsent: false, fault_of: FaultOf::Client });
            }
            if was_kept && message.is_repeatable() && error.how == How::Closed {
                self.upstream.group.backends()[self.server].repeated();
                continue;
            }
            let Unanswered { how, why } = error;
            return Err(self.bad_reply(&why, how == How::Refused && message.is_at_hand()));
        }
    }

    /// No reply, or one that is not passed on. The log has one in a while, with what is wrong and never with what a field says.
    fn bad_reply(&self, why: &dyn Display, is_unsent: bool) -> Failure {
        let Upstream { config, bad_replies, .. } = self.upstream;
        if let Some(others) = bad_replies.unsaid(self.clock.tick()) {
            let (route, upstream, server) =
                (self.route, &config.name, &config.servers[self.server].backend.target);
            tracing::warn!(route, %upstream, %server, %why, others, "a server gave no reply that can be passed on (bad_reply)");
        }
        self.failed(Refusal::BadReply, is_unsent, why)
    }

    /// The server's fault; the client hears which one and why if it may know.
    fn failed(&self, refusal: Refusal, is_unsent: bool, why: &dyn Display) -> Failure {
        if !self.explains {
            return Failure::of_server(refusal, is_unsent);
        }
        let server = &self.upstream.config.servers[self.server].backend.target;
        let at = format!("{server}: {why}").into();
        Failure::of_server(Refusal::Explained { refusal: Box::new(refusal), at }, is_unsent)
    }

    /// Has hyper send it.
    async fn through_hyper(
        &self,
        sender: Sender,
        was_kept: bool,
        message: &mut Message,
        server: &ServerConfig,
    ) -> Result<(HyperSender, Option<Result<Response<ReplySource>, Unanswered>>), BoxError> {
        let mut sender = sender.through_hyper().await?;
        let Some(ready) = self.before_deadline(sender.ready()).await else { return Ok((sender, None)) };
        ready?;
        let Some(request) = message.take(server, sender.is_http2()) else {
            let why = "it cannot be sent to this server".into();
            return Ok((sender, Some(Err(Unanswered { how: How::Broken, why }))));
        };
        let answer = sender.send(request);
        // It may have waited until the connection was ready.
        let since = monotonic();
        if !was_kept {
            self.upstream.pools[self.server].share(self.core, &sender, since);
        }
        let sent = self.in_time(answer, since, message.progress.as_deref()).await;
        let sent = sent.map(|sent| match sent {
            Ok(reply) => {
                message.expectation.iter().for_each(|waits| waits.answered(reply.status()));
                Ok(reply.map(ReplySource::Hyper))
            }
            Err(mut error) => {
                let unsent = error.take_message();
                let is_unsent = unsent.is_some();
                unsent.into_iter().for_each(|unsent| message.give_back(unsent));
                Err(Unanswered::of_hyper(error.into_error(), is_unsent))
            }
        });
        Ok((sender, sent))
    }

    /// A new connection, before the deadline.
    async fn connect(&self, server: &ServerConfig, offers: bool) -> Result<Sender, Failure> {
        let config = &self.upstream.config;
        let connecting = self.upstream.connect(self.server, self.resolver, offers);
        let Some(connected) = self.before_deadline(connecting).await else {
            return Err(self.failed(Refusal::TimedOut, true, &"no connection in time"));
        };
        connected.map_err(|error| {
            let server = &server.backend.target;
            tracing::debug!(%error, upstream = %config.name, %server, "cannot connect");
            match error.raw_os_error() {
                Some(code) if LACKS.contains(&code) => Failure::of_gateway(Refusal::NoSocket),
                _ if connection::is_http2_alone(&error) => Failure::of_gateway(Refusal::NoUpgrade),
                _ => self.failed(Refusal::Unreachable, true, &in_words(&error)),
            }
        })
    }

    async fn before_deadline<T>(&self, done: impl Future<Output = T>) -> Option<T> {
        match self.deadline {
            Some(deadline) => timeout_at(deadline.into(), done).await.ok(),
            None => Some(done.await),
        }
    }

    /// Until when something is waited for that is waited for since then.
    fn until(&self, since: Instant) -> Instant {
        let until = since + self.patience;
        self.deadline.map_or(until, |deadline| deadline.min(until))
    }

    /// What `sent` gives, unless that takes too long from `since` on: while the server takes the body it is waited for, and
    /// while the client is waited for that is not the server's fault.
    async fn in_time<T>(
        &self,
        sent: impl Future<Output = T>,
        mut since: Instant,
        progress: Option<&BodyProgress>,
    ) -> Option<T> {
        let mut sent = pin!(sent);
        loop {
            if let Ok(reply) = timeout_at(self.until(since).into(), sent.as_mut()).await {
                return Some(reply);
            }
            let now = monotonic();
            if self.deadline.is_some_and(|deadline| deadline <= now) {
                return None;
            }
            since = match progress {
                Some(progress) if progress.is_awaited() => now,
                Some(progress) if progress.last() > since => progress.last(),
                _ => return None,
            };
        }
    }
}
