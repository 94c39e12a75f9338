//! OTLP of this process: its spans and its metrics page, in protobuf.
//!
//! Fields are written one by one, as the intake's forwards write theirs: a dozen messages of the protocol are needed, all of
//! them only for writing. Follows opentelemetry-proto 1.x: `trace/v1/trace.proto`, `metrics/v1/metrics.proto`.

pub mod page;
pub mod spans;

pub use crate::metrics::forward::otlp::rejected;
use crate::protobuf::Message;

/// What is said of the process in each request: `service.name` and the like.
pub type Resource<'a> = &'a [(&'a str, &'a str)];

/// What the spans and metrics were made by.
const SCOPE: &str = "tidegate";

/// A request with one resource and one scope: `fill` adds what is in that.
fn request(resource: Resource<'_>, fill: impl FnOnce(&mut Message)) -> Vec<u8> {
    let mut about = Message::default();
    for (name, value) in resource {
        text_attribute(&mut about, 1, name, value);
    }
    let mut scope = Message::default();
    scope.bytes(1, SCOPE.as_bytes());
    scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
    let mut scoped = Message::default();
    scoped.bytes(1, &scope.0);
    fill(&mut scoped);
    let mut of_resource = Message::default();
    of_resource.bytes(1, &about.0);
    of_resource.bytes(2, &scoped.0);
    let mut request = Message::default();
    request.bytes(1, &of_resource.0);
    request.0
}

/// A `KeyValue` with a text, as field `field` of `message`.
fn text_attribute(message: &mut Message, field: u64, name: &str, value: &str) {
    let mut any = Message::default();
    any.bytes(1, value.as_bytes());
    attribute(message, field, name, &any);
}

/// A `KeyValue` with a number.
fn number_attribute(message: &mut Message, field: u64, name: &str, value: u64) {
    let mut any = Message::default();
    any.unsigned(3, value);
    attribute(message, field, name, &any);
}

fn attribute(message: &mut Message, field: u64, name: &str, any: &Message) {
    let mut pair = Message::default();
    pair.bytes(1, name.as_bytes());
    pair.bytes(2, &any.0);
    message.bytes(field, &pair.0);
}
