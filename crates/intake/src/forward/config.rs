//! A forward as it is configured, read from an entry of `[[intake.forward]]`.

use std::fmt;
use std::path::PathBuf;

use http::uri::Authority;
use serde::Deserialize;
use serde_json::Value;
use tidegate_algorithms::document::{DocumentReader, Mistake, shown};
use tidegate_upstream::endpoint::EndpointUrl;

/// The keys of an entry.
pub const FORWARD_KEYS: [&str; 6] = ["name", "to", "url", "token_file", "servers", "topic"];
/// Most forwards.
pub const MAX_FORWARDS: usize = 16;
/// Longest path of a file, in bytes.
const MAX_PATH: usize = 4_096;
/// Most servers of Kafka that are named; they name the others.
const MAX_SERVERS: usize = 16;
/// Longest name of a topic, in bytes: Kafka's own bound.
const MAX_TOPIC: usize = 249;
/// Longest address of a server, in bytes.
const MAX_SERVER: usize = 260;

const ACCEPTED: &str = "\"remote-write\", \"otlp\" or \"kafka\"";
const ACCEPTED_SERVER: &str = "a host and a port, as in \"127.0.0.1:9092\"";

/// Where lines are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct ForwardConfig {
    /// Its name, which no other forward has. What was delivered is remembered under it.
    pub name: String,
    /// The other side.
    pub to: Destination,
}

/// The other side of a forward.
#[derive(Clone, Debug, PartialEq)]
pub enum Destination {
    /// An endpoint of HTTP.
    Http(HttpDestination),
    /// A topic of Kafka.
    Kafka(KafkaTopic),
}

/// An endpoint of HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpDestination {
    /// What it speaks.
    pub protocol: HttpProtocol,
    /// Where it is.
    pub url: EndpointUrl,
    /// A file with the token that is sent as `authorization: Bearer`.
    pub token_file: Option<PathBuf>,
}

/// What an endpoint of HTTP speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpProtocol {
    /// Prometheus remote write 1.0.
    RemoteWrite,
    /// OpenTelemetry, in protobuf.
    Otlp,
}

/// A topic of Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaTopic {
    /// Some of its servers, each as `host:port`.
    pub servers: Vec<String>,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Destination {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(to) => to.url.fmt(out),
            Self::Kafka(topic) => write!(out, "topic {} at {}", topic.name, topic.servers.join(",")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ForwardKind {
    RemoteWrite,
    Otlp,
    Kafka,
}

impl ForwardConfig {
    /// Reads an entry, for a build that can forward to Kafka or cannot.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(value: &Value, pointer: &str, has_kafka: bool) -> Result<Self, Vec<Mistake>> {
        let mut reader = DocumentReader::new(value, pointer, &FORWARD_KEYS)?;
        let name = reader.name("name").map(str::to_owned);
        if reader.field("to").is_none() {
            reader.mistake("to", "is missing", ACCEPTED);
        }
        let to = reader.choice("to", ACCEPTED);
        let to = match to {
            Some(ForwardKind::Kafka) => topic(&mut reader, has_kafka).map(Destination::Kafka),
            Some(ForwardKind::RemoteWrite) => endpoint(&mut reader, HttpProtocol::RemoteWrite),
            Some(ForwardKind::Otlp) => endpoint(&mut reader, HttpProtocol::Otlp),
            None => None,
        };
        match (name, to) {
            (Some(name), Some(to)) if reader.mistakes.is_empty() => Ok(Self { name, to }),
            _ => Err(reader.mistakes),
        }
    }
}

fn endpoint(reader: &mut DocumentReader<'_>, protocol: HttpProtocol) -> Option<Destination> {
    foreign(reader, &["servers", "topic"], "only with to = \"kafka\"");
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
    Some(Destination::Http(HttpDestination { protocol, url: url?, token_file }))
}

fn topic(reader: &mut DocumentReader<'_>, has_kafka: bool) -> Option<KafkaTopic> {
    if !has_kafka {
        reader.mistake(
            "to",
            "is \"kafka\", and this build of tidegate has no Kafka",
            "\"remote-write\" or \"otlp\"; or a tidegate that is built by `cargo build --release --locked -p tidegate --features kafka`",
        );
    }
    foreign(reader, &["url", "token_file"], "not with to = \"kafka\", which has servers and a topic");
    let mut servers = Vec::new();
    for (index, server) in reader.texts("servers", MAX_SERVERS, 1, MAX_SERVER).into_iter().enumerate() {
        if is_server(server) {
            servers.push(server.to_owned());
        } else {
            reader.mistake(&format!("servers/{index}"), format!("is {server:?}"), ACCEPTED_SERVER);
        }
    }
    if reader.field("servers").is_none_or(|list| list.as_array().is_some_and(Vec::is_empty)) {
        reader.mistake("servers", "is missing or empty", format!("a list of them, each {ACCEPTED_SERVER}"));
    }
    let accepted = format!("1 to {MAX_TOPIC} of a-z, A-Z, 0-9, '.', '_', '-'");
    let name = reader.field("topic").map(|value| (value, value.as_str().filter(|name| is_topic(name))));
    match name {
        None => reader.mistake("topic", "is missing", accepted),
        Some((value, None)) => reader.mistake("topic", format!("is {}", shown(value)), accepted),
        Some((_, Some(name))) => return Some(KafkaTopic { servers, name: name.to_owned() }),
    }
    None
}

fn foreign(reader: &mut DocumentReader<'_>, fields: &[&str], accepted: &str) {
    for field in fields {
        if reader.field(field).is_some() {
            reader.mistake(field, "does not belong here", accepted);
        }
    }
}

/// Whether this is a host and a port, and nothing that the list of servers would be split at.
fn is_server(text: &str) -> bool {
    let authority = text.parse::<Authority>().ok().filter(|_| !text.contains(['@', ',']));
    authority.is_some_and(|it| !it.host().is_empty() && it.port_u16().is_some_and(|port| port > 0))
}

fn is_topic(name: &str) -> bool {
    (1..=MAX_TOPIC).contains(&name.len())
        && ![".", ".."].contains(&name)
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Result<ForwardConfig, Vec<Mistake>> {
        ForwardConfig::read(value, "/intake/forward/0", true)
    }

    /// The fields that have mistakes.
    fn wrong(value: &Value) -> Vec<String> {
        let mistakes = read(value).unwrap_err();
        mistakes.iter().map(|it| it.pointer.trim_start_matches("/intake/forward/0/").to_owned()).collect()
    }

    #[test]
    fn fault_52_an_entry_is_read_and_a_password_never_shown() {
        let good =
            json!({"name": "prometheus", "to": "remote-write", "url": "http://127.0.0.1:9090/api/v1/write"});
        let Destination::Http(to) = read(&good).unwrap().to else { panic!("it is HTTP") };
        assert_eq!((to.protocol, to.token_file), (HttpProtocol::RemoteWrite, None));
        let entry = json!({"name": "A", "to": "otlp", "url": "http://user:canary@host/", "token": "x"});
        let said = format!("{:?}", read(&entry).unwrap_err());
        assert!(["/name", "/url", "/token"].iter().all(|field| said.contains(field)), "{said}");
        assert!(!said.contains("canary"), "{said}");
        assert_eq!(wrong(&json!({})), ["name", "to"]);
        assert_eq!(wrong(&json!({"name": "a", "to": "carrier"})), ["to"]);
        assert_eq!(wrong(&json!({"name": "a", "to": "otlp"})), ["url"]);
        let mixed = json!({"name": "a", "to": "otlp", "url": "http://a/", "topic": "t", "servers": []});
        assert_eq!(wrong(&mixed), ["servers", "topic"]);
    }

    #[test]
    fn a_topic_has_servers_and_a_name_that_kafka_takes() {
        let entry = |servers: &[&str], topic: &str| json!({"name": "a", "to": "kafka", "servers": servers, "topic": topic});
        let good = entry(&["127.0.0.1:9092", "[::1]:9092", "kafka.example:9092"], "metrics.v1");
        let Destination::Kafka(topic) = read(&good).unwrap().to else { panic!("it is Kafka") };
        assert_eq!((topic.servers.len(), &*topic.name), (3, "metrics.v1"));
        let without = ForwardConfig::read(&good, "/intake/forward/0", false).unwrap_err();
        assert_eq!(without.len(), 1, "{without:?}");
        assert!(without[0].accepted.contains("--features kafka"), "{without:?}");
        for server in ["127.0.0.1", "127.0.0.1:0", "a:1,b:2", "PLAINTEXT://a:1", "u:p@a:1", ":9092", "a b:1"]
        {
            assert!(!is_server(server), "{server}");
        }
        for topic in ["", ".", "..", "a/b", "a b", "\u{e9}", &"t".repeat(250)] {
            assert!(!is_topic(topic), "{topic}");
        }
        let none = wrong(&json!({"name": "a", "to": "kafka", "url": "http://a/"}));
        assert_eq!(none, ["url", "servers", "topic"]);
    }
}
