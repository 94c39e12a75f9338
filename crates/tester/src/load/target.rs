//! Where load goes, from a URL.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use thiserror::Error;

/// How long one of several addresses of a name is tried.
const PROBE: Duration = Duration::from_secs(1);

/// A target, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What the URL asks to be spoken.
    pub scheme: Scheme,
    /// Whether within TLS.
    pub tls: bool,
    /// Host and port as the Host field has them.
    pub host: String,
    /// Host name or address, brackets removed.
    pub name: String,
    /// Port, the scheme's own if the URL has none.
    pub port: u16,
    /// Path and query, at least `/`.
    pub path: String,
}

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `http://`, `https://`: HTTP/1.1, unless the scenario asks for HTTP/2.
    Http,
    /// `h2c://` (prior knowledge), `h2://` (TLS).
    Http2,
    /// `grpc://`, `grpcs://` (TLS); the path is `/Service/Method`.
    Grpc,
    /// `tcp://`, `tls://`
    Tcp,
    /// `redis://` or `resp://`, `rediss://` (TLS).
    Resp,
}

/// Prefix, what is spoken, whether within TLS, default port (0: there is none).
const SCHEMES: [(&str, Scheme, bool, u16); 11] = [
    ("http://", Scheme::Http, false, 80),
    ("https://", Scheme::Http, true, 443),
    ("h2c://", Scheme::Http2, false, 80),
    ("h2://", Scheme::Http2, true, 443),
    ("grpc://", Scheme::Grpc, false, 80),
    ("grpcs://", Scheme::Grpc, true, 443),
    ("tcp://", Scheme::Tcp, false, 0),
    ("tls://", Scheme::Tcp, true, 0),
    ("redis://", Scheme::Resp, false, 6379),
    ("resp://", Scheme::Resp, false, 6379),
    ("rediss://", Scheme::Resp, true, 6379),
];

/// Why a URL is no target.
#[derive(Debug, Error)]
pub enum TargetError {
    /// Another scheme.
    #[error(
        "{0:?} is not a target: http://, https://, h2c://, h2://, grpc://, grpcs://, tcp://, tls://, \
         redis:// or rediss:// and a host are needed"
    )]
    Scheme(String),
    /// The port is no number from 1 to 65535.
    #[error("{0:?} has no valid port (1 to 65535)")]
    Port(String),
    /// The name has no address.
    #[error("{name:?} has no address: {source}")]
    Name {
        /// Host name.
        name: String,
        /// What the resolver said.
        source: io::Error,
    },
}

impl Target {
    /// Takes a URL apart. A fragment is dropped; user names are not supported.
    ///
    /// # Errors
    /// When the scheme, the host or the port is not one.
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let bad = || TargetError::Scheme(url.to_owned());
        let (scheme, tls, default_port, rest) = SCHEMES
            .iter()
            .find_map(|&(prefix, scheme, tls, port)| Some((scheme, tls, port, url.strip_prefix(prefix)?)))
            .ok_or_else(bad)?;
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        if host.is_empty() || host.contains('@') {
            return Err(bad());
        }
        let after_bracket = host.rfind(']').map_or(0, |at| at + 1);
        let (name, port) = match host[after_bracket..].rfind(':') {
            Some(colon) => {
                let (name, port) = host.split_at(after_bracket + colon);
                (name, port[1..].parse().map_err(|_| TargetError::Port(url.to_owned()))?)
            }
            None => (host, default_port),
        };
        if port == 0 {
            return Err(TargetError::Port(url.to_owned()));
        }
        let name = name.trim_start_matches('[').trim_end_matches(']');
        if name.is_empty() {
            return Err(bad());
        }
        let path = match path {
            "" => "/".to_owned(),
            query if query.starts_with('?') => format!("/{query}"),
            path => path.to_owned(),
        };
        Ok(Self { scheme, tls, host: host.to_owned(), name: name.to_owned(), port, path })
    }

    /// Bytes to be echoed, for a path of `/echo` (64) or `/echo?bytes=N`; none for any other.
    #[must_use]
    pub fn echo_bytes(&self) -> Option<u32> {
        let rest = self.path.strip_prefix("/echo")?;
        let bytes = rest.strip_prefix("?bytes=").map_or(Some(64), |number| number.parse().ok())?;
        Some(u32::clamp(bytes, 1, 1 << 20))
    }

    /// The address of the name; of several, IPv4 before IPv6, the first that takes a connection. It is looked up once: a run that
    /// resolved names as it went would measure the resolver.
    ///
    /// # Errors
    /// When the name has no address.
    pub fn resolve(&self) -> Result<SocketAddr, TargetError> {
        let failed = |source| TargetError::Name { name: self.name.clone(), source };
        let all = self.addresses().map_err(failed)?;
        let takes_connections = |address: &&SocketAddr| TcpStream::connect_timeout(address, PROBE).is_ok();
        let first = match all.as_slice() {
            [] | [_] => all.first(),
            several => several.iter().find(takes_connections).or_else(|| several.first()),
        };
        first.copied().ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
    }

    /// All addresses, those of IPv4 first. `localhost` is both loopback addresses, whatever the system's file of hosts says
    /// (RFC 6761, 6.3).
    fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        if self.name.eq_ignore_ascii_case("localhost") {
            let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            return Ok(loopback.map(|address| SocketAddr::new(address, self.port)).to_vec());
        }
        let mut all: Vec<SocketAddr> = (self.name.as_str(), self.port).to_socket_addrs()?.collect();
        all.sort_by_key(SocketAddr::is_ipv6);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let parts = |url: &str| {
            let target = Target::parse(url).unwrap();
            (target.host, target.name, target.port, target.path)
        };
        let of = |host: &str, name: &str, port, path: &str| (host.into(), name.into(), port, path.into());
        assert_eq!(parts("http://a"), of("a", "a", 80, "/"));
        assert_eq!(parts("http://a:81/x?y#z"), of("a:81", "a", 81, "/x?y"));
        assert_eq!(parts("http://[::1]:9?q"), of("[::1]:9", "::1", 9, "/?q"));
        assert_eq!(parts("http://[::1]/"), of("[::1]", "::1", 80, "/"));
        assert_eq!(parts("redis://h").2, 6379);
        assert_eq!(parts("grpcs://h/a.B/C"), of("h", "h", 443, "/a.B/C"));
        let echo = |url: &str| Target::parse(url).unwrap().echo_bytes();
        assert_eq!(
            (echo("tcp://h:1/echo"), echo("tcp://h:1/echo?bytes=9"), echo("tcp://h:1")),
            (Some(64), Some(9), None)
        );
        let tls = |url: &str| Target::parse(url).unwrap().tls;
        assert!(tls("https://a") && tls("h2://a") && tls("rediss://a") && !tls("h2c://a"));
    }

    #[test]
    fn localhost_is_the_loopback_address_that_takes_connections() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let address = listener.local_addr().unwrap();
            let target = Target::parse(&format!("http://localhost:{}", address.port())).unwrap();
            assert_eq!(target.resolve().unwrap(), address);
        }
        let nobody = Target::parse("http://localhost:1").unwrap();
        assert_eq!(nobody.resolve().unwrap(), SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for url in ["", "a", "ftp://a", "http://", "http://:80", "http://u@h"] {
            assert!(matches!(Target::parse(url), Err(TargetError::Scheme(_))), "{url}");
        }
        for url in ["http://a:0", "http://a:x", "http://a:70000", "tcp://a"] {
            assert!(matches!(Target::parse(url), Err(TargetError::Port(_))), "{url}");
        }
    }
}
