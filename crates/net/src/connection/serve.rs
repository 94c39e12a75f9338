//! From a listener to its connections, whatever is spoken on them.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Tasks;
use crate::accept::{Gate, Held, accept};
use crate::listen::{ListenSocket, Listeners};
use crate::proxied::Proxied;
use crate::runtime::Cores;
use crate::tls::{Tls, peer_name};

/// How long a connection over the limit may take, from being accepted to its end.
const OPERATION_LIFE: Duration = Duration::from_secs(2);

/// The other end of a connection, and where it is served.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The address that connected, or for which a proxy did ([`crate::proxied`]).
    pub address: SocketAddr,
    /// Whether the connection is one over TLS.
    pub is_tls: bool,
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
    let address = listeners.address();
    let way = ListenerWay { proxied: listeners.proxied().cloned(), tls: listeners.tls().cloned() };
    for (core, socket) in listeners.into_sockets().into_iter().enumerate() {
        let (server, way) = (server.clone(), way.clone());
        cores.spawn_on(core, async move {
            if let Err(error) = serve_socket(&server, socket, core, way).await {
                tracing::error!(%address, %error, "cannot watch a listening socket");
            }
        });
    }
}

/// What stands before the protocol on a listener's connections.
#[derive(Clone)]
struct ListenerWay {
    proxied: Option<Proxied>,
    tls: Option<Tls>,
}

async fn serve_socket<P: ServeConnection>(
    server: &P,
    socket: ListenSocket,
    core: usize,
    way: ListenerWay,
) -> io::Result<()> {
    let tasks = Tasks::default();
    let accepting = accept(socket, server.gate(), core, |stream, address, held| {
        let (server, way) = (server.clone(), way.clone());
        let is_for_operation = held.is_for_operation();
        let peer = Peer { address, is_tls: way.tls.is_some(), tls_name: None, core, is_for_operation };
        // Each way is a task of its own size: a connection without TLS has no room for it.
        match way {
            way if peer.is_for_operation => {
                let serving = serve_any(server, way, stream, peer, held);
                tasks.spawn(async move { drop(timeout(OPERATION_LIFE, serving).await) });
            }
            way @ ListenerWay { proxied: Some(_), .. } => {
                tasks.spawn(serve_any(server, way, stream, peer, held));
            }
            ListenerWay { tls: Some(tls), .. } => tasks.spawn(serve_tls(server, tls, stream, peer, held)),
            ListenerWay { tls: None, .. } => tasks.spawn(server.serve_connection(stream, peer, None, held)),
        }
    });
    tokio::select! {
        accepted = accepting => accepted?,
        () = tasks.sweep() => {}
    }
    tasks.end(&server.gate().drain).await;
    Ok(())
}

async fn serve_any<P: ServeConnection>(
    server: P,
    way: ListenerWay,
    mut stream: TcpStream,
    mut peer: Peer,
    held: Held,
) {
    if let Some(proxied) = way.proxied {
        match proxied.read(&mut stream, peer.address).await {
            Ok(client) => peer.address = client,
            Err(reason) => {
                tracing::debug!(peer = %peer.address, %reason, "a connection without its proxy's header is closed");
                server.gate().stats.core(peer.core).connections.unproxied.fetch_add(1, Relaxed);
                return;
            }
        }
    }
    match way.tls {
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
