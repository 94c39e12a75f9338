//! `check` of an upstream: what its servers are asked for in the background, and which answers are good.

use std::time::Duration;

use http::uri::{Authority, PathAndQuery};
use http::{HeaderName, HeaderValue};
use tidegate_algorithms::balance::eligibility::Thresholds;
use tidegate_algorithms::time::SECOND;

use super::pairs::field_pairs;
use super::part::KeyReader;
use super::servers::Protocol;

/// How servers are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckConfig {
    /// What is asked for.
    pub probe: Probe,
    /// The host that is asked for; `None`: the server's own, with its port.
    pub host: Option<HeaderValue>,
    /// Further fields of the request.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// Time between two checks of one server.
    pub interval: Duration,
    /// Longest that a check may take.
    pub timeout: Duration,
    /// How many results in a row change a verdict.
    pub thresholds: Thresholds,
    /// The status that passes; `None`: any from 200 to 299.
    pub status: Option<u16>,
}

/// What a check asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// That the server accepts a connection.
    Connection,
    /// This path, with GET.
    Path(PathAndQuery),
    /// The health of this service, by gRPC; empty: of the server.
    Grpc(Box<str>),
}

pub(super) fn check(reader: &mut KeyReader<'_>, protocol: Protocol) -> CheckConfig {
    let probe = probe(reader, protocol);
    let (host, fields) = (host(reader), fields(reader));
    if probe == Probe::Connection {
        for key in ["host", "fields"] {
            // A path with a mistake is one all the same.
            if reader.field(key).is_some()
                && ["path", "grpc"].iter().all(|other| reader.field(other).is_none())
            {
                reader.mistake(key, "has no effect: a connection is enough", "path or grpc beside it");
            }
        }
    }
    let thresholds = Thresholds::default();
    let nanos = |seconds: Option<u64>, otherwise: u64| Duration::from_nanos(seconds.unwrap_or(otherwise));
    CheckConfig {
        probe,
        host,
        fields,
        interval: nanos(reader.seconds("interval_seconds"), 10 * SECOND),
        timeout: nanos(reader.seconds("timeout_seconds"), 5 * SECOND),
        thresholds: Thresholds {
            rise: reader.limit("rise").unwrap_or(thresholds.rise),
            fall: reader.limit("fall").unwrap_or(thresholds.fall),
        },
        status: reader.number("status").and_then(|status| u16::try_from(status).ok()),
    }
}

fn probe(reader: &mut KeyReader<'_>, protocol: Protocol) -> Probe {
    let path = reader.text("path").and_then(|path| {
        let parsed = path.parse().ok().filter(|_| path.starts_with('/'));
        if parsed.is_none() {
            reader.mistake("path", format!("is {path:?}"), "a path that begins with a slash");
        }
        parsed
    });
    let grpc = reader.text("grpc");
    if grpc.is_some() && protocol != Protocol::Http2 {
        reader.mistake("grpc", "has no effect", "protocol = \"http2\" beside it");
    }
    match (path, grpc) {
        (Some(_), Some(_)) => {
            reader.mistake("grpc", "stands beside path", "one of the two");
            Probe::Connection
        }
        (Some(path), None) => Probe::Path(path),
        (None, Some(service)) => Probe::Grpc(service.into()),
        (None, None) => Probe::Connection,
    }
}

/// A name or an address, with or without a port: what `Host` may be, and `:authority`.
fn host(reader: &mut KeyReader<'_>) -> Option<HeaderValue> {
    let text = reader.text("host")?;
    let is_host = text.parse::<Authority>().is_ok_and(|it| !it.host().is_empty() && !text.contains('@'));
    let host = HeaderValue::from_str(text).ok().filter(|_| is_host);
    if host.is_none() {
        reader.mistake("host", format!("is {text:?}"), "a host, with or without a port: \"shop.example\"");
    }
    host
}

fn fields(reader: &mut KeyReader<'_>) -> Vec<(HeaderName, HeaderValue)> {
    let fields = field_pairs(reader, "fields");
    if fields.iter().any(|(name, _)| *name == http::header::HOST) {
        reader.mistake("fields", "has \"host\"", "the key host for it");
    }
    fields
}
