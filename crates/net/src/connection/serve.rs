//! From a listener to its connections, whatever is spoken on them.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::accept::{Gate, Held, accept};
use crate::listen::{ListenSocket, Listeners};
use crate::runtime::Cores;
use crate::tls::{Tls, peer_name};

/// How long a connection over the limit may take, from being accepted to its end.
const OPERATION_LIFE: Duration = Duration::from_secs(2);

/// The other end of a connection, and where it is served.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The address that connected.
    pub address: SocketAddr,
    /// The name in the certificate that it showed, if it was asked for one ([`crate::tls::peer_name`]).
    pub tls_name: Option<Arc<str>>,
    /// The core that serves it, below [`Cores::count`].
    pub core: usize,
    /// Whether the connection is one over the limit, for the operator's pages only.
    pub is_for_operation: bool,
}

/// A server of some protocol, which is given each connection of its listeners. Clones share it.
pub trait ServeConnection: Clone + Send + Sync + 'static {
    /// What bounds and counts its connections.
    fn gate(&self) -> &Gate;

    /// Serves a connection until it ends. `agreed` is the application protocol that TLS has agreed on. The
    /// connection counts as open while `held` is there.
    fn serve_connection<S>(
        self,
        stream: S,
        peer: Peer,
        agreed: Option<&'static [u8]>,
        held: Held,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static;
}

/// Serves `listeners` until the drain ends: socket `i` on core `i`, a task for each connection.
pub fn serve<P: ServeConnection>(server: &P, cores: &Cores, listeners: Listeners) {
    let (address, tls) = (listeners.address(), listeners.tls().cloned());
    for (core, socket) in listeners.into_sockets().into_iter().enumerate() {
        let (server, tls) = (server.clone(), tls.clone());
        cores.spawn_on(core, async move {
            if let Err(error) = serve_socket(&server, socket, core, tls).await {
                tracing::error!(%address, %error, "cannot watch a listening socket");
            }
        });
    }
}

async fn serve_socket<P: ServeConnection>(
    server: &P,
    socket: ListenSocket,
    core: usize,
    tls: Option<Tls>,
) -> io::Result<()> {
    accept(socket, server.gate(), core, |stream, address, held| {
        let (server, tls) = (server.clone(), tls.clone());
        let peer = Peer { address, tls_name: None, core, is_for_operation: held.is_for_operation() };
        // Each way is a task of its own size: a connection without TLS has no room for it.
        drop(match tls {
            tls if peer.is_for_operation => {
                let serving = serve_either(server, tls, stream, peer, held);
                tokio::spawn(async move { drop(timeout(OPERATION_LIFE, serving).await) })
            }
            Some(tls) => tokio::spawn(serve_tls(server, tls, stream, peer, held)),
            None => tokio::spawn(server.serve_connection(stream, peer, None, held)),
        });
    })
    .await
}

async fn serve_either<P: ServeConnection>(
    server: P,
    tls: Option<Tls>,
    stream: TcpStream,
    peer: Peer,
    held: Held,
) {
    match tls {
        Some(tls) => serve_tls(server, tls, stream, peer, held).await,
        None => server.serve_connection(stream, peer, None, held).await,
    }
}

async fn serve_tls<P: ServeConnection>(server: P, tls: Tls, stream: TcpStream, mut peer: Peer, held: Held) {
    let Some(stream) = tls.handshake(stream, peer.address, server.gate(), peer.core).await else { return };
    peer.tls_name = peer_name(stream.get_ref().1);
    let agreed = tls.agreed(&stream);
    server.serve_connection(stream, peer, agreed, held).await;
}
