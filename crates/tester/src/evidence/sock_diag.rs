//! The kernel's knowledge of single TCP sockets: a listener's queue with its limit, and the smallest
//! round trip that a connection has seen.
//!
//! `/proc/net/tcp` has neither the limit nor the round trip; netlink's socket diagnostics (what `ss`
//! asks) have both. One request, answers until [`MOST_BYTES`] or the end; a kernel or a sandbox without
//! it gives `None`, and the rules then go by connect times.
//!
//! References: sock_diag(7); `linux/inet_diag.h`; `linux/tcp.h` (`struct tcp_info`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// Bytes read of one answer: some hundred sockets, whatever the machine holds.
const MOST_BYTES: usize = 256 << 10;
/// `TCP_LISTEN` and `TCP_ESTABLISHED`, as bits of a set of states.
const LISTEN: u32 = 1 << 10;
const ESTABLISHED: u32 = 1 << 1;
/// `SOCK_DIAG_BY_FAMILY`, as request and as answer.
const BY_FAMILY: u16 = 20;
/// `INET_DIAG_INFO`: the attribute that holds a `tcp_info`.
const INFO: u16 = 2;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// Lengths of the netlink header, and of an `inet_diag_msg`.
const HEADER: usize = 16;
const MESSAGE: usize = 72;
/// Where `tcp_info` has `tcpi_min_rtt`.
const MIN_RTT: usize = 148;

/// A listener's accept queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptQueue {
    /// Connections that wait to be accepted.
    pub waiting: u64,
    /// Its limit: the backlog, or `net.core.somaxconn` if that is less.
    pub limit: u64,
}

/// The fullest accept queue among the listeners of a port.
#[must_use]
pub fn accept_queue(port: u16) -> Option<AcceptQueue> {
    let both = [AddressFamily::INET, AddressFamily::INET6].into_iter();
    both.filter_map(|family| ask(&request(family, LISTEN, Ends { local: port, remote: 0 })))
        .flat_map(|answer| sockets(&answer))
        .filter(|socket| socket.local_port == port)
        .map(|socket| AcceptQueue { waiting: socket.receive_queue, limit: socket.send_queue })
        .max_by_key(|queue| (queue.waiting, std::cmp::Reverse(queue.limit)))
}

/// The smallest round trip of connections to `target`, in microseconds.
#[must_use]
pub fn min_rtt_us(target: SocketAddr) -> Option<u32> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let answer = ask(&request(family, ESTABLISHED, Ends { local: 0, remote: target.port() }))?;
    let towards = |socket: &SocketEntry| (socket.remote, socket.remote_port) == (target.ip(), target.port());
    // The kernel says all ones before its first sample.
    sockets(&answer)
        .iter()
        .filter(|s| towards(s))
        .filter_map(|s| s.min_rtt_us)
        .filter(|&us| us < u32::MAX)
        .min()
}

/// Ports that are asked for, 0 for any.
struct Ends {
    local: u16,
    remote: u16,
}

/// One socket of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SocketEntry {
    local_port: u16,
    remote: IpAddr,
    remote_port: u16,
    receive_queue: u64,
    send_queue: u64,
    min_rtt_us: Option<u32>,
}

/// A netlink header with an `inet_diag_req_v2`.
fn request(family: AddressFamily, states: u32, ends: Ends) -> Vec<u8> {
    const LENGTH: usize = HEADER + 56;
    let mut bytes = Vec::with_capacity(LENGTH);
    bytes.extend((LENGTH as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(DUMP.to_ne_bytes());
    bytes.extend([0; 8]);
    // Family, protocol (TCP), extensions wanted, padding.
    bytes.extend([family.as_raw() as u8, 6, 1 << (INFO - 1), 0]);
    bytes.extend(states.to_ne_bytes());
    bytes.extend(ends.local.to_be_bytes());
    bytes.extend(ends.remote.to_be_bytes());
    // Any addresses, any interface, no cookie.
    bytes.extend([0; 36]);
    bytes.extend([0xff; 8]);
    bytes
}

/// Sends a request and takes the answer, as far as it is looked at.
fn ask(request: &[u8]) -> Option<Vec<u8>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::SOCK_DIAG)).ok()?;
    send(&socket, request, SendFlags::empty()).ok()?;
    let mut answer = Vec::new();
    let mut part = vec![0; 32 << 10];
    // The kernel has each part ready when the one before it was taken.
    while answer.len() < MOST_BYTES {
        let Ok((length, _)) = recv(&socket, part.as_mut_slice(), RecvFlags::empty()) else { break };
        let part = &part[..length];
        answer.extend_from_slice(part);
        if length == 0 || messages(part).any(|(kind, _)| kind != BY_FAMILY) {
            break;
        }
    }
    (!answer.is_empty()).then_some(answer)
}

/// Type and content of each netlink message.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(word(bytes, 0)?) as usize;
        let kind = u16::from_ne_bytes([*bytes.get(4)?, *bytes.get(5)?]);
        let content = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, content))
    })
}

/// The sockets of an answer.
fn sockets(answer: &[u8]) -> Vec<SocketEntry> {
    messages(answer)
        .filter(|(kind, _)| *kind == BY_FAMILY)
        .filter_map(|(_, content)| socket(content))
        .collect()
}

fn socket(content: &[u8]) -> Option<SocketEntry> {
    let port = |at: usize| Some(u16::from_be_bytes([*content.get(at)?, *content.get(at + 1)?]));
    let number = |at: usize| Some(u64::from(u32::from_ne_bytes(word(content, at)?)));
    let remote = if i32::from(*content.first()?) == i32::from(AddressFamily::INET.as_raw()) {
        IpAddr::V4(Ipv4Addr::from(word(content, 24)?))
    } else {
        IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(content.get(24..40)?).ok()?))
    };
    Some(SocketEntry {
        local_port: port(4)?,
        remote,
        remote_port: port(6)?,
        receive_queue: number(56)?,
        send_queue: number(60)?,
        min_rtt_us: attribute(content.get(MESSAGE..)?, INFO)
            .and_then(|info| word(info, MIN_RTT))
            .map(u32::from_ne_bytes),
    })
}

/// The attribute of a kind.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]));
        let kind = u16::from_ne_bytes([*bytes.get(2)?, *bytes.get(3)?]);
        let content = bytes.get(4..length)?;
        if kind == wanted {
            return Some(content);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

fn word(bytes: &[u8], at: usize) -> Option<[u8; 4]> {
    bytes.get(at..at + 4)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::net::listen;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_kernel_tells_of_a_listeners_queue_and_a_connections_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listen(&listener, 7).unwrap();
        let address = listener.local_addr().unwrap();
        let waiting: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert_eq!(accept_queue(address.port()), Some(AcceptQueue { waiting: 3, limit: 7 }));
        let round_trip = min_rtt_us(address).unwrap();
        assert!(round_trip < 1_000_000, "{round_trip} us");
        assert_eq!((waiting.len(), min_rtt_us("192.0.2.1:1".parse().unwrap())), (3, None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert!(sockets(&bytes).len() <= bytes.len() / HEADER);
            prop_assert!(attribute(&bytes, INFO).is_none_or(|content| content.len() < bytes.len()));
        }

        #[test]
        fn any_socket_of_an_answer_is_read_without_panic(content in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(socket(&content).is_none() || content.len() >= MESSAGE);
        }
    }
}
