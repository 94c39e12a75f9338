//! Requests of OpenTelemetry: `ExportMetricsServiceRequest` in protobuf.
//!
//! A counter is a monotonic sum, cumulative or, with the tag `temporality="delta"`, of a delta; anything else is a
//! gauge, parts of histograms and summaries among them. Names and tags are as they are; the client is the attribute
//! `client` unless a tag is called so.

use super::super::{KeptLine, Kind, Number, read_line};
use crate::protobuf::{Fields, Malformed, Message};

const DELTA: u64 = 1;
const CUMULATIVE: u64 = 2;

/// The request for some lines.
#[must_use]
pub fn encode<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut scope = Message::default();
    for line in lines.filter_map(read_line) {
        scope.bytes(2, &metric(&line).0);
    }
    let mut resource = Message::default();
    resource.bytes(2, &scope.0);
    let mut request = Message::default();
    request.bytes(1, &resource.0);
    request.0
}

/// How many points a reply, `ExportMetricsServiceResponse`, says were rejected; 0 if it is no such reply.
#[must_use]
pub fn rejected(reply: &[u8]) -> u64 {
    let read = || {
        let mut rejected = 0;
        for field in Fields::of(reply) {
            if let (1, partial) = field? {
                for field in Fields::of(partial.bytes()?) {
                    if let (1, count) = field? {
                        // A number below 0 says nothing.
                        rejected = u64::try_from(count.int64()?).unwrap_or(0);
                    }
                }
            }
        }
        Ok::<_, Malformed>(rejected)
    };
    read().unwrap_or(0)
}

fn metric(line: &KeptLine<'_>) -> Message {
    let is_counter = line.kind == Kind::Counter;
    let is_delta = is_counter && line.tag("temporality") == Some("delta");
    let mut point = Message::default();
    let tags = line.tags.iter().map(|(name, value)| (&**name, &**value));
    let tags = tags.filter(|(name, _)| !(is_delta && *name == "temporality"));
    let client = line.tag("client").is_none().then_some(("client", &*line.client));
    for (name, value) in tags.chain(client) {
        let mut text = Message::default();
        text.bytes(1, value.as_bytes());
        let mut attribute = Message::default();
        attribute.bytes(1, name.as_bytes());
        attribute.bytes(2, &text.0);
        point.bytes(7, &attribute.0);
    }
    // A time before 1970 has no place in the protocol.
    let nanos = u64::try_from(line.millis).unwrap_or(0).saturating_mul(1_000_000);
    point.fixed64(3, nanos);
    match line.value {
        Number::Signed(number) => point.fixed64(6, number.cast_unsigned()),
        value => point.double(4, value.float()),
    }
    let mut data = Message::default();
    data.bytes(1, &point.0);
    if is_counter {
        data.unsigned(2, if is_delta { DELTA } else { CUMULATIVE });
        data.unsigned(3, 1);
    }
    let mut metric = Message::default();
    metric.bytes(1, line.name.as_bytes());
    metric.bytes(if is_counter { 7 } else { 5 }, &data.0);
    metric
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::metrics::otlp::read_request;
    use crate::metrics::{LineWriter, Metric};

    #[test]
    fn a_partial_success_is_read() {
        let counts = crate::metrics::otlp::ExportCounts { rejected: 3, ..Default::default() };
        assert_eq!(rejected(&crate::metrics::otlp::exported(&counts)), 3);
        let below_zero = b"\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        for other in [b"".as_slice(), b"\xff", b"plain text", below_zero] {
            assert_eq!(rejected(other), 0);
        }
    }

    proptest! {
        #[test]
        fn an_intake_keeps_the_line_that_was_sent(
            name in "\\PC{1,30}",
            value in any::<f64>().prop_filter("lines have none", |value| value.is_finite()),
            millis in 1i64..4_000_000_000_000,
            is_counter: bool,
            is_delta: bool,
            tags in proptest::collection::btree_map("[a-z.é]{1,9}", ".{0,9}", 0..5),
        ) {
            let kind = if is_counter { Kind::Counter } else { Kind::Gauge };
            let temporality = (is_delta && is_counter).then_some(("temporality", "delta"));
            let own = tags.iter().map(|(name, value)| (&**name, &**value)).filter(|(name, _)| *name != "client");
            let mut writer = LineWriter::new("web", 0, usize::MAX);
            let pairs = own.chain([("client", "web")]).chain(temporality);
            writer.write(&Metric { name: &name, value: value.into(), kind, millis: Some(millis), tags: pairs }).unwrap();
            let sent = writer.finish();
            let request = encode([&*sent.bytes].into_iter());
            let mut writer = LineWriter::new("web", 0, usize::MAX);
            let counts = read_request(&request, &mut writer).unwrap();
            prop_assert_eq!(counts.rejected, 0);
            let [sent, came]: [Value; 2] =
                [sent.bytes, writer.finish().bytes].map(|bytes| serde_json::from_slice(&bytes).unwrap());
            prop_assert_eq!(sent, came);
        }
    }
}
