//! HTTP/1.1 for the tester, and replies for the gateway too: request templates out, replies in, with no socket in sight.
//!
//! ```text
//!   template   text with variables  ->  request bytes in a reused buffer
//!   response   reply bytes in any pieces  ->  status, framing, keep-alive, body parts
//!   request    request head  ->  method, path, length (what the stub needs, no more)
//!   head       lines and framing fields, shared by both directions
//!   chunked    the chunked coding as a state machine
//! ```
//!
//! Written by hand because load generation is what the tester exists for: a reply costs one pass
//! over its head with `memchr`, nothing is allocated, and fields that do not frame the message are
//! only checked for their colon. Reference: RFC 9112.
//!
//! Deliberately absent: pipelining (a connection has one request in flight, or latency would have
//! no meaning), upgrade, and content codings.

mod chunked;
mod head;
mod request;
mod response;
mod template;

pub use head::{HeadError, headers};
pub use request::{RequestHead, scan_request};
pub use response::{Limits, Read, ResponseError, ResponseReader, Visit};
pub use template::{RequestTemplate, TemplateError, Text, Values, Variable};
