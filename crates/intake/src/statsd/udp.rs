//! Datagrams: taken as many as wait at once, and kept by client.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use http::Request;
use socket2::{Domain, Protocol, Socket, Type};
use tidegate_wire::metrics::LineWriter;
use tokio::time::sleep;

use super::StatsdState;
use crate::client::Client;

/// What the kernel is asked to keep of datagrams that wait.
const KERNEL_BYTES: usize = 4 << 20;
/// Longer than any datagram.
const DATAGRAM_BYTES: usize = 64 << 10;
/// How long to wait after an error.
const PAUSE: Duration = Duration::from_millis(10);
/// Most datagrams that are taken before they are kept.
const AT_ONCE: usize = 1_000;
/// Most clients whose datagrams are taken before they are kept.
const CLIENTS_AT_ONCE: usize = 100;

/// A socket for datagrams.
pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    // The kernel gives what it is configured to give at most.
    socket.set_recv_buffer_size(KERNEL_BYTES)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Takes datagrams for ever.
pub(super) async fn take(shared: &StatsdState, socket: UdpSocket) {
    let socket = match tokio::net::UdpSocket::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!(%error, "cannot watch the socket of StatsD"),
    };
    let mut buffer = vec![0; DATAGRAM_BYTES];
    loop {
        let mut batch = DatagramBatch { shared, clients: HashMap::new() };
        match socket.recv_from(&mut buffer).await {
            Ok((length, from)) => batch.add(from, &buffer[..length]),
            Err(error) => {
                tracing::debug!(%error, "a datagram could not be taken");
                // What is wrong may last: this loop does not spin meanwhile.
                sleep(PAUSE).await;
            }
        }
        for _ in 1..AT_ONCE {
            if batch.clients.len() >= CLIENTS_AT_ONCE {
                break;
            }
            let Ok((length, from)) = socket.try_recv_from(&mut buffer) else { break };
            batch.add(from, &buffer[..length]);
        }
        for (client, writer) in batch.clients.into_values() {
            shared.keep(client, writer).await;
        }
    }
}

struct DatagramBatch<'a> {
    shared: &'a StatsdState,
    clients: HashMap<IpAddr, (Client, LineWriter)>,
}

impl DatagramBatch<'_> {
    fn add(&mut self, from: SocketAddr, datagram: &[u8]) {
        if !self.shared.may_send(from.ip()) {
            return;
        }
        let intake = &self.shared.intake;
        let (client, writer) = self.clients.entry(from.ip()).or_insert_with(|| {
            let client = client(from.ip());
            let writer = intake.writer(&client);
            (client, writer)
        });
        self.shared.read(client, datagram, writer);
    }
}

/// A client of which only the address is known.
pub(super) fn client(address: IpAddr) -> Client {
    Client::of(None, None, &Request::new(()).into_parts().0, address)
}

/// Datagrams to a port that the kernel dropped.
pub(super) fn dropped(port: u16) -> u64 {
    let tables = ["/proc/net/udp", "/proc/net/udp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    tables.iter().map(|table| dropped_in(table, port)).sum()
}

/// The last column of the lines whose second one ends in this port.
fn dropped_in(table: &str, port: u16) -> u64 {
    let port = format!(":{port:04X}");
    let rows = table.lines().skip(1).map(|line| line.split_ascii_whitespace());
    let own = rows.filter_map(|mut columns| {
        let local = columns.nth(1)?;
        local.ends_with(&port).then(|| columns.last()?.parse::<u64>().ok()).flatten()
    });
    own.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_count_is_read() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n  \
            10: 0100007F:1FBD 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0000 42\n  \
            11: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0000 7\n";
        assert_eq!((dropped_in(table, 8125), dropped_in(table, 53), dropped_in(table, 80)), (42, 7, 0));
    }

    #[test]
    fn what_nobody_takes_is_dropped_and_counted_by_the_kernel() {
        let socket = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let full = (0..10_000).find(|_| {
            sender.send_to(&[b'x'; 60_000], address).unwrap();
            dropped(address.port()) > 0
        });
        assert!(full.is_some_and(|sent| sent > 1), "{full:?}");
    }
}
