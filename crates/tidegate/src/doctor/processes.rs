//! The processes of this machine, as far as `/proc` shows them to this user: who listens on a port, who
//! holds a lock, which program a process runs.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tidegate_tester::evidence::process::socket_inode;

/// `TCP_LISTEN`, and what a bound socket of UDP is in, in `/proc/net`.
const LISTENING: &str = "0A";
const BOUND: &str = "07";

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) id: u32,
    /// The name of its program.
    pub(super) name: String,
    /// Whether the file of its program was replaced or removed since it started.
    pub(super) is_replaced: bool,
}

impl Process {
    /// Whether it runs this program.
    pub(super) fn is_tidegate(&self) -> bool {
        self.name == "tidegate"
    }

    fn look(root: &Path, id: u32) -> Option<Self> {
        let folder = root.join(format!("proc/{id}"));
        // The program's path needs a right, the name that the kernel keeps does not.
        let path = fs::read_link(folder.join("exe")).ok().map(|path| path.display().to_string());
        let is_replaced = path.as_ref().is_some_and(|path| path.ends_with(" (deleted)"));
        let name = match path {
            Some(path) => Path::new(path.trim_end_matches(" (deleted)")).file_name()?.display().to_string(),
            None => fs::read_to_string(folder.join("comm")).ok()?.trim().to_owned(),
        };
        Some(Self { id, name, is_replaced })
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} (process {})", self.name, self.id)
    }
}

/// A socket that waits for peers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Socket {
    address: SocketAddr,
    inode: u64,
}

/// What the kernel's files said.
#[derive(Debug)]
pub(super) struct Processes {
    root: PathBuf,
    streams: Vec<Socket>,
    datagrams: Vec<Socket>,
    locks: String,
}

impl Processes {
    /// Reads the kernel's files of this machine.
    pub(super) fn look() -> Self {
        Self::under(Path::new("/"))
    }

    fn under(root: &Path) -> Self {
        let read = |name: &str| fs::read_to_string(root.join("proc").join(name)).unwrap_or_default();
        let both = |name: &str, state: &str| {
            let mut found = sockets(&read(&format!("net/{name}")), state);
            found.extend(sockets(&read(&format!("net/{name}6")), state));
            found
        };
        let (streams, datagrams) = (both("tcp", LISTENING), both("udp", BOUND));
        Self { root: root.to_owned(), streams, datagrams, locks: read("locks") }
    }

    /// The process that listens where `address` is to be bound.
    pub(super) fn listener(&self, address: SocketAddr, is_datagram: bool) -> Option<Process> {
        let sockets = if is_datagram { &self.datagrams } else { &self.streams };
        let (wanted, port) = (address.ip().to_canonical(), address.port());
        let collides = |other: IpAddr| {
            let other = other.to_canonical();
            other == wanted || other.is_unspecified() || wanted.is_unspecified()
        };
        let inodes: Vec<_> = sockets
            .iter()
            .filter(|socket| socket.address.port() == port && collides(socket.address.ip()))
            .map(|socket| socket.inode)
            .collect();
        if inodes.is_empty() {
            return None;
        }
        self.ids().into_iter().find_map(|id| {
            let links = fs::read_dir(self.root.join(format!("proc/{id}/fd"))).ok()?;
            let mut links = links.flatten().filter_map(|link| fs::read_link(link.path()).ok());
            let holds = links.any(|link| {
                socket_inode(&link.display().to_string()).is_some_and(|inode| inodes.contains(&inode))
            });
            holds.then(|| Process::look(&self.root, id))?
        })
    }

    /// The process that holds the lock on this file.
    pub(super) fn holder(&self, file: &Path) -> Option<Process> {
        let inode = fs::metadata(file).ok()?.ino();
        Process::look(&self.root, holder_of(&self.locks, inode)?)
    }

    fn ids(&self) -> Vec<u32> {
        let entries = fs::read_dir(self.root.join("proc")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }
}

/// The sockets in this state of a table like `/proc/net/tcp`.
fn sockets(table: &str, state: &str) -> Vec<Socket> {
    let socket = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, found) = (fields.get(1)?, fields.get(3)?);
        let inode = fields.get(9)?.parse().ok()?;
        (*found == state).then(|| Some(Socket { address: address(local)?, inode }))?
    };
    table.lines().skip(1).filter_map(socket).collect()
}

/// `0100007F:0FA0`: words of 32 bits as this machine keeps them, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |place: usize| {
        let digits = ip.get(place * 8..place * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for place in 0..4 {
                bytes[place * 4..place * 4 + 4].copy_from_slice(&word(place)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// The process that holds a lock of flock(2) on this inode, by `/proc/locks`.
fn holder_of(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        // `1: FLOCK  ADVISORY  WRITE 4242 fe:00:1234 0 EOF`; a line of one that waits has `->` behind its number.
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, id, place, ..] = fields[..] else { return None };
        let is_it = place.rsplit(':').next()?.parse::<u64>().ok()? == inode;
        is_it.then(|| id.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:0FA0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100\n\
            1: 0100007F:0FA1 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100\n";
        let found = sockets(table, LISTENING);
        assert_eq!(found, [Socket { address: "127.0.0.1:4000".parse().unwrap(), inode: 4711 }]);
        let six = address("00000000000000000000000001000000:0FA0");
        assert_eq!(six, Some("[::1]:4000".parse().unwrap()));
        for garbage in ["", ":", "01:02", "0100007F:", "0100007g:0FA0", "ü100007F:0FA0"] {
            assert_eq!(address(garbage), None, "{garbage}");
        }
        let locks = "1: POSIX  ADVISORY  WRITE 1 fe:00:9 0 EOF\n2: FLOCK  ADVISORY  WRITE 42 fe:00:9 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 43 fe:00:8 0 EOF\n";
        assert_eq!((holder_of(locks, 9), holder_of(locks, 8)), (Some(42), None));
    }

    #[test]
    fn who_listens_and_who_holds_a_lock_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let file = fs::File::create(&path).unwrap();
        file.lock().unwrap();
        let processes = Processes::look();
        let own = std::process::id();
        let address = listener.local_addr().unwrap();
        assert_eq!(processes.listener(address, false).map(|it| it.id), Some(own));
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port());
        assert_eq!(processes.listener(any, false).map(|it| it.id), Some(own));
        assert_eq!(processes.holder(&path).map(|it| it.id), Some(own));
        assert_eq!(processes.holder(folder.path()), None);
        // Closing is not enough while a child of another test holds a copy.
        file.unlock().unwrap();
        assert_eq!(Processes::look().holder(&path), None);
    }
}
