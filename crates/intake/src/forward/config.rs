//! A forward as it is configured, read from an entry of `[[intake.forward]]`.

use std::path::PathBuf;

use http::{HeaderName, HeaderValue, header};
use serde::Deserialize;
use serde_json::Value;
use tidegate_algorithms::document::{DocumentReader, Mistake, shown};

use crate::endpoint::EndpointUrl;

/// The keys of an entry.
pub const FORWARD_KEYS: [&str; 4] = ["name", "to", "url", "token_file"];
/// Most forwards.
pub const MAX_FORWARDS: usize = 16;
/// Longest path of a file, in bytes.
const MAX_PATH: usize = 4_096;

/// What the other side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Destination {
    /// Prometheus remote write 1.0.
    RemoteWrite,
    /// OpenTelemetry over HTTP, in protobuf.
    Otlp,
}

impl Destination {
    const ACCEPTED: &str = "\"remote-write\" or \"otlp\"";

    /// The fields of a request, its compression among them.
    pub(super) fn fields(self) -> Vec<(HeaderName, HeaderValue)> {
        let protobuf = (header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        match self {
            Self::RemoteWrite => {
                let version = HeaderName::from_static("x-prometheus-remote-write-version");
                vec![
                    protobuf,
                    (header::CONTENT_ENCODING, HeaderValue::from_static("snappy")),
                    (version, HeaderValue::from_static("0.1.0")),
                ]
            }
            Self::Otlp => vec![protobuf],
        }
    }
}

/// Where lines are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardConfig {
    /// Its name, which no other forward has. What was delivered is remembered under it.
    pub name: String,
    /// What the other side speaks.
    pub to: Destination,
    /// Where it is.
    pub url: EndpointUrl,
    /// A file with the token that is sent as `authorization: Bearer`.
    pub token_file: Option<PathBuf>,
}

impl ForwardConfig {
    /// Reads an entry.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(value: &Value, pointer: &str) -> Result<Self, Vec<Mistake>> {
        let mut reader = DocumentReader::new(value, pointer, &FORWARD_KEYS)?;
        let name = reader.name("name").map(str::to_owned);
        if reader.field("to").is_none() {
            reader.mistake("to", "is missing", Destination::ACCEPTED);
        }
        let to = reader.choice("to", Destination::ACCEPTED);
        let url = reader.field("url").and_then(Value::as_str).and_then(EndpointUrl::parse);
        if url.is_none() {
            // A URL that is wrong may carry a password, so it is not shown.
            let problem = match reader.field("url") {
                None => "is missing".to_owned(),
                Some(Value::String(_)) => "is no such URL".to_owned(),
                Some(other) => format!("is {}", shown(other)),
            };
            reader.mistake("url", problem, EndpointUrl::ACCEPTED);
        }
        let token_file = reader.text("token_file", 1, MAX_PATH).map(PathBuf::from);
        match (name, to, url) {
            (Some(name), Some(to), Some(url)) if reader.mistakes.is_empty() => {
                Ok(Self { name, to, url, token_file })
            }
            _ => Err(reader.mistakes),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fault_52_an_entry_is_read_and_a_password_never_shown() {
        let good =
            json!({"name": "prometheus", "to": "remote-write", "url": "http://127.0.0.1:9090/api/v1/write"});
        let read = ForwardConfig::read(&good, "/intake/forward/0").unwrap();
        assert_eq!((read.to, read.token_file), (Destination::RemoteWrite, None));
        let wrong = json!({"name": "A", "to": "kafka", "url": "http://user:canary@host/", "token": "x"});
        let mistakes = ForwardConfig::read(&wrong, "/intake/forward/0").unwrap_err();
        let said = format!("{mistakes:?}");
        assert!(["/name", "/to", "/url", "/token"].iter().all(|field| said.contains(field)), "{said}");
        assert!(!said.contains("canary"), "{said}");
        assert_eq!(ForwardConfig::read(&json!({}), "/p").unwrap_err().len(), 3);
    }
}
