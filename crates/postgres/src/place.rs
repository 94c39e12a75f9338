//! A PostgreSQL URL, and opening a connection to what it names.
//!
//! `postgres://[user[:password]@]host[:port][,host...][/database][?option=value&...]` with the
//! options of libpq. Of these, the ones about TLS are read here: `sslmode`, `sslrootcert` (PEM; the
//! system's roots if absent), `sslcert` and `sslkey`. Where TLS is spoken at all, the certificate
//! and its name are verified: `require` and `verify-ca` mean what `verify-full` does, since a
//! connection to whoever answers would keep nothing secret. `allow` and `prefer` promise nothing,
//! and mean `disable`. Words instead of a URL (`host=... port=...`) are taken too, without TLS.
//!
//! A network that loses packets without a word must not keep anybody for longer than it is away: the
//! kernel would repeat a first packet after 1, 3 and 7 s, and data at gaps that double. So connecting to
//! an address, and data that nobody acknowledges, are given up early, unless the URL says otherwise
//! (`connect_timeout`, `tcp_user_timeout`). How long a statement takes is not bounded by that.

use std::time::Duration;

use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Config, Error, NoTls};

use crate::session::Session;
use crate::tls::{self, Tls};
use crate::url::{TlsOptions, UrlError};

/// How long an address may take to accept a connection.
const CONNECT: Duration = Duration::from_millis(750);
/// How long data may stay without an acknowledgement.
const UNACKNOWLEDGED: Duration = Duration::from_millis(1_500);

/// What sessions are called where the URL names nothing else: `pg_stat_activity` then shows the versions that are
/// at work.
const APPLICATION: &str = concat!("tidegate ", env!("CARGO_PKG_VERSION"));

/// Where PostgreSQL is, who asks, and how the way there is kept secret.
#[derive(Clone)]
pub struct Place {
    config: Config,
    tls: Option<Tls>,
}

impl Place {
    /// Reads a URL and the files that it names.
    ///
    /// # Errors
    /// What is wrong with either.
    pub fn parse(url: &str) -> Result<Self, UrlError> {
        let (rest, options) = TlsOptions::split_from(url);
        let mut config: Config =
            rest.parse().map_err(|error: Error| UrlError::Syntax(crate::text(&error)))?;
        let connect = config.get_connect_timeout().copied().unwrap_or(CONNECT);
        let unacknowledged = config.get_tcp_user_timeout().copied().unwrap_or(UNACKNOWLEDGED);
        config.connect_timeout(connect).tcp_user_timeout(unacknowledged);
        if config.get_application_name().is_none() {
            config.application_name(APPLICATION);
        }
        let spoken = match options.mode.as_deref() {
            None => options.root.is_some() || options.certificate.is_some(),
            Some("disable" | "allow" | "prefer") => false,
            Some("require" | "verify-ca" | "verify-full") => true,
            Some(_) => return Err(UrlError::Mode),
        };
        config.ssl_mode(if spoken { SslMode::Require } else { SslMode::Disable });
        let tls = if spoken { Some(tls::configured(&options)?) } else { None };
        Ok(Self { config, tls })
    }

    /// What it names, without who asks: `host:port,host:port/database`. For telling databases apart;
    /// no secret is in it.
    #[must_use]
    pub fn address(&self) -> String {
        let ports = self.config.get_ports();
        let host = |(index, host): (usize, &Host)| {
            // One port for all hosts, or one each.
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                #[cfg(unix)]
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        };
        let hosts: Vec<_> = self.config.get_hosts().iter().enumerate().map(host).collect();
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("{}/{database}", hosts.join(","))
    }

    /// Opens a connection. A task of the calling runtime drives it until the session is dropped or
    /// the connection is lost; `heard` is called with the channel and the payload of each notification.
    ///
    /// # Errors
    /// When there is no connection to be had.
    pub async fn connect(&self, heard: impl Fn(&str, &str) + Send + 'static) -> Result<Session, Error> {
        match &self.tls {
            None => {
                let (client, connection) = self.config.connect(NoTls).await?;
                Ok(Session::start(client, connection, heard))
            }
            Some(tls) => {
                let (client, connection) = self.config.connect(tls.clone()).await?;
                Ok(Session::start(client, connection, heard))
            }
        }
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Place")
            .field("hosts", &self.config.get_hosts())
            .field("ports", &self.config.get_ports())
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[tokio::test]
    async fn a_server_whose_packets_are_lost_is_given_up_soon() {
        // Its queue has room for one connection; the kernel drops the first packets of the others.
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let listener = TcpListener::from(socket);
        let address = listener.local_addr().unwrap();
        let _waiting = TcpStream::connect(address).unwrap();
        let place = Place::parse(&format!("postgres://u@{address}/d")).unwrap();
        // The kernel alone would go on for more than two minutes.
        let connecting = tokio::time::timeout(Duration::from_secs(60), place.connect(|_, _| {}));
        assert!(connecting.await.expect("it is given up").is_err());
    }

    #[test]
    fn a_url_may_state_other_waits() {
        let waits = |url| {
            let place = Place::parse(url).unwrap();
            let waits = [place.config.get_connect_timeout(), place.config.get_tcp_user_timeout()];
            waits.map(|it| it.map(Duration::as_millis))
        };
        assert_eq!(waits("postgres://h"), [Some(750), Some(1_500)]);
        let stated = waits("postgres://h?connect_timeout=3&tcp_user_timeout=9");
        assert_eq!(stated, [Some(3_000), Some(9_000)]);
    }

    #[test]
    fn tls_is_spoken_when_the_url_says_so() {
        for (url, spoken) in [
            ("postgres://u:p@h:1/d", false),
            ("postgres://h/d?sslmode=disable", false),
            ("postgres://h/d?sslmode=prefer&application_name=x", false),
            ("postgresql://h,i/d?sslmode=require&target_session_attrs=read-write", true),
            ("postgres://h?sslmode=verify-full", true),
            ("host=h user=u", false),
        ] {
            assert_eq!(Place::parse(url).unwrap().tls.is_some(), spoken, "{url}");
        }
    }

    #[test]
    fn an_address_names_the_database_and_nobody() {
        for (url, address) in [
            ("postgres://u:canary@h:1/d", "h:1/d"),
            ("postgres://u:canary@h,i:2,j/d?sslmode=disable", "h:5432,i:2,j:5432/d"),
            ("postgres://u@h", "h:5432/u"),
        ] {
            assert_eq!(Place::parse(url).unwrap().address(), address);
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (url, said) in [
            ("postgres://u:canary@h?sslmode=on", "sslmode is not one of"),
            ("postgres://u:canary@h?sslmode=require&sslcert=/c", "only one of sslcert and sslkey"),
            ("postgres://u:canary@h?sslrootcert=/nowhere%2Fx", "sslrootcert: entity not found"),
            ("postgres://u:canary@h:port", "port"),
            ("postgres://u:canary@h?colour=red", "colour"),
        ] {
            let error = Place::parse(url).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("canary"), "{url}: {error}");
        }
        let place = Place::parse("postgres://u:canary@h").unwrap();
        assert!(!format!("{place:?}").contains("canary"));
    }
}
