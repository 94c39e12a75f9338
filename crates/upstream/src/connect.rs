//! How a backend is reached: its addresses, and the first of them that answers.
//!
//! A name's addresses are looked up again when their time is over, which is what DNS says ([`crate::ttl`]), or
//! [`Resolver::refresh`] where it says nothing: by who needs a connection, or asks again ([`Resolver::again`]). While that is
//! under way others go on with the last answer, and while it fails that stays. Several addresses are tried one after the
//! other, 250 ms apart and the earlier ones still waited for, families by turns (RFC 8305).
//!
//! If addresses of this machine are listed ([`Resolver::connect_from`]), connections begin at these, each in turn. An
//! address has some 28,000 ports for each destination; if it has none left, the next address is tried. The port is chosen
//! by the kernel when it knows where the connection goes (`IP_BIND_ADDRESS_NO_PORT`): otherwise a port would be one for all
//! places.
//!
//! The whole has one deadline: a black hole costs that and no more.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use parking_lot::{Mutex, MutexGuard};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::backend::{Host, Target};
use crate::ttl;

/// Time between two attempts at different addresses of one name.
const STAGGER: Duration = Duration::from_millis(250);

/// Most addresses of a name that are kept.
const MAX_ADDRESSES: usize = 16;

/// The pause before servers of names that said nothing are asked again for how long addresses hold. Each pause is twice as long as
/// the one before, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// When a connection without traffic is probed, and how long data may stay without an acknowledgement: a
/// half-open peer is noticed within a minute.
const KEEPALIVE: Duration = Duration::from_secs(15);
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Linux' error when an address has no port left, or is not of this machine (`EADDRNOTAVAIL`).
const NO_PORT: i32 = 99;

/// Most addresses of this machine that connections may begin at.
pub const MAX_SOURCES: usize = 64;

/// Looks names up and remembers the answers; clones share them.
#[derive(Clone, Debug)]
pub struct Resolver {
    /// How long an answer is used before the name is looked up again, where its own time is not known.
    refresh: Duration,
    known: Arc<Mutex<HashMap<Box<str>, ResolvedName>>>,
    /// The address whose turn it is, among those that connections begin at.
    turn: Arc<AtomicUsize>,
}

/// What was found of a name.
#[derive(Debug)]
struct ResolvedName {
    addresses: Arc<[IpAddr]>,
    until: Instant,
    /// Finds out for how long they hold. It is there to be dropped with them.
    _learning: Option<LearningTask>,
}

/// A task that ends when this is dropped. So a name has one at most, however often it is looked up, and a name that was forgotten none.
#[derive(Debug)]
struct LearningTask(AbortHandle);

impl Drop for LearningTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Resolver {
    /// A resolver that uses answers for as long as they say, or for `refresh`. Zero: for no time, whatever they say.
    #[must_use]
    pub fn new(refresh: Duration) -> Self {
        Self { refresh, known: Arc::default(), turn: Arc::default() }
    }

    /// Connects to `target` within `deadline`, ready for a proxy's use: no delay for small writes, probes
    /// for a peer that is gone.
    ///
    /// # Errors
    /// When it has no address, none of them answers, or the time is over.
    pub async fn connect(&self, target: &Target, deadline: Duration) -> io::Result<TcpStream> {
        self.connect_timed(target, deadline).await.map(|(stream, _)| stream)
    }

    /// As [`Resolver::connect`], from one of `sources`, each in turn; from any address of this machine if there are none.
    ///
    /// # Errors
    /// As [`Resolver::connect`]; and as an address that has no port left, if none of them has.
    pub async fn connect_from(
        &self,
        sources: &[IpAddr],
        target: &Target,
        deadline: Duration,
    ) -> io::Result<TcpStream> {
        self.connect_in_time(sources, target, deadline).await.map(|(stream, _)| stream)
    }

    /// As [`Resolver::connect`], with how long the connection that succeeded took: a round trip, without the look-up
    /// of a name and the addresses that did not answer.
    ///
    /// # Errors
    /// As [`Resolver::connect`].
    pub async fn connect_timed(
        &self,
        target: &Target,
        deadline: Duration,
    ) -> io::Result<(TcpStream, Duration)> {
        self.connect_in_time(&[], target, deadline).await
    }

    async fn connect_in_time(
        &self,
        sources: &[IpAddr],
        target: &Target,
        deadline: Duration,
    ) -> io::Result<(TcpStream, Duration)> {
        let connecting = async {
            let turn = if sources.is_empty() { 0 } else { self.turn.fetch_add(1, Relaxed) };
            let from = SourceAddresses { sources, turn };
            let (stream, took) = match &target.host {
                Host::Address(ip) => from.connect(SocketAddr::new(*ip, target.port)).await?,
                Host::Name(name) => first(&self.addresses(name).await?, target.port, from).await?,
            };
            stream.set_nodelay(true)?;
            let socket = SockRef::from(&stream);
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE))?;
            socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
            Ok((stream, took))
        };
        timeout(deadline, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// The addresses of `name`, as fresh as they can be had.
    async fn addresses(&self, name: &str) -> io::Result<Arc<[IpAddr]>> {
        let last = match self.known().get_mut(name) {
            Some(known) if Instant::now() < known.until => return Ok(Arc::clone(&known.addresses)),
            Some(known) => {
                // Others go on with the last answer while this one asks.
                known.until = Instant::now() + self.refresh;
                Some(Arc::clone(&known.addresses))
            }
            None => None,
        };
        match lookup_host((name, 0)).await {
            Ok(found) => {
                let addresses: Arc<[IpAddr]> = alternated(found.map(|address| address.ip()).collect()).into();
                if addresses.is_empty() {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
                }
                self.remember(name, &addresses);
                Ok(addresses)
            }
            Err(error) => last.ok_or(error),
        }
    }

    /// Remembers what was found of `name`, in the place of what was found before, and begins to find out for how long it holds.
    fn remember(&self, name: &str, addresses: &Arc<[IpAddr]>) {
        let found = Instant::now();
        // Held over both, so that the task finds what it is about.
        let mut known = self.known();
        let learning = (!self.refresh.is_zero()).then(|| {
            let task = tokio::spawn(self.clone().learn(name.into(), Arc::clone(addresses), found));
            LearningTask(task.abort_handle())
        });
        let fresh = ResolvedName {
            addresses: Arc::clone(addresses),
            until: found + self.refresh,
            _learning: learning,
        };
        let before = known.insert(name.into(), fresh);
        drop(known);
        drop(before);
    }

    /// Finds out for how long it holds what was found of `name`. Ends in any case when the system is to be asked again.
    async fn learn(self, name: Box<str>, addresses: Arc<[IpAddr]>, found: Instant) {
        let mut pause = FIRST_PAUSE;
        loop {
            match ttl::holds(&name, &addresses, self.refresh).await {
                Ok(None) => return,
                Ok(Some(time)) => {
                    if let Some(known) = self.known().get_mut(&*name)
                        && Arc::ptr_eq(&known.addresses, &addresses)
                    {
                        known.until = found + time;
                    }
                    return;
                }
                // A question or its reply was lost, or the server is busy.
                Err(ttl::NoServerAnswered) => {}
            }
            if found.elapsed() + pause >= self.refresh {
                return;
            }
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// The addresses of a name that was looked up before, as fresh as they can be had; `None` if it was not.
    pub async fn again(&self, name: &str) -> Option<Arc<[IpAddr]>> {
        let is_known = self.known().contains_key(name);
        if is_known { self.addresses(name).await.ok() } else { None }
    }

    /// Forgets the names that `is_unused` says so of.
    pub fn forget(&self, is_unused: impl Fn(&str) -> bool) {
        self.known().retain(|name, _| !is_unused(name));
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Box<str>, ResolvedName>> {
        self.known.lock()
    }
}

/// The families by turns, the first one's first, without repetitions.
fn alternated(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let first_is_v6 = addresses.first().is_some_and(IpAddr::is_ipv6);
    let (same, other): (Vec<IpAddr>, Vec<IpAddr>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let (mut same, mut other) = (same.into_iter(), other.into_iter());
    let mut mixed: Vec<IpAddr> = Vec::new();
    loop {
        let pair = [same.next(), other.next()];
        if pair == [None, None] || mixed.len() >= MAX_ADDRESSES {
            return mixed;
        }
        for address in pair.into_iter().flatten() {
            if !mixed.contains(&address) {
                mixed.push(address);
            }
        }
    }
}

type ConnectAttempt<'a> = Pin<Box<dyn Future<Output = io::Result<(TcpStream, Duration)>> + Send + 'a>>;

/// Where connections begin.
#[derive(Clone, Copy)]
struct SourceAddresses<'a> {
    /// Addresses of this machine; none: any.
    sources: &'a [IpAddr],
    /// Which of them is the first that is tried.
    turn: usize,
}

impl SourceAddresses<'_> {
    /// A connection, and how long it took.
    async fn connect(self, address: SocketAddr) -> io::Result<(TcpStream, Duration)> {
        let began = Instant::now();
        if self.sources.is_empty() {
            let stream = TcpStream::connect(address).await?;
            return Ok((stream, began.elapsed()));
        }
        let mut last =
            io::Error::new(io::ErrorKind::Unsupported, "no source address is of its version of IP");
        for index in 0..self.sources.len() {
            let source = self.sources[(self.turn % self.sources.len() + index) % self.sources.len()];
            if source.is_ipv4() != address.is_ipv4() {
                continue;
            }
            match connect_at(source, address).await {
                Err(error) if error.raw_os_error() == Some(NO_PORT) => last = error,
                connected => return connected.map(|stream| (stream, began.elapsed())),
            }
        }
        Err(last)
    }
}

async fn connect_at(source: IpAddr, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if source.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    setsockopt(&socket, IpBindAddressNoPort, &true)?;
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(address).await
}

/// The first connection that any of `addresses` gives, and how long it took.
async fn first(
    addresses: &[IpAddr],
    port: u16,
    from: SourceAddresses<'_>,
) -> io::Result<(TcpStream, Duration)> {
    let mut attempts: Vec<ConnectAttempt<'_>> = Vec::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "there is no address to connect to");
    let mut next = addresses.iter();
    loop {
        let more = match next.next() {
            Some(ip) => {
                attempts.push(Box::pin(from.connect(SocketAddr::new(*ip, port))));
                true
            }
            None => false,
        };
        if attempts.is_empty() {
            return Err(last);
        }
        let any = poll_fn(|cx| {
            let mut index = 0;
            while index < attempts.len() {
                match attempts[index].as_mut().poll(cx) {
                    Poll::Ready(Ok(connected)) => return Poll::Ready(Some(connected)),
                    Poll::Ready(Err(error)) => {
                        last = error;
                        drop(attempts.swap_remove(index));
                    }
                    Poll::Pending => index += 1,
                }
            }
            if attempts.is_empty() { Poll::Ready(None) } else { Poll::Pending }
        });
        let connected =
            if more { timeout_at(Instant::now() + STAGGER, any).await.unwrap_or(None) } else { any.await };
        if let Some(connected) = connected {
            return Ok(connected);
        }
    }
}
