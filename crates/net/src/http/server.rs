//! One server: its handler, its bounds, and which way a connection goes.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use hyper::server::conn::http1;
use tokio::io::{AsyncRead, AsyncWrite};

use super::activity::Activity;
use super::connection::{Connection, HttpServerParts};
use super::deadline::DeadlineIo;
use super::in_one_piece::{self, ShortWayEnd};
use super::{Handle, HttpConfig};
use crate::accept::{Gate, Held};
use crate::clock::monotonic;
use crate::connection::{Peer, Sweep};

/// The smallest buffer that hyper accepts.
const SMALLEST_BUFFER: usize = 8192;

/// What a connection may begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begins {
    /// A request of HTTP/1.1, or HTTP/2's preface.
    Any,
    /// HTTP/2's preface.
    Http2,
}

/// An HTTP server for one service; clones share it.
#[derive(Clone)]
pub struct Server {
    pub(super) shared: Arc<HttpServerParts>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl Server {
    /// A server for `handler`, bounded by `config` and `gate`.
    #[must_use]
    pub fn new(handler: impl Handle, config: HttpConfig, gate: Gate) -> Self {
        let mut protocol = http1::Builder::new();
        protocol
            // `DeadlineIo` times the head; the header of `http.rs` says why.
            .header_read_timeout(None)
            .max_header_size(config.max_head_bytes)
            .max_buf_size(config.max_head_bytes.max(SMALLEST_BUFFER))
            // One buffer per reply: for short bodies a copy is cheaper than a second slice.
            .writev(false);
        let (handler, config) = (Box::new(handler), Arc::new(config));
        Self { shared: Arc::new(HttpServerParts { handler, config, protocol, gate }) }
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.shared.gate
    }

    /// Serves one connection over any byte stream, such as one that TLS was taken off. The future ends with
    /// the connection.
    pub(super) fn serve_stream<S>(
        &self,
        stream: S,
        peer: Peer,
        begins: Begins,
        held: Held,
    ) -> impl Future<Output = ()> + Send + 'static + use<S>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let HttpServerParts { config, gate, .. } = &*self.shared;
        let activity = Arc::new(Activity::new(monotonic(), Arc::clone(&gate.stats), peer.core));
        let mut io = DeadlineIo::new(stream, Arc::clone(&activity), Arc::clone(config));
        let mut sweep = Sweep::new(gate.drain.clone());
        let connection = Connection::new(Arc::clone(&self.shared), activity, peer);
        async move {
            // The others are boxed, so that a connection which never needs them has no room for them.
            let end = match begins {
                Begins::Any => in_one_piece::serve(&mut io, &connection, &mut sweep).await,
                Begins::Http2 => ShortWayEnd::Http2,
            };
            match end {
                ShortWayEnd::Close => {}
                ShortWayEnd::Hyper => Box::pin(connection.serve_with_hyper(io, sweep)).await,
                ShortWayEnd::Http2 => Box::pin(connection.serve_http2(io)).await,
            }
            drop(held);
        }
    }
}
