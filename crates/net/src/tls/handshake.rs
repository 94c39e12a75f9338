//! The handshake of one connection, bounded in time and number, and what is said of one that failed.
//!
//! ```text
//!   connected --first bytes--> wait for a slot --> handshake --> stream
//!      '------- deadline ----------------'  '--- deadline ---'
//!                                                '--> failed: alert, half-close, read dry
//! ```
//!
//! A slot is taken only when the client has said something: silent connections count against the
//! connection limit and nothing else, so they keep nobody's handshake from a slot.
//!
//! A drain closes connections that have said nothing when it sweeps, as it does with idle ones, and
//! lets a handshake that has begun come to its end: a request follows it.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustls::Error;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::Tls;
use crate::accept::Gate;
use crate::clock::monotonic;
use crate::connection::half_close;
use crate::stats::HandshakeFailure;

/// A connection whose handshake succeeded.
pub type TlsStream = tokio_rustls::server::TlsStream<TcpStream>;

/// How long and how much a client whose handshake failed is read dry, so that closing does not reset
/// the connection before it has read the alert.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 64 << 10;

/// Why there is no secured stream.
enum Unsecured {
    /// A drain found that the client had said nothing.
    Drained,
    /// The handshake failed; the stream is there if the client may still be told.
    Failed(HandshakeFailure, Option<TcpStream>),
}

impl From<HandshakeFailure> for Unsecured {
    fn from(failure: HandshakeFailure) -> Self {
        Self::Failed(failure, None)
    }
}

impl Tls {
    /// Shakes hands on a connection that core `core` accepted. `None`: the connection is closed,
    /// because that failed, which is counted, or because of a drain.
    pub async fn handshake(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        gate: &Gate,
        core: usize,
    ) -> Option<TlsStream> {
        let stats = gate.stats.core(core);
        match self.negotiate(stream, gate).await {
            Ok(stream) => {
                stats.connections.handshakes.fetch_add(1, Relaxed);
                Some(stream)
            }
            Err(Unsecured::Drained) => None,
            Err(Unsecured::Failed(failure, stream)) => {
                stats.connections.handshake_failed(failure);
                tracing::debug!(%peer, reason = failure.name(), "TLS handshake failed");
                if let Some(stream) = stream {
                    // An error means that the client does not wait for the alert.
                    drop(half_close(stream, LINGER, LINGER_BYTES).await);
                }
                None
            }
        }
    }

    /// The application protocol that was agreed on, if any: one of those that this listener speaks.
    pub fn agreed(&self, stream: &TlsStream) -> Option<&'static [u8]> {
        let agreed = stream.get_ref().1.alpn_protocol()?;
        self.shared.config.protocols.iter().copied().find(|protocol| *protocol == agreed)
    }

    async fn negotiate(&self, stream: TcpStream, gate: &Gate) -> Result<TlsStream, Unsecured> {
        let deadline = || Instant::from_std(monotonic() + self.shared.config.handshake_timeout);
        let turn = deadline();
        let mut first = [0];
        tokio::select! {
            biased;
            spoke = timeout_at(turn, stream.peek(&mut first)) => match spoke {
                Ok(Ok(1..)) => {}
                Ok(_) => return Err(HandshakeFailure::Gone.into()),
                Err(_) => return Err(HandshakeFailure::Timeout.into()),
            },
            () = gate.drain.sweeping() => return Err(Unsecured::Drained),
        }
        let slot = timeout_at(turn, self.shared.slots.acquire()).await;
        // Of the two errors only running out of time occurs: nobody closes the semaphore.
        let Ok(Ok(_slot)) = slot else { return Err(HandshakeFailure::Busy.into()) };
        let acceptor = self.shared.in_force.load().acceptor.clone();
        match timeout_at(deadline(), acceptor.accept(stream).into_fallible()).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err((error, stream))) => Err(Unsecured::Failed(failure(&error), Some(stream))),
            Err(_) => Err(HandshakeFailure::Timeout.into()),
        }
    }
}

/// What an error of the handshake says about the client.
fn failure(error: &io::Error) -> HandshakeFailure {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return HandshakeFailure::Gone;
    };
    match tls {
        Error::InvalidMessage(_) => HandshakeFailure::NotTls,
        Error::NoCertificatesPresented => HandshakeFailure::ClientCertificateMissing,
        Error::InvalidCertificate(_) => HandshakeFailure::ClientCertificateRefused,
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => HandshakeFailure::Incompatible,
        Error::AlertReceived(_) => HandshakeFailure::Alert,
        _ => HandshakeFailure::Other,
    }
}
