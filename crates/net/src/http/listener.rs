//! The protocol of a connection: HTTP/1.1 or HTTP/2.
//!
//! | listener | said by | protocol |
//! |---|---|---|
//! | TCP | the first bytes are HTTP/2's preface | HTTP/2 |
//! | TCP | any others | HTTP/1.1 |
//! | TLS | ALPN `h2` | HTTP/2 |
//! | TLS | ALPN `http/1.1`, or no ALPN | as on TCP |
//! | for HTTP/2 only | nothing | HTTP/2 |

use std::future::Future;

use tokio::io::{AsyncRead, AsyncWrite};

use super::server::{Begins, Server};
use crate::accept::{Gate, Held};
use crate::connection::{Peer, ServeConnection, serve};
use crate::listen::Listeners;
use crate::runtime::Cores;

impl Server {
    /// Serves `listeners` until the drain ends: socket `i` on core `i`.
    pub fn start(&self, cores: &Cores, listeners: Listeners) {
        serve(self, cores, listeners);
    }

    /// Serves `listeners` until the drain ends, to clients that speak HTTP/2 from the first byte, as
    /// gRPC's do.
    pub fn start_http2(&self, cores: &Cores, listeners: Listeners) {
        serve(&Http2Only(self.clone()), cores, listeners);
    }
}

impl ServeConnection for Server {
    fn gate(&self) -> &Gate {
        self.gate()
    }

    fn serve_connection<S>(
        self,
        stream: S,
        peer: Peer,
        agreed: Option<&'static [u8]>,
        held: Held,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let begins = if agreed == Some(b"h2") { Begins::Http2 } else { Begins::Any };
        self.serve_stream(stream, peer, begins, held)
    }
}

/// A server whose clients speak HTTP/2 from the first byte.
#[derive(Clone)]
struct Http2Only(Server);

impl ServeConnection for Http2Only {
    fn gate(&self) -> &Gate {
        self.0.gate()
    }

    fn serve_connection<S>(
        self,
        stream: S,
        peer: Peer,
        _agreed: Option<&'static [u8]>,
        held: Held,
    ) -> impl Future<Output = ()> + Send + 'static
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.0.serve_stream(stream, peer, Begins::Http2, held)
    }
}
