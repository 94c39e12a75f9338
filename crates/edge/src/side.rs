//! The ends of a relay: a socket whose bytes are as they are, or one under TLS.

use tidegate_net::tls::TlsStream;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// One end of a relay.
pub(crate) trait Side: AsyncRead + AsyncWrite + Unpin + Send {
    /// Its socket.
    fn socket(&self) -> &TcpStream;

    /// Whether the socket carries its bytes as they are.
    fn is_plain(&self) -> bool;
}

impl Side for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }

    fn is_plain(&self) -> bool {
        true
    }
}

impl Side for TlsStream {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }

    fn is_plain(&self) -> bool {
        false
    }
}
