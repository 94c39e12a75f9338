//! Active health checks: a task for each backend, at jittered intervals.
//!
//! A check is a connection, a request for a path that must be answered with 2xx, or the first step of a TLS
//! handshake. It also measures the round trip to the backend. What it says goes through rise and fall
//! ([`tidegate_algorithms::balance::eligibility`]). Verdicts are this node's and last as long as the process: they are
//! no part of the configuration.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tidegate_algorithms::random::Random;
use tidegate_net::clock::Clock;
use tidegate_upstream::backend::Target;
use tidegate_upstream::connect::Resolver;
use tidegate_upstream::tls::{TlsClient, TlsSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::backend::EdgeBackend;
use crate::config::{CheckConfig, Probe};

/// By how much an interval is shorter or longer, at random: checks of many nodes do not fall together.
const JITTER: f64 = 0.2;

/// Checks a backend for as long as it is in force.
pub(crate) async fn watch(
    backend: Weak<EdgeBackend>,
    resolver: Resolver,
    clock: Clock,
    troubles: Arc<AtomicU64>,
    seed: u64,
) {
    let mut random = Random::seeded(seed);
    loop {
        // The strong reference goes before the pause, so that a replaced backend is not kept by its checks.
        let Some(interval) = check_once(&backend, &resolver, &clock, &troubles).await else { return };
        sleep(interval.mul_f64(1.0 - JITTER + 2.0 * JITTER * random.unit())).await;
    }
}

async fn check_once(
    backend: &Weak<EdgeBackend>,
    resolver: &Resolver,
    clock: &Clock,
    troubles: &AtomicU64,
) -> Option<Duration> {
    let backend = backend.upgrade()?;
    let check = backend.config.check.clone()?;
    let asking = passes(&check, &backend, resolver, clock);
    let passed = matches!(timeout(check.timeout, asking).await, Ok(Ok(true)));
    let (known, name) = (&backend.known, &backend.config.name);
    if known.backend.checked(passed, check.thresholds, clock.tick()) {
        troubles.fetch_add(1, Relaxed);
        if passed {
            tracing::info!(backend = %name, "a backend is up");
        } else {
            tracing::warn!(backend = %name, "a backend is down: its health checks fail");
            known.down.notify_waiters();
        }
    }
    Some(check.interval)
}

async fn passes(
    check: &CheckConfig,
    backend: &EdgeBackend,
    resolver: &Resolver,
    clock: &Clock,
) -> io::Result<bool> {
    let target = &backend.config.target;
    let (mut stream, round_trip) = resolver.connect_timed(target, check.timeout).await?;
    backend.known.measured(round_trip, clock.tick());
    match &check.probe {
        Probe::Tcp => Ok(true),
        Probe::Http(path) => answers(&mut stream, target, path).await,
        Probe::Tls => speaks_tls(&mut stream, target).await,
    }
}

/// Whether a request is answered with 2xx.
async fn answers(stream: &mut TcpStream, target: &Target, path: &str) -> io::Result<bool> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {target}\r\nUser-Agent: tidegate-health-check\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut line = [0; 12];
    stream.read_exact(&mut line).await?;
    Ok((line.starts_with(b"HTTP/1.1 2") || line.starts_with(b"HTTP/1.0 2"))
        && line[10..].iter().all(u8::is_ascii_digit))
}

/// Whether a ClientHello is answered with a ServerHello. Certificates are clients' matter: they see them whole.
async fn speaks_tls(stream: &mut TcpStream, target: &Target) -> io::Result<bool> {
    static CLIENT: OnceLock<Option<TlsClient>> = OnceLock::new();
    let client = CLIENT.get_or_init(|| TlsClient::new(TlsSettings::default()).ok());
    let Some(client) = client else { return Ok(false) };
    stream.write_all(&client.hello(target)?).await?;
    // A record of a handshake, version 3.x, its length, and a ServerHello as its first message.
    let mut record = [0; 6];
    stream.read_exact(&mut record).await?;
    Ok(record[0] == 22 && record[1] == 3 && record[5] == 2)
}
