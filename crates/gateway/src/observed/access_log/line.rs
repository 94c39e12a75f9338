//! A line of the access log. What clients wrote is cut and escaped, so that no request can make a line of its own.

use std::fmt::Write;

use http::Version;
use http::header::HeaderValue;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_algorithms::time::Wall;

use crate::authentication::identity::Identity;
use crate::observed::record::RequestRecord;

/// Most bytes that are kept of a target, and of each field.
const MAX_TARGET_BYTES: usize = 2_048;
const MAX_FIELD_BYTES: usize = 512;

#[derive(Serialize)]
struct JsonLine<'a> {
    time: String,
    client: std::net::IpAddr,
    method: &'a str,
    host: &'a str,
    target: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    protocol: &'static str,
    status: u16,
    bytes: u64,
    duration_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    attempts: usize,
    end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer: Option<&'a str>,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    referer: &'a str,
    user_agent: &'a str,
    trace: &'a str,
}

/// Appends a record as a JSON object.
pub(super) fn json(record: &RequestRecord, line: &mut String) {
    let mut trace = String::with_capacity(512);
    record.trace(&mut trace);
    let (last, attempts) = record.attempts();
    let server = last.and_then(|(upstream, server)| upstream.config.servers.get(server));
    let target = target(record);
    let [host, request_id, referer, user_agent] =
        [&record.asked.host, &record.request_id, &record.asked.referer, &record.asked.user_agent].map(field);
    let object = JsonLine {
        time: time(record.came).map(|time| format!("{time:.3}")).unwrap_or_default(),
        client: record.client,
        method: record.asked.method.as_str(),
        host: &host,
        target: cut(&target, MAX_TARGET_BYTES),
        path: record.path.as_deref().map(|path| cut(path, MAX_TARGET_BYTES)),
        protocol: protocol(record.asked.version),
        status: record.status,
        bytes: record.bytes,
        duration_ms: record.took().as_micros() as f64 / 1_000.0,
        route: record.route.as_ref().map(|route| &*route.config.name),
        upstream: last.map(|(upstream, _)| &*upstream.config.name),
        server: server.map(|server| server.backend.target.to_string()),
        attempts,
        end: record.end.word(),
        because: record.refusal,
        key: record.identity.as_ref().and_then(Identity::key),
        consumer: record.identity.as_ref().and_then(Identity::consumer),
        request_id: &request_id,
        trace_id: record.trace_id.map(|id| id.to_string()),
        referer: &referer,
        user_agent: &user_agent,
        trace: &trace,
    };
    // Plain values with string keys always serialise.
    line.push_str(&serde_json::to_string(&object).unwrap_or_default());
}

/// Appends a record in the combined format, its trace in quotes at the end.
pub(super) fn combined(record: &RequestRecord, line: &mut String) {
    let time = time(record.came).map(|time| time.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string());
    // Invariant, here and below: writing to a String cannot fail.
    let _infallible = write!(line, "{} - - [{}] \"", record.client, time.unwrap_or_default());
    line.push_str(record.asked.method.as_str());
    line.push(' ');
    escaped(cut(&target(record), MAX_TARGET_BYTES), line);
    let (protocol, status, bytes) = (protocol(record.asked.version), record.status, record.bytes);
    let _infallible = write!(line, " {protocol}\" {status} {bytes} ");
    for text in [&record.asked.referer, &record.asked.user_agent] {
        line.push('"');
        match text {
            Some(_) => escaped(&field(text), line),
            None => line.push('-'),
        }
        line.push_str("\" ");
    }
    let mut trace = String::with_capacity(512);
    record.trace(&mut trace);
    line.push('"');
    escaped(&trace, line);
    line.push('"');
}

fn time(wall: Wall) -> Option<Timestamp> {
    Timestamp::from_nanosecond(i128::from(wall.0)).ok()
}

fn target(record: &RequestRecord) -> String {
    record.asked.target.path_and_query().map_or_else(String::new, ToString::to_string)
}

/// A field's value as text, cut.
pub(crate) fn field(value: &Option<HeaderValue>) -> String {
    let bytes = value.as_ref().map(HeaderValue::as_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_FIELD_BYTES)]);
    // JSON has these as they are, and a terminal that shows the log would obey them.
    text.replace(|c: char| c.is_control() && !c.is_ascii(), "\u{fffd}")
}

/// The text, or as many whole characters of it as fit in so many bytes.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

/// Appends a text as nginx writes it in quotes.
fn escaped(text: &str, line: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' | 0..0x20 | 0x7f.. => {
                // Invariant: writing to a String cannot fail.
                let _infallible = write!(line, "\\x{byte:02X}");
            }
            plain => line.push(plain.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_13_what_is_in_quotes_stays_there() {
        let mut line = String::new();
        escaped("a\"b\\c\r\nd\u{7f}\u{e9}", &mut line);
        assert_eq!(line, "a\\x22b\\x5Cc\\x0D\\x0Ad\\x7F\\xC3\\xA9");
        assert_eq!(cut("a\u{e9}b", 2), "a");
        let hostile = HeaderValue::from_bytes("a\u{9b}2J\tb\u{e9}".as_bytes()).unwrap();
        assert_eq!(field(&Some(hostile)), "a\u{fffd}2J\tb\u{e9}");
    }
}
