//! One attempt: a connection to one server, the request on it, and the head of its reply.
//!
//! | what went wrong | may it be tried again |
//! |---|---|
//! | no connection, or it was closed before a byte of the request was written | always |
//! | a kept connection that turned out to be closed, at the first byte of its reply | if the request is safe to repeat; on a new connection, and it counts for nothing |
//! | the server took the request and gave no reply, or none in time | if the request is safe to repeat |
//! | the client's body broke off, came too slowly or was too large | never; it is not the server's fault |

use std::error::Error;
use std::time::Duration;

use http::header::{self, HOST, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tidegate_net::clock::monotonic;
use tidegate_net::http::BodyError;
use tidegate_upstream::backend::Target;
use tidegate_upstream::connect::Resolver;
use tokio::time::timeout;

use bytes::Bytes;

use crate::body::{PayloadError, RequestPayload};
use crate::fields::{self, MAX_HEAD_BYTES};
use crate::pool::Sender;
use crate::refusal::Refusal;
use crate::upstream::Upstream;

/// Most fields of a reply's head.
const MAX_FIELDS: usize = 128;

/// A request that can be sent, perhaps several times.
#[derive(Debug)]
pub(crate) struct Message {
    parts: Parts,
    payload: Payload,
}

#[derive(Debug)]
enum Payload {
    /// It can be sent as often as one likes.
    Whole(Bytes),
    /// It can be sent once; `None`: it was.
    Once(Option<RequestPayload>),
}

impl Message {
    pub(crate) fn new(parts: Parts, payload: RequestPayload) -> Self {
        let payload = match payload {
            RequestPayload::Whole(bytes) => Payload::Whole(bytes),
            streaming => Payload::Once(Some(streaming)),
        };
        Self { parts, payload }
    }

    /// Whether a server may be sent the request although another one may have obeyed it already: its
    /// method says that twice is as once (RFC 9110, 9.2.2), and its body is still at hand.
    pub(crate) fn is_repeatable(&self) -> bool {
        let is_idempotent = matches!(
            self.parts.method,
            Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
        );
        is_idempotent && matches!(self.payload, Payload::Whole(_))
    }

    /// The request as it is sent to `server`, which is its host where the client named none.
    fn take(&mut self, server: &Target) -> Option<Request<RequestPayload>> {
        let payload = match &mut self.payload {
            Payload::Whole(bytes) => RequestPayload::Whole(bytes.clone()),
            Payload::Once(payload) => payload.take()?,
        };
        let mut request = Request::new(payload);
        *request.method_mut() = self.parts.method.clone();
        *request.uri_mut() = self.parts.uri.clone();
        *request.headers_mut() = self.parts.headers.clone();
        if let header::Entry::Vacant(host) = request.headers_mut().entry(HOST)
            && let Ok(server) = HeaderValue::from_str(&server.to_string())
        {
            host.insert(server);
        }
        Some(request)
    }

    fn give_back(&mut self, request: Request<RequestPayload>) {
        if let Payload::Once(payload) = &mut self.payload {
            *payload = Some(request.into_body());
        }
    }
}

/// A reply whose head has come.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) reply: Response<Incoming>,
    pub(crate) sender: Sender,
}

/// Why an attempt gave no reply.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What the client is told if this was the last attempt.
    pub(crate) refusal: Refusal,
    /// Nothing of the request has reached a server.
    pub(crate) is_unsent: bool,
    /// It was the client's fault.
    pub(crate) is_of_client: bool,
}

impl Failure {
    fn of_server(refusal: Refusal, is_unsent: bool) -> Self {
        Self { refusal, is_unsent, is_of_client: false }
    }
}

/// Where and how long.
pub(crate) struct Attempt<'a> {
    pub(crate) upstream: &'a Upstream,
    /// The server's position in its group.
    pub(crate) server: usize,
    pub(crate) core: usize,
    pub(crate) resolver: &'a Resolver,
    /// Longest wait for the reply's head.
    pub(crate) patience: Duration,
}

impl Attempt<'_> {
    /// Sends `message` and waits for the head of its reply.
    pub(crate) async fn send(&self, message: &mut Message) -> Result<Exchange, Failure> {
        loop {
            let kept = self.upstream.pools[self.server].take(self.core, monotonic());
            let was_kept = kept.is_some();
            let mut sender = match kept {
                Some(sender) => sender,
                None => self.connect().await?,
            };
            if sender.ready().await.is_err() {
                if was_kept {
                    continue;
                }
                return Err(Failure::of_server(Refusal::Unreachable, true));
            }
            let Some(request) = message.take(self.target()) else {
                return Err(Failure::of_server(Refusal::BadReply, false));
            };
            let error = match timeout(self.patience, sender.try_send_request(request)).await {
                Ok(Ok(reply)) if fields::is_sound(&reply) => return Ok(Exchange { reply, sender }),
                Ok(Ok(_)) => return Err(Failure::of_server(Refusal::BadReply, false)),
                Ok(Err(error)) => error,
                Err(_) => return Err(Failure::of_server(Refusal::TimedOut, false)),
            };
            let mut error = error;
            if let Some(unsent) = error.take_message() {
                message.give_back(unsent);
                if was_kept {
                    continue;
                }
                return Err(Failure::of_server(Refusal::Unreachable, true));
            }
            let error = error.into_error();
            if let Some(refusal) = of_client(&error) {
                return Err(Failure { refusal, is_unsent: false, is_of_client: true });
            }
            if was_kept && message.is_repeatable() && (error.is_incomplete_message() || error.is_closed()) {
                continue;
            }
            tracing::debug!(%error, upstream = %self.upstream.config.name, "an upstream gave no reply");
            return Err(Failure::of_server(Refusal::BadReply, false));
        }
    }

    fn target(&self) -> &Target {
        self.upstream.group.backends()[self.server].target()
    }

    /// A new connection.
    async fn connect(&self) -> Result<Sender, Failure> {
        let target = self.target();
        let stream = self.resolver.connect(target, self.upstream.config.connect_timeout).await.map_err(|error| {
            tracing::debug!(%error, upstream = %self.upstream.config.name, server = %target, "cannot connect");
            Failure::of_server(Refusal::Unreachable, true)
        })?;
        let handshake = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_FIELDS)
            .writev(false)
            .handshake(TokioIo::new(stream));
        let (sender, connection) =
            handshake.await.map_err(|_| Failure::of_server(Refusal::Unreachable, true))?;
        drop(tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to an upstream ended early");
            }
        }));
        Ok(sender)
    }
}

/// What the client did wrong, if that is why sending failed.
fn of_client(error: &hyper::Error) -> Option<Refusal> {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<PayloadError>() {
            return Some(match error {
                PayloadError::TooLarge { limit } => Refusal::TooLarge { limit: *limit },
                PayloadError::Client(BodyError::TooSlow) => Refusal::TooSlow,
                PayloadError::Client(BodyError::TooLarge { limit }) => {
                    Refusal::TooLarge { limit: *limit as u64 }
                }
                PayloadError::Client(BodyError::Broken(_)) => Refusal::BodyBroken,
                PayloadError::Client(BodyError::NoRoom) => Refusal::NoRoom,
            });
        }
        cause = error.source();
    }
    None
}
