//! The handshake of one connection, bounded in time and number, and what is said of one that failed.
//!
//! ```text
//!   connected --whole hello--> wait for a slot --> handshake --> stream
//!      '------- deadline ----------------'  '--- deadline ---'
//!                                                '--> failed: alert, half-close, read dry
//! ```
//!
//! A slot is taken only when the client's hello is there to its end: connections that are silent, or say it by the byte, count
//! against the connection limit and nothing else, so they keep nobody's handshake from a slot. Until then the hello stays in
//! the kernel, and costs nothing here.
//!
//! A drain closes connections that have said nothing when it sweeps, as it does with idle ones, and
//! lets a handshake that has begun come to its end: a request follows it.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rustix::net::{RecvFlags, recv};
use rustls::Error;
use rustls::server::Acceptor;
use tidegate_wire::client_hello::{MAX_HELLO, is_whole};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

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

/// The alert to who does not speak TLS: fatal, decode_error (RFC 8446, 6).
const NOT_A_HELLO: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];

thread_local! {
    /// Where hellos are looked at.
    static LOOKED_AT: RefCell<Box<[u8]>> = RefCell::new(vec![0; MAX_HELLO].into());
}

/// Why there is no secured stream.
enum Unsecured {
    /// A drain found that the client had said nothing.
    Drained,
    /// It was an authority, which has seen what it asked for.
    Answered(TcpStream),
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
            Err(Unsecured::Answered(stream)) => {
                // An error means that it does not wait for the end.
                drop(half_close(stream, LINGER, LINGER_BYTES).await);
                None
            }
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
        match timeout_at(turn, is_hello(&stream)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => {
                // A client that cannot take it now goes without it.
                drop(stream.try_write(&NOT_A_HELLO));
                return Err(Unsecured::Failed(HandshakeFailure::NotTls, Some(stream)));
            }
            Ok(Err(_)) => return Err(HandshakeFailure::Gone.into()),
            Err(_) => return Err(HandshakeFailure::Timeout.into()),
        }
        let slot = timeout_at(turn, self.shared.slots.acquire()).await;
        // Of the two errors only running out of time occurs: nobody closes the semaphore.
        let Ok(Ok(_slot)) = slot else { return Err(HandshakeFailure::Busy.into()) };
        match timeout_at(deadline(), self.accept(stream)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(HandshakeFailure::Timeout.into()),
        }
    }

    /// Shakes hands, with what an authority asks for if it is one.
    async fn accept(&self, stream: TcpStream) -> Result<TlsStream, Unsecured> {
        let failed = |error: &io::Error, stream| Unsecured::Failed(failure(error), stream);
        let server = Arc::clone(&self.shared.in_force.load().server);
        let Some(named) = &self.shared.config.named else {
            let accepted = TlsAcceptor::from(server).accept(stream).into_fallible().await;
            return accepted.map_err(|(error, stream)| failed(&error, Some(stream)));
        };
        let mut reading = LazyConfigAcceptor::new(Acceptor::default(), stream);
        let start = match (&mut reading).await {
            Ok(start) => start,
            Err(error) => return Err(failed(&error, reading.take_io())),
        };
        let challenged = named.challenged(&start.client_hello());
        let is_challenge = challenged.is_some();
        let accepted = start.into_stream(challenged.unwrap_or(server)).into_fallible().await;
        match accepted {
            // The authority has seen the certificate, and says nothing more (RFC 8737, 3).
            Ok(stream) if is_challenge => Err(Unsecured::Answered(stream.into_inner().0)),
            accepted => accepted.map_err(|(error, stream)| failed(&error, Some(stream))),
        }
    }
}

/// Waits until the hello that a client has begun is there to its end: true; false: what is there cannot become one. Nothing is
/// taken from the socket.
async fn is_hello(stream: &TcpStream) -> io::Result<bool> {
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        let looked = stream.try_io(Interest::READABLE, || {
            LOOKED_AT.with_borrow_mut(|bytes| {
                let (length, _) = recv(stream, &mut bytes[..], RecvFlags::PEEK)?;
                match is_whole(&bytes[..length]) {
                    // What is there was looked at: the socket is ready when there is more.
                    Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
                    Ok(true) => Ok(true),
                    Err(_) => Ok(false),
                }
            })
        });
        match looked {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !ready.is_read_closed() => {}
            looked => return looked,
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
