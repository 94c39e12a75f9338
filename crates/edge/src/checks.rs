//! The edge's health checks: what they ask of a backend ([`tidegate_upstream::checks`] says when, and what follows).
//!
//! A check is a connection, a request for a path that must be answered with 2xx, or the first step of a TLS
//! handshake. It also measures the round trip to the backend. Where clients' connections begin with a header of the PROXY
//! protocol, a check does, too: its header (UNKNOWN or LOCAL) has no address.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Release};
use std::sync::{Arc, OnceLock, Weak};

use tidegate_net::clock::Clock;
use tidegate_upstream::backend::Target;
use tidegate_upstream::checks::{self, Checked, News};
use tidegate_upstream::connect::Resolver;
use tidegate_upstream::failure::CheckFailure;
use tidegate_upstream::tls::{TlsClient, TlsSettings};
use tidegate_upstream::verdicts::Watched;
use tidegate_wire::proxy_protocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::backend::EdgeBackend;
use crate::config::{CheckConfig, Probe};

/// Checks a backend for as long as it is in force.
pub(crate) async fn watch(
    backend: Weak<EdgeBackend>,
    resolver: Resolver,
    clock: Clock,
    troubles: Arc<AtomicU64>,
    watched: Watched,
    seed: u64,
) {
    let (backend, resolver, troubles) = (&backend, &resolver, &troubles);
    checks::watch(|| check_once(backend, resolver, clock, troubles), || clock.tick(), watched, seed).await;
}

async fn check_once<'a>(
    backend: &Weak<EdgeBackend>,
    resolver: &Resolver,
    clock: Clock,
    troubles: &'a AtomicU64,
) -> Option<Checked<impl FnOnce(News<'_>) + use<'a>>> {
    let backend = backend.upgrade()?;
    let check = backend.config.check.clone()?;
    // A backend that is this edge itself gets no connection.
    let result = if backend.known.is_in_circle() {
        Err(CheckFailure::Unwell("it is a listener of this edge"))
    } else {
        let asking = passes(&check, &backend, resolver, clock);
        timeout(check.timeout, asking).await.unwrap_or(Err(CheckFailure::TimedOut(check.timeout)))
    };
    if result.is_err() {
        // Pauses are jittered: the next check is over by then.
        backend.known.check_failed(clock.tick(), 2 * check.interval + check.timeout);
    } else if backend.known.check_passed(clock.tick()) {
        troubles.fetch_add(1, Release);
        tracing::info!(backend = %backend.config.name, "a backend is reached again");
    }
    Some(Checked {
        backend: Arc::clone(&backend.known.backend),
        result,
        thresholds: check.thresholds,
        interval: check.interval,
        changed: move |news: News<'_>| {
            // After what it is about, which whoever sees it sees, too.
            troubles.fetch_add(1, Release);
            let name = &backend.config.name;
            match news {
                News::Up => tracing::info!(backend = %name, "a backend is up"),
                News::Down(reason) => {
                    tracing::warn!(backend = %name, reason, "a backend is down: its health checks fail");
                    backend.known.down.notify_waiters();
                }
                News::OtherReason(reason) => {
                    tracing::warn!(backend = %name, reason, "a backend is down still: its health checks fail for another reason");
                }
            }
        },
    })
}

async fn passes(
    check: &CheckConfig,
    backend: &EdgeBackend,
    resolver: &Resolver,
    clock: Clock,
) -> Result<(), CheckFailure> {
    let target = &backend.config.target;
    let connected = resolver.connect_timed(target, check.timeout).await;
    let (mut stream, round_trip) = connected.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => CheckFailure::TimedOut(check.timeout),
        _ => error.into(),
    })?;
    backend.known.measured(round_trip, clock.tick());
    if let Some(version) = backend.known.header() {
        stream.write_all(proxy_protocol::own(version)).await?;
    }
    match &check.probe {
        Probe::Tcp => Ok(()),
        Probe::Http(path) => answers(&mut stream, target, path).await,
        Probe::Tls => speaks_tls(&mut stream, target).await,
    }
}

/// Whether a request is answered with 2xx.
async fn answers(stream: &mut TcpStream, target: &Target, path: &str) -> Result<(), CheckFailure> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {target}\r\nUser-Agent: tidegate-health-check\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut line = [0; 12];
    stream.read_exact(&mut line).await?;
    if !(line.starts_with(b"HTTP/1.1 ") || line.starts_with(b"HTTP/1.0 ")) {
        return Err(CheckFailure::Unwell("its answer is not HTTP/1.1"));
    }
    let status = std::str::from_utf8(&line[9..]).ok().and_then(|digits| digits.parse::<u16>().ok());
    match status {
        Some(200..=299) => Ok(()),
        Some(status) => Err(CheckFailure::Answered(status)),
        None => Err(CheckFailure::Unwell("its answer has no status")),
    }
}

/// Whether a ClientHello is answered with a ServerHello. Certificates are clients' matter: they see them whole.
async fn speaks_tls(stream: &mut TcpStream, target: &Target) -> Result<(), CheckFailure> {
    static CLIENT: OnceLock<Option<TlsClient>> = OnceLock::new();
    let client = CLIENT.get_or_init(|| TlsClient::new(TlsSettings::default()).ok());
    let Some(client) = client else { return Err(CheckFailure::Unwell("TLS cannot be spoken here")) };
    stream.write_all(&client.hello(target)?).await?;
    // A record of a handshake, version 3.x, its length, and a ServerHello as its first message.
    let mut record = [0; 6];
    stream.read_exact(&mut record).await?;
    if record[0] == 22 && record[1] == 3 && record[5] == 2 {
        Ok(())
    } else {
        Err(CheckFailure::Unwell("it does not answer with TLS"))
    }
}
