//! gRPC's server reflection: clients such as grpcurl ask what can be called, and how.
//!
//! A stream of questions, each answered by one message as soon as it is whole. What is described is
//! in [`super::descriptors`]. Versions v1 and v1alpha have the same messages under two names.
//!
//! Bounds: a question is at most 64 KiB; the stream has the pace of any request body, so a client that
//! falls silent ends it with DEADLINE_EXCEEDED, and a drain does not wait for one. Deliberately absent: extensions, which
//! proto3 does not have.
//!
//! Reference: grpc.reflection.v1, the GRPC Server Reflection Protocol.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame};
use prost::{Message, Oneof};
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::http::RequestBody;
use tidegate_wire::rls::{FrameError, MAX_MESSAGE_BYTES, decode, encode, frame_bytes};

use super::descriptors::Descriptors;
use super::response::trailers;
use super::status::{Code, Status};

/// `ServerReflectionRequest`
#[derive(Clone, PartialEq, Eq, Message)]
struct ReflectionRequest {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(oneof = "ReflectionQuestion", tags = "3, 4, 5, 6, 7")]
    asked: Option<ReflectionQuestion>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
enum ReflectionQuestion {
    #[prost(string, tag = "3")]
    FileByName(String),
    #[prost(string, tag = "4")]
    FileOfSymbol(String),
    #[prost(bytes, tag = "5")]
    FileOfExtension(Vec<u8>),
    #[prost(string, tag = "6")]
    ExtensionsOf(String),
    #[prost(string, tag = "7")]
    Services(String),
}

/// `ServerReflectionResponse`
#[derive(Clone, PartialEq, Eq, Message)]
struct ReflectionReply {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(message, optional, tag = "2")]
    question: Option<ReflectionRequest>,
    #[prost(oneof = "Found", tags = "4, 6, 7")]
    found: Option<Found>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
enum Found {
    #[prost(message, tag = "4")]
    Files(Files),
    #[prost(message, tag = "6")]
    Services(Services),
    #[prost(message, tag = "7")]
    Error(ReflectionFailure),
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Files {
    #[prost(bytes = "vec", repeated, tag = "1")]
    descriptors: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Services {
    #[prost(message, repeated, tag = "1")]
    services: Vec<ListedService>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct ListedService {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct ReflectionFailure {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

fn answer(descriptors: &Descriptors, question: ReflectionRequest) -> ReflectionReply {
    let files = |descriptors: Option<Vec<Vec<u8>>>| {
        descriptors.map_or_else(
            || failure(Code::NotFound, "not known here"),
            |descriptors| Found::Files(Files { descriptors }),
        )
    };
    let found = match &question.asked {
        Some(ReflectionQuestion::FileByName(name)) => files(descriptors.file(name)),
        Some(ReflectionQuestion::FileOfSymbol(symbol)) => files(descriptors.file_of(symbol)),
        Some(ReflectionQuestion::Services(_)) => {
            let service = |name: &str| ListedService { name: name.to_owned() };
            Found::Services(Services { services: descriptors.services().map(service).collect() })
        }
        Some(ReflectionQuestion::FileOfExtension(_) | ReflectionQuestion::ExtensionsOf(_)) | None => {
            failure(Code::NotFound, "there are no extensions")
        }
    };
    ReflectionReply { host: question.host.clone(), question: Some(question), found: Some(found) }
}

fn failure(code: Code, message: &str) -> Found {
    Found::Error(ReflectionFailure { code: i32::from(code as u16), message: message.to_owned() })
}

/// The answer to `ServerReflectionInfo`: a message per question, then trailers.
pub(super) struct Conversation {
    descriptors: Arc<Descriptors>,
    /// The questions that are still to come; none after the last.
    questions: Option<RequestBody>,
    received: BytesMut,
    /// Comes when listeners close.
    closed: Pin<Box<dyn Future<Output = ()> + Send>>,
    over: bool,
}

impl Conversation {
    pub(super) fn new(descriptors: Arc<Descriptors>, drain: Drain, questions: RequestBody) -> Self {
        let closed = Box::pin(async move { drain.reached(Stage::Closed).await });
        Self { descriptors, questions: Some(questions), received: BytesMut::new(), closed, over: false }
    }

    /// The answer to the next question that is whole.
    fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(length) = frame_bytes(&self.received) else { return Ok(None) };
        if length > MAX_MESSAGE_BYTES {
            return Err(Status::new(Code::ResourceExhausted, "the message is too large"));
        }
        if self.received.len() < length {
            return Ok(None);
        }
        let question = decode(&self.received.split_to(length))?;
        Ok(Some(encode(&answer(&self.descriptors, question)).into()))
    }

    /// The next message, or how the stream ends.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Status>> {
        loop {
            if let Some(message) = self.next()? {
                return Poll::Ready(Ok(message));
            }
            let Some(questions) = &mut self.questions else {
                let whole = self.received.is_empty();
                let ended = if whole { Status::new(Code::Ok, "") } else { FrameError::Frame.into() };
                return Poll::Ready(Err(ended));
            };
            match Pin::new(questions).poll_frame(cx) {
                Poll::Ready(Some(frame)) => {
                    self.received.extend_from_slice(&frame?.into_data().unwrap_or_default());
                }
                Poll::Ready(None) => self.questions = None,
                Poll::Pending => {
                    ready!(self.closed.as_mut().poll(cx));
                    return Poll::Ready(Err(Status::new(Code::Unavailable, "shutting down")));
                }
            }
        }
    }
}

impl http_body::Body for Conversation {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.over {
            return Poll::Ready(None);
        }
        let frame = match ready!(self.poll_next(cx)) {
            Ok(message) => Frame::data(message),
            Err(status) => {
                self.over = true;
                Frame::trailers(trailers(&status))
            }
        };
        Poll::Ready(Some(Ok(frame)))
    }
}
