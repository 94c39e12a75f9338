//! From a listener to its connections: which protocol each of them speaks.
//!
//! | listener | said by | protocol |
//! |---|---|---|
//! | TCP | the first bytes are HTTP/2's preface | HTTP/2 |
//! | TCP | any others | HTTP/1.1 |
//! | TLS | ALPN `h2` | HTTP/2 |
//! | TLS | ALPN `http/1.1`, or no ALPN | as on TCP |
//! | for HTTP/2 only | nothing | HTTP/2 |

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::server::Server;
use super::{Handle, Peer};
use crate::accept::{Held, accept};
use crate::listen::{ListenSocket, Listeners};
use crate::runtime::Cores;
use crate::tls::Tls;

/// How long a connection over the limit may take, from being accepted to its end.
const OPERATION_LIFE: Duration = Duration::from_secs(2);

/// What may be spoken on a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaks {
    /// HTTP/1.1 and HTTP/2.
    Both,
    /// HTTP/2 from the first byte.
    Http2,
}

impl<H: Handle> Server<H> {
    /// Serves `listeners` until the drain ends: socket `i` on core `i`.
    pub fn start(&self, cores: &Cores, listeners: Listeners) {
        self.listen(cores, listeners, Speaks::Both);
    }

    /// Serves `listeners` until the drain ends, to clients that speak HTTP/2 from the first byte, as
    /// gRPC's do.
    pub fn start_http2(&self, cores: &Cores, listeners: Listeners) {
        self.listen(cores, listeners, Speaks::Http2);
    }

    fn listen(&self, cores: &Cores, listeners: Listeners, speaks: Speaks) {
        let (address, tls) = (listeners.address(), listeners.tls().cloned());
        for (core, socket) in listeners.into_sockets().into_iter().enumerate() {
            let (server, tls) = (self.clone(), tls.clone());
            cores.spawn_on(core, async move {
                if let Err(error) = server.accept(socket, core, tls, speaks).await {
                    tracing::error!(%address, %error, "cannot watch a listening socket");
                }
            });
        }
    }

    async fn accept(
        &self,
        socket: ListenSocket,
        core: usize,
        tls: Option<Tls>,
        speaks: Speaks,
    ) -> io::Result<()> {
        accept(socket, self.gate(), core, |stream, address, held| {
            let peer = Peer { address, core, is_for_operation: held.is_for_operation() };
            drop(match (&tls, speaks) {
                _ if peer.is_for_operation => {
                    let serving = self.clone().serve_any(tls.clone(), stream, peer, held, speaks);
                    tokio::spawn(async move { drop(timeout(OPERATION_LIFE, serving).await) })
                }
                (None, Speaks::Both) => tokio::spawn(self.serve_stream(stream, peer, held)),
                _ => tokio::spawn(self.clone().serve_any(tls.clone(), stream, peer, held, speaks)),
            });
        })
        .await
    }

    async fn serve_any(self, tls: Option<Tls>, stream: TcpStream, peer: Peer, held: Held, speaks: Speaks) {
        let Some(tls) = tls else {
            return match speaks {
                Speaks::Both => self.serve_stream(stream, peer, held).await,
                Speaks::Http2 => self.serve_http2_stream(stream, peer, held).await,
            };
        };
        let Some(stream) = tls.handshake(stream, peer.address, self.gate(), peer.core).await else { return };
        let agreed = stream.get_ref().1.alpn_protocol();
        if speaks == Speaks::Http2 || agreed == Some(b"h2") {
            self.serve_http2_stream(stream, peer, held).await;
        } else {
            self.serve_stream(stream, peer, held).await;
        }
    }
}
