//! A thin layer over epoll, edge-triggered.
//!
//! Edge-triggered, because a level-triggered descriptor is put back on the kernel's ready list each
//! time it is reported and looked at once more by the next wait: one needless poll per reply. The
//! ready list is a FIFO, and a reply is answered by one request only, so that connections take turns:
//! that is the whole of this engine's fairness.
//!
//! Waits are timed in nanoseconds (`epoll_pwait2`, Linux 5.11, rustix's feature of that name):
//! whole milliseconds would make every paced send and every planned delay up to 1 ms late.

use std::{io, os::fd::AsFd, os::fd::OwnedFd, time::Duration};

use rustix::{
    buffer::spare_capacity,
    event::{
        Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
    },
};

/// Events taken at once: enough to make the wait cheap, few enough that the one time stamp they
/// share is never far behind.
const BATCH: usize = 128;

/// Waits for descriptors.
pub(crate) struct Poller {
    epoll: OwnedFd,
    events: Vec<Event>,
}

/// What happened on a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    /// The token given to [`Poller::add`].
    pub(crate) token: u64,
    /// Bytes, an end of file or an error can be read.
    pub(crate) readable: bool,
    /// There is room to write, or an error.
    pub(crate) writable: bool,
    /// The peer will send no more.
    pub(crate) hung_up: bool,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(BATCH) })
    }

    /// Watches a connection for everything, at its edges.
    pub(crate) fn add(&self, fd: &impl AsFd, token: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)?)
    }

    /// Watches a listener or a pipe for input, as long as there is some.
    pub(crate) fn add_level(&self, fd: &impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), EventFlags::IN)?)
    }

    /// Stops watching.
    pub(crate) fn remove(&self, fd: &impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits at most `timeout`; the number of events, to be read by [`Poller::ready`].
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<usize> {
        self.events.clear();
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => Ok(0),
            other => Ok(other?),
        }
    }

    /// Event number `index` of the last wait.
    pub(crate) fn ready(&self, index: usize) -> Ready {
        let Event { flags, data } = self.events[index];
        let failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        Ready {
            token: data.u64(),
            readable: failed || flags.intersects(EventFlags::IN | EventFlags::RDHUP),
            writable: failed || flags.contains(EventFlags::OUT),
            hung_up: failed || flags.contains(EventFlags::RDHUP),
        }
    }
}
