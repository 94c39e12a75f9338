//! Connections: whole lines of what was read are kept together, then more is read.

use std::sync::Arc;
use std::time::Duration;

use memchr::memrchr;
use tidegate_net::accept::{Gate, Held};
use tidegate_net::connection::{Peer, ServeConnection};
use tidegate_net::drain::Stage;
use tidegate_net::stats::Cut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::timeout;

use super::{StatsdState, udp};

/// Longest line.
const LINE_BYTES: usize = 8 << 10;
/// What is read at once.
const READ_BYTES: usize = 16 << 10;
/// Longest silence of a connection.
const SILENCE: Duration = Duration::from_secs(300);

/// StatsD over TCP; clones share it.
#[derive(Clone)]
pub(super) struct Server {
    shared: Arc<StatsdState>,
    gate: Gate,
}

impl Server {
    pub(super) fn new(shared: Arc<StatsdState>, gate: Gate) -> Self {
        Self { shared, gate }
    }
}

impl ServeConnection for Server {
    fn gate(&self) -> &Gate {
        &self.gate
    }

    async fn serve_connection<S>(self, stream: S, peer: Peer, _agreed: Option<&'static [u8]>, held: Held)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if !held.is_for_operation() && self.shared.may_send(peer.address.ip()) {
            tokio::select! {
                () = self.gate.drain.reached(Stage::Sweeping) => {}
                () = self.read(stream, &peer) => {}
            }
        }
        drop(held);
    }
}

impl Server {
    async fn read<S: AsyncRead + Unpin>(&self, mut stream: S, peer: &Peer) {
        let client = udp::client(peer.address.ip());
        let connections = &self.gate.stats.core(peer.core).connections;
        let mut input = Vec::new();
        loop {
            input.reserve(READ_BYTES);
            let read = match timeout(SILENCE, stream.read_buf(&mut input)).await {
                Ok(Ok(read)) => read,
                Ok(Err(_)) => 0,
                Err(_) => {
                    connections.cut(Cut::Idle);
                    return;
                }
            };
            // The last line needs no line feed.
            let whole = if read == 0 { Some(input.len()) } else { memrchr(b'\n', &input).map(|end| end + 1) };
            if let Some(whole) = whole {
                let mut writer = self.shared.intake.writer(&client);
                self.shared.read(&client, &input[..whole], &mut writer);
                self.shared.keep(client.clone(), writer).await;
                input.drain(..whole);
            }
            if read == 0 {
                return;
            }
            if input.len() > LINE_BYTES {
                self.shared.intake.parts.counters.count_rejected(1);
                return;
            }
        }
    }
}
