//! A Redis URL, as `redis-cli -u` and clients take it:
//! `redis://[user[:password]@]host[:port]`, `rediss://` for TLS. User and password are
//! percent-encoded. A database number other than 0 is refused, because a Cluster has none.

use percent_encoding::percent_decode_str;
use thiserror::Error;

use super::config::{Address, RedisConfig, Secret, TlsConfig, Topology};

/// The port when the URL names none.
const DEFAULT_PORT: u16 = 6379;

/// Why a URL is no Redis URL. The URL itself is left out: it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    /// Neither `redis://` nor `rediss://`.
    #[error("the store's URL does not begin with redis:// or rediss://")]
    Scheme,
    /// No host, or a port that is no port.
    #[error("the store's URL has no host, or a port that is none")]
    Address,
    /// A database other than 0, or a query.
    #[error("the store's URL names a database other than 0, or has a query")]
    Path,
    /// An escape that is not UTF-8.
    #[error("the store's URL has a user or password that is not UTF-8")]
    Credentials,
}

impl RedisConfig {
    /// One server at `url`, with defaults for what a URL does not say.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn from_url(url: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::Scheme)?;
        let tls = match scheme {
            "redis" => None,
            "rediss" => Some(TlsConfig::default()),
            _ => return Err(UrlError::Scheme),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !matches!(path, "" | "0") || authority.contains(['?', '#']) {
            return Err(UrlError::Path);
        }
        let (credentials, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        Ok(Self {
            username: decoded(user)?,
            password: decoded(password)?.map(Secret),
            tls,
            ..Self::new(Topology::Single(address(place)?))
        })
    }
}

fn decoded(text: &str) -> Result<Option<String>, UrlError> {
    let text = percent_decode_str(text).decode_utf8().map_err(|_| UrlError::Credentials)?;
    Ok((!text.is_empty()).then(|| text.into_owned()))
}

/// `host`, `host:port`, `[::1]` or `[::1]:port`.
fn address(place: &str) -> Result<Address, UrlError> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or(UrlError::Address)?;
            (host, after.strip_prefix(':').unwrap_or(after))
        }
        None => place.split_once(':').unwrap_or((place, "")),
    };
    let port = if port.is_empty() { Ok(DEFAULT_PORT) } else { port.parse() };
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
        for (url, host, port, user, password, tls) in [
            ("redis://h", "h", 6379, None, None, false),
            ("redis://h:7000/0", "h", 7000, None, None, false),
            ("rediss://:p%40ss@h:1", "h", 1, None, Some("p@ss"), true),
            ("redis://u:a:b@[::1]:9", "::1", 9, Some("u"), Some("a:b"), false),
        ] {
            let config = RedisConfig::from_url(url).unwrap();
            let Topology::Single(address) = config.topology else { panic!("{url}") };
            assert_eq!((address.host.as_str(), address.port), (host, port), "{url}");
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
            ("redis://h/1", UrlError::Path),
            ("redis://h?x=1", UrlError::Path),
            ("redis://%ff@h", UrlError::Credentials),
        ] {
            assert_eq!(RedisConfig::from_url(url).unwrap_err(), error, "{url}");
        }
    }
}
