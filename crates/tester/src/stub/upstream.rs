//! The stub's own client: a fixed number of connections to a service behind it, with one FIFO queue.
//!
//! A connection that fails fails its request (the client gets 502) and is opened again for the next.

use std::{collections::VecDeque, io, os::fd::OwnedFd};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use tidegate_wire::http1::{Limits, Read, ResponseReader};

use super::options::Upstream;
use crate::{
    load::socket::{Opened, open},
    poller::{Poller, Ready},
};

/// Marks a poller token as this pool's.
pub(super) const TOKEN: u64 = 1 << 63;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: upstream\r\n\r\n";

/// The request of a client: its place and generation.
pub(super) type StubClient = (u32, u32);

pub(super) struct LinkPool {
    target: Upstream,
    links: Vec<Link>,
    idle: Vec<usize>,
    waiting: VecDeque<StubClient>,
}

struct Link {
    fd: Option<OwnedFd>,
    connected: bool,
    client: Option<StubClient>,
    reader: ResponseReader,
}

impl LinkPool {
    /// A pool of `connections`, none of them open yet.
    pub(super) fn new(target: Upstream, connections: u32) -> Self {
        let link = || Link {
            fd: None,
            connected: false,
            client: None,
            reader: ResponseReader::new(Limits::default()),
        };
        Self {
            target,
            links: (0..connections).map(|_| link()).collect(),
            idle: (0..connections as usize).rev().collect(),
            waiting: VecDeque::new(),
        }
    }

    /// Sends a client's request on, now or when a connection is free. False: it failed at once.
    pub(super) fn submit(&mut self, client: StubClient, poller: &Poller) -> bool {
        match self.idle.pop() {
            Some(index) => self.begin(index, client, poller).is_ok() || self.abandon(index),
            None => {
                self.waiting.push_back(client);
                true
            }
        }
    }

    fn abandon(&mut self, index: usize) -> bool {
        self.links[index].fd = None;
        self.links[index].client = None;
        self.idle.push(index);
        false
    }

    fn begin(&mut self, index: usize, client: StubClient, poller: &Poller) -> io::Result<()> {
        let link = &mut self.links[index];
        link.client = Some(client);
        link.reader.begin(false);
        if link.fd.is_none() {
            let opened = open(self.target.address, None, true)?;
            link.connected = matches!(opened, Opened::Established(_));
            let (Opened::Established(fd) | Opened::InProgress(fd)) = opened;
            poller.add(&fd, TOKEN | index as u64)?;
            link.fd = Some(fd);
        }
        if link.connected { link.send() } else { Ok(()) }
    }

    /// News from a connection: the client it served and whether its request succeeded.
    pub(super) fn on_ready(
        &mut self,
        ready: Ready,
        buffer: &mut [u8],
        poller: &Poller,
    ) -> Option<(StubClient, bool)> {
        let index = (ready.token & !TOKEN) as usize;
        let link = self.links.get_mut(index)?;
        let outcome = link.advance(ready, buffer)?;
        let client = link.client.take();
        if !outcome || !link.reader.reusable() || client.is_none() {
            link.fd = None;
        }
        let client = client?;
        match self.waiting.pop_front() {
            // A failure at once leaves the connection idle; the client behind it gets the next one.
            Some(next) if self.begin(index, next, poller).is_err() => {
                self.abandon(index);
                self.waiting.push_front(next);
            }
            Some(_) => {}
            None => self.idle.push(index),
        }
        Some((client, outcome))
    }
}

impl Link {
    fn send(&mut self) -> io::Result<()> {
        let Some(fd) = &self.fd else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        // A request this short fits an empty socket buffer.
        let sent = send(fd, REQUEST, SendFlags::NOSIGNAL)?;
        if sent == REQUEST.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// `Some(succeeded)` when the exchange is over.
    fn advance(&mut self, ready: Ready, buffer: &mut [u8]) -> Option<bool> {
        if !self.connected {
            let fd = self.fd.as_ref()?;
            match rustix::net::sockopt::socket_error(fd) {
                Ok(Ok(())) if ready.writable => self.connected = true,
                Ok(Ok(())) => return None,
                _ => return Some(false),
            }
            if self.send().is_err() {
                return Some(false);
            }
        }
        loop {
            let fd = self.fd.as_ref()?;
            match recv(fd, &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => return Some(self.reader.close() == Ok(true)),
                Ok((length, _)) => match self.reader.read(&buffer[..length], &mut ()) {
                    Ok(Read::Done(_)) => return Some(self.reader.status() < 500),
                    Ok(Read::More) => {}
                    Err(_) => return Some(false),
                },
                Err(Errno::AGAIN) => return None,
                Err(Errno::INTR) => {}
                Err(_) => return Some(false),
            }
        }
    }
}
