//! Whether the other end of a connection has everything that was written to it.
//!
//! A reset takes what its socket has not sent yet, and what is on its way and gets lost. To make it arrive, wait until the
//! other end's kernel has acknowledged it. Linux has no event for that, so the socket is looked at now and then.

use std::io;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, libc};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;
use tokio::net::TcpStream;

// What the kernel says of a connection. The macro is nix's way to read an option that nix has no type for.
nix::sockopt_impl!(
    /// `struct tcp_info`.
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    libc::tcp_info,
    nix::sys::socket::sockopt::GetStruct<libc::tcp_info>
);

/// Time from the first look to the second; each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// Longest time between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The pauses between looks.
#[derive(Debug)]
pub(crate) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Pauses {
    /// How long to wait until the next look.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (2 * pause).min(LONGEST_PAUSE);
        pause
    }
}

/// How many packets of `socket` have not been acknowledged, those that wait to be sent counted as one; 0: the other end
/// has everything, or is gone.
pub(crate) fn packets(socket: &TcpStream) -> u32 {
    let unacknowledged = getsockopt(socket, TcpInfo).map_or(0, |info| info.tcpi_unacked);
    unacknowledged + u32::from(is_any_waiting(socket).unwrap_or(false))
}

/// Whether `socket` has bytes that were not sent even once: it is not writable then, if it is told to count these.
fn is_any_waiting(socket: &TcpStream) -> io::Result<bool> {
    SockRef::from(socket).set_tcp_notsent_lowat(1)?;
    let mut asked = [PollFd::new(socket, PollFlags::OUT)];
    poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok(asked[0].revents().is_empty())
}
