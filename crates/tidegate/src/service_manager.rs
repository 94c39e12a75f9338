//! Notices to systemd: ready, stopping, and that the process is alive.
//!
//! The protocol is sd_notify(3): datagrams to the socket in `NOTIFY_SOCKET`. Without a service
//! manager every call does nothing. The watchdog is fed from the main thread's runtime at half of
//! the interval in `WATCHDOG_USEC`, and only after each core has run a task of ours in between: a
//! core that is stuck gets the process restarted.
//!
//! Written here rather than taken from a crate, because sending must not block: a service manager
//! that does not read would stop the thread that handles signals. A datagram for which there is
//! no room is dropped, and the log says so.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use tidegate_net::runtime::Pulse;
use tokio::time::MissedTickBehavior;

/// The process serves.
pub fn ready() {
    tell("READY=1\n");
}

/// The process drains, and may take `deadline` for it.
pub fn stopping(deadline: Duration) {
    tell(&format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={}\n", deadline.as_micros()));
}

/// Feeds the watchdog for as long as every core answers `pulse`; ends at once if there is none.
pub async fn feed_watchdog(pulse: Pulse) {
    let Some(interval) = watchdog_interval() else { return };
    let mut ticks = tokio::time::interval((interval / 2).max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        pulse.beat().await;
        tell("WATCHDOG=1\n");
    }
}

/// The interval in which the service manager expects a sign of life from this very process.
fn watchdog_interval() -> Option<Duration> {
    let meant = env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
    let micros = env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    meant.then_some(Duration::from_micros(micros))
}

fn tell(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(path.as_encoded_bytes(), state) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}

/// `@` begins the name of an abstract socket.
fn send(path: &[u8], state: &str) -> io::Result<()> {
    let address = match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::str::from_utf8(path).map_err(io::Error::other)?)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_manager_that_does_not_read_blocks_nobody() {
        let name = format!("tidegate-test-{}", std::process::id());
        let deaf = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let path = format!("@{name}");
        let sent = (0..100_000).map_while(|_| send(path.as_bytes(), "WATCHDOG=1\n").ok()).count();
        assert!(sent > 0);
        let error = send(path.as_bytes(), "WATCHDOG=1\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(deaf);
    }
}
