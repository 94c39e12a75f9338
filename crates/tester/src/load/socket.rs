//! Opening connections, and sorting the errors of the operating system.
//!
//! A source address is bound with `IP_BIND_ADDRESS_NO_PORT`: the port is then chosen when the
//! connection is made, unique per four-tuple, so that one address carries its whole port range to
//! *each* target (without it, bind takes a port from all targets).

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    time::Duration,
};

use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with,
        sockopt::{set_socket_linger, set_tcp_nodelay},
    },
};

use tidegate_judge::measurement::ErrorClass;

/// Whether a connection was made at once or is still in the making.
pub(crate) enum Opened {
    Established(OwnedFd),
    InProgress(OwnedFd),
}

/// Starts a connection without waiting for it.
pub(crate) fn open(target: SocketAddr, source: Option<IpAddr>, nodelay: bool) -> Result<Opened, Errno> {
    let family = if target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    if nodelay {
        set_tcp_nodelay(&fd, true)?;
    }
    if let Some(address) = source {
        setsockopt(&fd, IpBindAddressNoPort, &true)
            .map_err(|error| Errno::from_raw_os_error(error as i32))?;
        bind(&fd, &SocketAddr::new(address, 0))?;
    }
    match connect(&fd, &target) {
        Ok(()) => Ok(Opened::Established(fd)),
        Err(Errno::INPROGRESS) => Ok(Opened::InProgress(fd)),
        Err(error) => Err(error),
    }
}

/// Makes closing `fd` send a reset, which leaves no TIME-WAIT behind: without it a ladder of steps
/// would run out of ports by its own past steps. Used only when a step is over.
pub(crate) fn close_without_time_wait(fd: OwnedFd) {
    // A socket that is already gone needs no linger.
    let _gone = set_socket_linger(&fd, Some(Duration::ZERO)).is_err();
    drop(fd);
}

/// Sorts an error of the operating system.
pub(crate) fn classify(error: Errno) -> ErrorClass {
    match error {
        Errno::CONNREFUSED => ErrorClass::Refused,
        Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => ErrorClass::Reset,
        Errno::TIMEDOUT => ErrorClass::Timeout,
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE => ErrorClass::AddressNotAvailable,
        Errno::MFILE | Errno::NFILE => ErrorClass::TooManyFiles,
        _ => ErrorClass::Other,
    }
}
