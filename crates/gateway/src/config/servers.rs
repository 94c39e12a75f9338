//! The servers of an upstream: where they are, and what is spoken with them.

use std::io::Read;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use http::Uri;
use serde_json::Value;
use tidegate_algorithms::document::shown;
use tidegate_upstream::backend::{BackendSettings, Host, Target};
use tidegate_upstream::client_pair::{ClientPairError, ClientPairFiles};
use tidegate_upstream::tls::{TlsClient, TlsError, TlsSettings};
use tidegate_wire::tls_version::TlsVersion;

use super::part::KeyReader;

/// Most bytes of a file of authorities.
const MAX_CA_BYTES: u64 = 1 << 20;

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where it is, and what it may carry.
    pub backend: BackendSettings,
    /// Whether TLS is spoken with it.
    pub is_tls: bool,
}

/// What is spoken with servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2, without TLS from the first byte.
    Http2,
    /// Over TLS what the server prefers, else HTTP/1.1.
    Auto,
}

pub(super) fn servers(reader: &mut KeyReader<'_>, most_requests: u32) -> Vec<ServerConfig> {
    let accepted = "a list of URLs, or of objects with a url: http://host:port or https://host:port";
    let values = reader.list("servers");
    if values.is_empty() && reader.field("app").is_none() {
        reader.mistake("servers", "has no entry", accepted);
    }
    let mut servers = Vec::new();
    for (index, value) in values.iter().enumerate() {
        let field = format!("servers/{index}");
        let (url, weight, hard_limit) = match value {
            Value::Object(_) => {
                let stated = reader.entry("servers", &field, value, |server| {
                    let weight = server.limit("weight").unwrap_or(1);
                    let most = server.limit("max_requests").unwrap_or(most_requests);
                    (server.field("url").unwrap_or(&Value::Null), weight, most)
                });
                let Some(stated) = stated else { continue };
                stated
            }
            url => (url, 1, most_requests),
        };
        match url.as_str().and_then(target) {
            Some((target, is_tls)) => {
                let backend = BackendSettings { target, weight, hard_limit };
                servers.push(ServerConfig { backend, is_tls });
            }
            None => reader.mistake(&field, format!("is {}", shown(url)), accepted),
        }
    }
    servers
}

/// `http://host:port`, `https://host:port`, or `host:port`, without a path; and whether TLS is spoken there. A word alone may
/// be anything, so without a scheme there must be a port.
fn target(url: &str) -> Option<(Target, bool)> {
    let has_scheme = url.contains("://");
    let url = if has_scheme { url.to_owned() } else { format!("http://{url}") };
    let uri: Uri = url.parse().ok()?;
    let authority = uri.authority()?;
    let path_is_empty = matches!(uri.path_and_query().map(http::uri::PathAndQuery::as_str), None | Some("/"));
    let is_tls = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return None,
    };
    if !path_is_empty || authority.as_str().contains('@') {
        return None;
    }
    let host = authority.host();
    // What is no number of a port, or too large for one, is no port at all to `authority`.
    let port: u16 = match authority.as_str().strip_prefix(host)? {
        "" if is_tls => 443,
        "" if has_scheme => 80,
        port => {
            let digits = port.strip_prefix(':').filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
            digits?.parse().ok()?
        }
    };
    if host.is_empty() || port == 0 {
        return None;
    }
    let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => Host::Address(address.parse::<Ipv6Addr>().ok()?.into()),
        None => match host.parse::<IpAddr>() {
            Ok(address) => Host::Address(address),
            Err(_) => Host::Name(host.to_ascii_lowercase().into()),
        },
    };
    Some((Target { host, port }, is_tls))
}

/// Addresses of this machine that connections begin at. Each server that has an address must be reached from one of them.
pub(super) fn sources(reader: &mut KeyReader<'_>, servers: &[ServerConfig]) -> Vec<IpAddr> {
    let mut sources: Vec<IpAddr> = Vec::new();
    for (index, text) in reader.texts("sources").into_iter().enumerate() {
        match text.parse::<IpAddr>() {
            Ok(source)
                if !source.is_unspecified() && !source.is_multicast() && !sources.contains(&source) =>
            {
                sources.push(source);
            }
            _ => {
                let accepted = "addresses of this machine, each once";
                reader.mistake(&format!("sources/{index}"), format!("is {text:?}"), accepted);
            }
        }
    }
    let has_none = |server: &&ServerConfig| match &server.backend.target.host {
        Host::Address(ip) => !sources.iter().any(|source| source.is_ipv4() == ip.is_ipv4()),
        Host::Name(_) => false,
    };
    if !sources.is_empty()
        && let Some(server) = servers.iter().find(has_none)
    {
        let problem = format!("has none from which {} can be reached", server.backend.target);
        reader.mistake("sources", problem, "one of the same version of IP");
    }
    sources
}

/// Where a document comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The configuration file, whose writer may read this machine's files.
    File,
    /// The admin API: its callers may not be allowed to read the file, so files that they name are not looked at.
    Stored,
}

/// TLS for the servers that want it. Its files are read here, so that a bad one is a mistake like any other.
pub(super) fn tls(
    reader: &mut KeyReader<'_>,
    servers: &[ServerConfig],
    protocol: Protocol,
    source: Source,
) -> Option<TlsClient> {
    let is_wanted = servers.iter().any(|server| server.is_tls);
    if reader.field("tls").is_some() && !is_wanted {
        reader.mistake("tls", "has no effect", "a server of https:// beside it");
    }
    let protocols = match protocol {
        Protocol::Http1 => vec!["http/1.1"],
        Protocol::Http2 => vec!["h2"],
        Protocol::Auto => vec!["h2", "http/1.1"],
    };
    let stated = reader.part("tls", |inner| {
        let authorities = authorities(inner, source);
        let server_name = inner.text("server_name").map(Box::from);
        let client = client_pair(inner, source);
        let min_version = inner.choice::<TlsVersion>("min_version").unwrap_or_default();
        TlsSettings { authorities, server_name, protocols: Vec::new(), client, min_version }
    });
    if !is_wanted || !reader.mistakes.is_empty() {
        return None;
    }
    match TlsClient::new(TlsSettings { protocols, ..stated.unwrap_or_default() }) {
        Ok(client) => Some(client),
        Err(error) => {
            let has_text = reader.field("tls").is_some_and(|tls| tls.get("ca").is_some());
            let (field, accepted) = match &error {
                TlsError::Name => ("tls/server_name", "a name that a certificate could be for"),
                TlsError::Client(error) => of_client_pair(error),
                _ if has_text => ("tls/ca", "certificates in PEM"),
                _ => ("tls/ca_file", "certificates in PEM"),
            };
            reader.mistake(field, error.to_string(), accepted);
            None
        }
    }
}

/// The field of a client's certificate that is wrong, and what it may be.
fn of_client_pair(error: &ClientPairError) -> (&'static str, &'static str) {
    if error.is_of_key() {
        ("tls/key_file", "the key of certificate_file, in PEM and not encrypted")
    } else {
        ("tls/certificate_file", "a certificate in PEM")
    }
}

/// The authorities in PEM, if they are stated.
fn authorities(tls: &mut KeyReader<'_>, source: Source) -> Option<Box<[u8]>> {
    let text = tls.text("ca");
    let Some(file) = tls.text("ca_file") else {
        return text.map(|text| text.as_bytes().into());
    };
    if text.is_some() {
        tls.mistake("ca_file", "stands beside ca", "one of the two");
    } else if source == Source::Stored {
        let problem = "names a file, which only the configuration file may";
        tls.mistake("ca_file", problem, "ca, with the certificates themselves");
    } else {
        match read_bounded(file) {
            Ok(bytes) => return Some(bytes.into()),
            Err(error) => {
                let problem = format!("{file:?} cannot be read: {error}");
                tls.mistake("ca_file", problem, "a file of certificates in PEM");
            }
        }
    }
    None
}

/// The files of the certificate that servers are shown, if they are stated.
fn client_pair(tls: &mut KeyReader<'_>, source: Source) -> Option<ClientPairFiles> {
    let certificate = tls.text("certificate_file");
    let key = tls.text("key_file");
    for (field, stated, other) in
        [("certificate_file", certificate, "key_file"), ("key_file", key, "certificate_file")]
    {
        if stated.is_some() && source == Source::Stored {
            let problem = "names a file, which only the configuration file may";
            tls.mistake(field, problem, "an upstream of the configuration file");
        } else if tls.field(field).is_none() && tls.field(other).is_some() {
            tls.mistake(field, "is missing", "a file for each of the two");
        }
    }
    let (certificate, key) = certificate.zip(key)?;
    Some(ClientPairFiles { certificate: PathBuf::from(certificate), key: PathBuf::from(key) })
}

/// A small file, whole: at most [`MAX_CA_BYTES`].
pub(super) fn read_bounded(file: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(MAX_CA_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_CA_BYTES {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    Ok(bytes)
}
