//! Parsers for the kernel's network files. Pure: text in, figures out; anything unreadable is `None`.
//!
//! References: proc(5), and the kernel's `Documentation/networking/proc_net_tcp.rst`: for a listening
//! socket `rx_queue` is the length of its accept queue.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Counters of `/proc/net/netstat` that tell of connections lost at the door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounters {
    /// TcpExt ListenOverflows.
    pub listen_overflows: u64,
    /// TcpExt ListenDrops.
    pub listen_drops: u64,
    /// TcpExt TCPSynRetrans.
    pub syn_retransmits: u64,
}

/// Reads `/proc/net/netstat`.
#[must_use]
pub fn netstat(text: &str) -> Option<TcpCounters> {
    let mut lines = text.lines().filter_map(|l| l.strip_prefix("TcpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let find = |name: &str| {
        let at = names.split_whitespace().position(|n| n == name)?;
        values.split_whitespace().nth(at)?.parse().ok()
    };
    Some(TcpCounters {
        listen_overflows: find("ListenOverflows")?,
        listen_drops: find("ListenDrops")?,
        syn_retransmits: find("TCPSynRetrans")?,
    })
}

/// Sockets of `/proc/net/sockstat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// In use.
    pub in_use: u64,
    /// In TIME_WAIT.
    pub time_wait: u64,
}

/// Reads `/proc/net/sockstat`.
#[must_use]
pub fn sockstat(text: &str) -> Option<Sockets> {
    let line = text.lines().find_map(|l| l.strip_prefix("TCP:"))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let find =
        |name: &str| words.iter().position(|w| *w == name).and_then(|i| words.get(i + 1)?.parse().ok());
    Some(Sockets { in_use: find("inuse")?, time_wait: find("tw")? })
}

/// Ports in `/proc/sys/net/ipv4/ip_local_port_range`.
#[must_use]
pub fn port_range(text: &str) -> Option<u64> {
    let mut ends = text.split_whitespace().map(str::parse::<u64>);
    let (low, high) = (ends.next()?.ok()?, ends.next()?.ok()?);
    (low <= high && high <= 65_535).then(|| high - low + 1)
}

/// One socket of `/proc/net/tcp` or `/proc/net/tcp6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSocket {
    /// Local address and port.
    pub local: (IpAddr, u16),
    /// Remote address and port.
    pub remote: (IpAddr, u16),
    /// Whether it listens.
    pub listening: bool,
    /// Whether it is established.
    pub established: bool,
    /// Bytes, or for a listener connections, waiting to be taken.
    pub receive_queue: u64,
    /// Inode, to find its owner by.
    pub inode: u64,
}

/// Reads `/proc/net/tcp` or `/proc/net/tcp6`; lines that are not sockets are passed over.
pub fn tcp_sockets(text: &str) -> impl Iterator<Item = TcpSocket> + '_ {
    text.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (_, receive) = words.get(4)?.split_once(':')?;
        Some(TcpSocket {
            local: endpoint(words.get(1)?)?,
            remote: endpoint(words.get(2)?)?,
            listening: *words.get(3)? == "0A",
            established: *words.get(3)? == "01",
            receive_queue: u64::from_str_radix(receive, 16).ok()?,
            inode: words.get(9)?.parse().ok()?,
        })
    })
}

/// `0100007F:0FA0`: words in the machine's byte order (little-endian on every supported machine).
fn endpoint(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |i: usize| u32::from_str_radix(address.get(8 * i..8 * i + 8)?, 16).ok();
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?.to_le_bytes())),
        32 => {
            let mut bytes = [0; 16];
            for i in 0..4 {
                bytes[4 * i..4 * i + 4].copy_from_slice(&word(i)?.to_le_bytes());
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some((address, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NETSTAT: &str = "\
TcpExt: SyncookiesSent SyncookiesRecv ListenOverflows ListenDrops TCPTimeouts TCPSynRetrans\n\
TcpExt: 0 0 1312 1319 77 1400\n\
IpExt: InNoRoutes InTruncatedPkts\n\
IpExt: 0 0\n";
    const SOCKSTAT: &str = "sockets: used 302\n\
TCP: inuse 12 orphan 0 tw 28220 alloc 31 mem 4\n\
UDP: inuse 3 mem 1\n";
    const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
   0: 0100007F:0FA0 00000000:0000 0A 00000000:00000002 00:00000000 00000000     0        0 41120 1 0000000000000000 100 0 0 10 0\n\
   1: 0100007F:0FA0 0100007F:D3A2 01 00000000:00000000 00:00000000 00000000     0        0 41121 1 0000000000000000 20 4 30 10 -1\n";

    #[test]
    fn captured_files() {
        let counters = netstat(NETSTAT).unwrap();
        assert_eq!(
            counters,
            TcpCounters { listen_overflows: 1_312, listen_drops: 1_319, syn_retransmits: 1_400 }
        );
        assert_eq!(sockstat(SOCKSTAT), Some(Sockets { in_use: 12, time_wait: 28_220 }));
        assert_eq!(port_range("32768\t60999\n"), Some(28_232));
        let sockets: Vec<TcpSocket> = tcp_sockets(TCP).collect();
        assert_eq!(sockets.len(), 2);
        assert!(sockets[0].listening && sockets[0].receive_queue == 2);
        assert_eq!(sockets[1].remote, (IpAddr::V4(Ipv4Addr::LOCALHOST), 54_178));
        assert!(sockets[1].established && sockets[1].inode == 41_121);
        let six = "h\n 0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 0 0 0 0 7 1";
        assert_eq!(tcp_sockets(six).next().unwrap().local, (IpAddr::V6(Ipv6Addr::LOCALHOST), 8_080));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "[TCPExt: 0-9a-fA-F:\n\t]{0,200}") {
            let sockets = tcp_sockets(&text).count();
            prop_assert!(sockets <= text.lines().count());
            prop_assert!(netstat(&text).is_none() || text.contains("ListenDrops"));
            prop_assert!(port_range(&text).is_none_or(|n| n <= 65_536));
        }
    }
}
