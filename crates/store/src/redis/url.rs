//! A Redis URL, as `redis-cli -u` and clients take it, and the forms that some of them have for
//! more than one server:
//!
//! ```text
//! redis://[user[:password]@]host[:port][/0]                            one server
//! redis-sentinel://[user[:password]@]host[:port][,host[:port]]/master  the master they name
//! redis-cluster://[user[:password]@]host[:port][,host[:port]]          a Cluster, found through any
//! ```
//!
//! `rediss`, `rediss-sentinel` and `rediss-cluster` speak TLS, to Sentinels too, and take
//! `?ca=FILE` (who signed the servers' certificates, PEM; the system's roots if absent) and
//! `?cert=FILE&key=FILE` (for mTLS). User, password and query are percent-encoded; the password
//! is the servers', Sentinels are asked without one. A database number other than 0 is refused,
//! because a Cluster has none.

use std::{fs, io};

use percent_encoding::percent_decode_str;
use thiserror::Error;

use super::config::{Address, RedisConfig, Secret, TlsConfig, Topology};

/// The port of a server when the URL names none.
const DEFAULT_PORT: u16 = 6379;
/// The port of a Sentinel when the URL names none.
const SENTINEL_PORT: u16 = 26_379;
/// Most servers that a URL may name.
const MAX_ADDRESSES: usize = 64;

/// Why a URL is no Redis URL. The URL itself is left out: it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    /// None of the schemes.
    #[error(
        "the store's URL does not begin with redis://, redis-sentinel:// or redis-cluster:// (rediss... for TLS)"
    )]
    Scheme,
    /// No host, an invalid port, or too many hosts.
    #[error("the store's URL has no host, an invalid port, or more than {MAX_ADDRESSES} hosts")]
    Address,
    /// A database other than 0.
    #[error("the store's URL names a database other than 0")]
    Path,
    /// No master's name after the Sentinels.
    #[error("the store's URL names no master: redis-sentinel://host:port/master")]
    Master,
    /// An escape that is not UTF-8.
    #[error("the store's URL has a user, a password or a query that is not UTF-8")]
    Escape,
    /// A query with something else, or without TLS, or with half a pair.
    #[error("the store's URL has a query other than ca=FILE and cert=FILE&key=FILE with rediss")]
    Query,
    /// A file that cannot be read.
    #[error("the file that the store's URL names as {0} cannot be read: {1}")]
    File(&'static str, io::ErrorKind),
}

/// What stands at the other end, by the scheme.
#[derive(Clone, Copy)]
enum Form {
    Single,
    Sentinel,
    Cluster,
}

impl RedisConfig {
    /// What `url` names, with defaults for what a URL does not say. Reads the files that it names.
    ///
    /// # Errors
    /// What is wrong with the URL or a file.
    pub fn from_url(url: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::Scheme)?;
        let (form, secured) = match scheme {
            "redis" => (Form::Single, false),
            "rediss" => (Form::Single, true),
            "redis-sentinel" => (Form::Sentinel, false),
            "rediss-sentinel" => (Form::Sentinel, true),
            "redis-cluster" => (Form::Cluster, false),
            "rediss-cluster" => (Form::Cluster, true),
            _ => return Err(UrlError::Scheme),
        };
        // After the last '@', so that a password may hold a '?' or '/' that nobody escaped.
        let (credentials, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (places, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        Ok(Self {
            username: decoded(user)?,
            password: decoded(password)?.map(Secret),
            tls: tls(query, secured)?,
            ..Self::new(topology(form, places, path)?)
        })
    }
}

fn topology(form: Form, places: &str, path: &str) -> Result<Topology, UrlError> {
    let port = if matches!(form, Form::Sentinel) { SENTINEL_PORT } else { DEFAULT_PORT };
    let mut addresses = places.split(',').map(|place| address(place, port)).collect::<Result<Vec<_>, _>>()?;
    if addresses.len() > MAX_ADDRESSES {
        return Err(UrlError::Address);
    }
    match form {
        Form::Sentinel => {
            let master = decoded(path)?.filter(|name| !name.contains('/')).ok_or(UrlError::Master)?;
            Ok(Topology::Sentinel { sentinels: addresses, master })
        }
        _ if !matches!(path, "" | "0") => Err(UrlError::Path),
        Form::Cluster => Ok(Topology::Cluster { seeds: addresses }),
        Form::Single => match (addresses.pop(), addresses.is_empty()) {
            (Some(only), true) => Ok(Topology::Single(only)),
            _ => Err(UrlError::Address),
        },
    }
}

/// Reads the files that a query names.
fn tls(query: &str, secured: bool) -> Result<Option<TlsConfig>, UrlError> {
    let (mut ca, mut cert, mut key) = (None, None, None);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(UrlError::Query)?;
        let (name, slot) = match name {
            "ca" => ("ca", &mut ca),
            "cert" => ("cert", &mut cert),
            "key" => ("key", &mut key),
            _ => return Err(UrlError::Query),
        };
        let path = decoded(value)?.filter(|_| secured).ok_or(UrlError::Query)?;
        *slot = Some(fs::read(path).map_err(|error| UrlError::File(name, error.kind()))?);
    }
    let client = match (cert, key) {
        (None, None) => None,
        (Some(cert), Some(key)) => {
            let key =
                String::from_utf8(key).map_err(|_| UrlError::File("key", io::ErrorKind::InvalidData))?;
            Some((cert, Secret(key)))
        }
        _ => return Err(UrlError::Query),
    };
    Ok(secured.then_some(TlsConfig { root: ca, client }))
}

fn decoded(text: &str) -> Result<Option<String>, UrlError> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| UrlError::Escape)?;
    Ok((!text.is_empty()).then(|| text.into_owned()))
}

/// `host`, `host:port`, `[::1]` or `[::1]:port`.
fn address(place: &str, default_port: u16) -> Result<Address, UrlError> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or(UrlError::Address)?;
            (host, after.strip_prefix(':').unwrap_or(after))
        }
        None => place.split_once(':').unwrap_or((place, "")),
    };
    let port = if port.is_empty() { Ok(default_port) } else { port.parse() };
    match port {
        Ok(port) if !host.is_empty() && port > 0 => Ok(Address { host: host.to_owned(), port }),
        _ => Err(UrlError::Address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_as_written() {
        for (url, places, user, password, tls) in [
            ("redis://h", "Single h:6379", None, None, false),
            ("redis://h:7000/0", "Single h:7000", None, None, false),
            ("rediss://:p%40ss@h:1", "Single h:1", None, Some("p@ss"), true),
            ("redis://u:a:b@[::1]:9", "Single ::1:9", Some("u"), Some("a:b"), false),
            ("redis://u:a/b?c@h", "Single h:6379", Some("u"), Some("a/b?c"), false),
            ("redis-sentinel://h,i:1/my%20master", "Sentinel h:26379 i:1 my master", None, None, false),
            ("rediss-sentinel://u@[::1]/m", "Sentinel ::1:26379 m", Some("u"), None, true),
            ("redis-cluster://h:1,i", "Cluster h:1 i:6379", None, None, false),
            ("rediss-cluster://u:p@h/0", "Cluster h:6379", Some("u"), Some("p"), true),
        ] {
            let config = RedisConfig::from_url(url).unwrap();
            let (form, mut words) = match config.topology {
                Topology::Single(address) => ("Single", vec![address.to_string()]),
                Topology::Cluster { seeds } => ("Cluster", seeds.iter().map(ToString::to_string).collect()),
                Topology::Sentinel { sentinels, master } => {
                    let mut words: Vec<_> = sentinels.iter().map(ToString::to_string).collect();
                    words.push(master);
                    ("Sentinel", words)
                }
            };
            words.insert(0, form.to_owned());
            assert_eq!(words.join(" "), places, "{url}");
            assert_eq!(config.username.as_deref(), user, "{url}");
            assert_eq!(config.password.map(|secret| secret.0).as_deref(), password, "{url}");
            assert_eq!(config.tls.is_some(), tls, "{url}");
        }
    }

    #[test]
    fn what_is_no_url_of_redis_is_refused_without_being_shown() {
        for (url, error) in [
            ("http://h", UrlError::Scheme),
            ("h:6379", UrlError::Scheme),
            ("redis://", UrlError::Address),
            ("redis://h:0", UrlError::Address),
            ("redis://h:99999", UrlError::Address),
            ("redis://[::1", UrlError::Address),
            ("redis://h,i", UrlError::Address),
            ("redis-cluster://h,,i", UrlError::Address),
            ("redis://h/1", UrlError::Path),
            ("redis-cluster://h/1", UrlError::Path),
            ("redis-sentinel://h", UrlError::Master),
            ("redis-sentinel://h/a/b", UrlError::Master),
            ("rediss://h?x=1", UrlError::Query),
            ("redis://h?ca=/x", UrlError::Query),
            ("rediss://h?ca", UrlError::Query),
            ("rediss://h?ca=/nowhere/x", UrlError::File("ca", io::ErrorKind::NotFound)),
            ("redis://%ff@h", UrlError::Escape),
        ] {
            assert_eq!(RedisConfig::from_url(url).unwrap_err(), error, "{url}");
        }
    }
}
