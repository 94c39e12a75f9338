//! Listening sockets: one per core, all on the same port.
//!
//! With `SO_REUSEPORT` the kernel spreads new connections over the sockets of the group by a hash
//! of their addresses, so that cores share no accept queue and no lock. A second process could join such a group by
//! mistake, so binding first makes sure that the port is free; [`ListenConfig::share_port`] waives that, which is how
//! a new version starts beside the old one (upgrade under load: start the new process, then send SIGTERM to the old
//! one). Sockets for datagrams share a port only if all of them were bound to ([`bind_datagrams`]).
//!
//! Socket options are set on the listener: Linux copies them to each accepted connection, which
//! saves four system calls per connection. A peer that vanished without a word is noticed by
//! keepalive probes, or by `TCP_USER_TIMEOUT` when data is waiting for its acknowledgement, and
//! freed within 60 s (fault 38).
//!
//! Deliberately absent: Unix sockets, and any reading of configuration files.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::num::NonZeroUsize;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::proxied::Proxied;
use crate::tls::Tls;

/// Seconds of silence before the first keepalive probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);
/// Between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Unanswered probes after which the connection is reset: 20 + 3 x 10 = 50 s.
const KEEPALIVE_PROBES: u32 = 3;
/// How long sent data may stay unacknowledged.
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Where and how to listen.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// The address to bind. Port 0 lets the kernel choose one port for the whole group.
    pub address: SocketAddr,
    /// Connections that may wait in each socket's accept queue; the kernel caps it at
    /// `net.core.somaxconn`.
    pub backlog: u16,
    /// Sockets in the group: one per core that will accept.
    pub sockets: NonZeroUsize,
    /// Joins a port on which another process of the same user already listens.
    pub share_port: bool,
}

impl ListenConfig {
    /// A backlog of 4,096, and a port that no other process shares.
    #[must_use]
    pub fn new(address: SocketAddr, sockets: NonZeroUsize) -> Self {
        Self { address, backlog: 4096, sockets, share_port: false }
    }
}

/// Why a listener could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process listens there.
    #[error("cannot listen on {address}: the address is in use by another process")]
    AddressInUse {
        /// The address asked for.
        address: SocketAddr,
    },
    /// No interface of this machine has the address.
    #[error("cannot listen on {address}: this machine has no such address")]
    AddressNotAvailable {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The port is reserved for privileged users.
    #[error("cannot listen on {address}: not permitted (ports below 1024 need CAP_NET_BIND_SERVICE)")]
    NotPermitted {
        /// The address asked for.
        address: SocketAddr,
    },
    /// Anything else the operating system said.
    #[error("cannot listen on {address}: {source}")]
    System {
        /// The address asked for.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

impl ListenError {
    fn new(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::AddressInUse { address },
            io::ErrorKind::AddrNotAvailable => Self::AddressNotAvailable { address },
            io::ErrorKind::PermissionDenied => Self::NotPermitted { address },
            _ => Self::System { address, source },
        }
    }
}

/// A bound group of sockets. Once they listen, connections queue; they are not accepted yet.
#[derive(Debug)]
pub struct Listeners {
    address: SocketAddr,
    sockets: Vec<TcpListener>,
    backlog: u16,
    is_inherited: bool,
    tls: Option<Tls>,
    proxied: Option<Proxied>,
}

/// One socket of a group, for one core.
#[derive(Debug)]
pub struct ListenSocket {
    pub(crate) socket: TcpListener,
    /// The service manager holds it too, and keeps it open when this process is gone.
    pub(crate) is_inherited: bool,
}

impl Listeners {
    /// Binds the group and listens.
    ///
    /// # Errors
    /// The first socket that could not be bound, by cause.
    pub fn bind(config: &ListenConfig) -> Result<Self, ListenError> {
        let group = Self::reserve(config)?;
        group.listen().map_err(|source| ListenError::new(config.address, source))?;
        Ok(group)
    }

    /// Binds the group and does not listen: no connection comes, and if it is dropped, no client has noticed. Another process of
    /// the same user could bind the address until [`Listeners::listen`].
    ///
    /// # Errors
    /// The first socket that could not be bound, by cause.
    pub fn reserve(config: &ListenConfig) -> Result<Self, ListenError> {
        Self::bind_group(config).map_err(|source| ListenError::new(config.address, source))
    }

    /// Begins to listen. Sockets that listen already go on as before.
    ///
    /// # Errors
    /// When the operating system refuses it.
    pub fn listen(&self) -> io::Result<()> {
        let mut sockets = self.sockets.iter().filter(|_| !self.is_inherited);
        sockets.try_for_each(|socket| SockRef::from(socket).listen(i32::from(self.backlog)))
    }

    /// Whether a service manager holds the sockets, too.
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.is_inherited
    }

    /// Takes over a socket that is already listening (systemd socket activation), for `sockets`
    /// cores that will accept from its one queue. The service manager keeps holding it: connections in the queue when
    /// a drain closes the listener are left to the process that comes next.
    ///
    /// # Errors
    /// When the descriptor is not listening, or cannot be duplicated or configured.
    pub fn adopt(listener: &TcpListener, sockets: NonZeroUsize) -> io::Result<Self> {
        if !SockRef::from(listener).is_listener()? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket does not listen"));
        }
        listener.set_nonblocking(true)?;
        set_connection_options(&SockRef::from(listener))?;
        let sockets = (0..sockets.get()).map(|_| listener.try_clone()).collect::<io::Result<_>>()?;
        let address = listener.local_addr()?;
        Ok(Self { address, sockets, backlog: 0, is_inherited: true, tls: None, proxied: None })
    }

    /// The same sockets once more, without their TLS and proxies: for another server to accept from. The kernel closes them
    /// when both are gone.
    ///
    /// # Errors
    /// When the operating system gives no more descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        let sockets = self.sockets.iter().map(TcpListener::try_clone).collect::<io::Result<_>>()?;
        let (address, backlog, is_inherited) = (self.address, self.backlog, self.is_inherited);
        Ok(Self { address, sockets, backlog, is_inherited, tls: None, proxied: None })
    }

    /// Makes clients speak TLS, unless it is `None`.
    #[must_use]
    pub fn with_tls(self, tls: Option<Tls>) -> Self {
        Self { tls, ..self }
    }

    /// Whether clients must speak TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Has connections come from proxies, which state the client's address of each, unless it is `None`.
    #[must_use]
    pub fn with_proxied(self, proxied: Option<Proxied>) -> Self {
        Self { proxied, ..self }
    }

    /// The proxies that connections come from, if they come from any.
    #[must_use]
    pub fn proxied(&self) -> Option<&Proxied> {
        self.proxied.as_ref()
    }

    /// The TLS that clients must speak, if any.
    #[must_use]
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// The address bound, with the real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The sockets, one for each core that will accept.
    #[must_use]
    pub fn into_sockets(self) -> Vec<ListenSocket> {
        let Self { sockets, is_inherited, .. } = self;
        sockets.into_iter().map(|socket| ListenSocket { socket, is_inherited }).collect()
    }

    fn bind_group(config: &ListenConfig) -> io::Result<Self> {
        if !config.share_port && config.address.port() != 0 {
            // Without SO_REUSEPORT this fails when anybody listens there, sharing or not.
            socket(config.address)?.bind(&config.address.into())?;
        }
        let mut address = config.address;
        let mut sockets = Vec::with_capacity(config.sockets.get());
        for _ in 0..config.sockets.get() {
            let socket = socket(address)?;
            socket.set_reuse_port(true)?;
            set_connection_options(&socket)?;
            socket.bind(&address.into())?;
            let listener = TcpListener::from(socket);
            address = listener.local_addr()?;
            sockets.push(listener);
        }
        Ok(Self { address, sockets, backlog: config.backlog, is_inherited: false, tls: None, proxied: None })
    }
}

/// A socket for datagrams that does not block. With `share_port` other processes of the same user that say so too may
/// bind it beside this one; the kernel spreads datagrams over them by their senders.
///
/// # Errors
/// When it cannot be bound.
pub fn bind_datagrams(address: SocketAddr, share_port: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_port(share_port)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

fn set_connection_options(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    fn loopback(sockets: usize) -> ListenConfig {
        ListenConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)), NonZeroUsize::new(sockets).unwrap())
    }

    #[test]
    fn a_group_shares_one_port() {
        let group = Listeners::bind(&loopback(3)).unwrap();
        assert_ne!(group.address().port(), 0);
        for socket in &group.sockets {
            assert_eq!(socket.local_addr().unwrap(), group.address());
        }
    }

    #[test]
    fn a_port_in_use_is_named_unless_it_is_shared_on_purpose() {
        let first = Listeners::bind(&loopback(2)).unwrap();
        let mut again = ListenConfig { address: first.address(), ..loopback(2) };
        let error = Listeners::bind(&again).unwrap_err();
        assert!(matches!(error, ListenError::AddressInUse { address } if address == first.address()));
        assert!(error.to_string().contains("in use"));
        again.share_port = true;
        assert_eq!(Listeners::bind(&again).unwrap().address(), first.address());
    }

    #[test]
    fn a_reserved_address_takes_no_connection_until_it_is_listened_on() {
        let reserved = Listeners::reserve(&loopback(2)).unwrap();
        let address = reserved.address();
        let refused = TcpStream::connect(address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        reserved.listen().unwrap();
        TcpStream::connect(address).unwrap();
    }

    #[test]
    fn datagrams_share_a_port_only_on_purpose() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let shared = bind_datagrams(any, true).unwrap();
        let address = shared.local_addr().unwrap();
        assert_eq!(bind_datagrams(address, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(bind_datagrams(address, true).unwrap().local_addr().unwrap(), address);
        let own = bind_datagrams(any, false).unwrap();
        let error = bind_datagrams(own.local_addr().unwrap(), true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn fault_38_accepted_connections_inherit_the_options_that_free_dead_peers() {
        let group = Listeners::bind(&loopback(1)).unwrap();
        let _client = TcpStream::connect(group.address()).unwrap();
        let (accepted, _) = accept_blocking(&group.sockets[0]);
        let socket = SockRef::from(&accepted);
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.keepalive().unwrap());
        let longest = socket.tcp_keepalive_time().unwrap()
            + socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
        assert!(longest <= Duration::from_secs(60));
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
    }

    #[test]
    fn an_inherited_socket_serves_several_cores() {
        let inherited = TcpListener::bind("127.0.0.1:0").unwrap();
        let group = Listeners::adopt(&inherited, NonZeroUsize::new(2).unwrap()).unwrap();
        assert_eq!(group.address(), inherited.local_addr().unwrap());
        assert_eq!(group.into_sockets().len(), 2);
        let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let error = Listeners::adopt(&silent.into(), NonZeroUsize::MIN).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    fn accept_blocking(listener: &TcpListener) -> (TcpStream, SocketAddr) {
        listener.set_nonblocking(false).unwrap();
        listener.accept().unwrap()
    }
}
