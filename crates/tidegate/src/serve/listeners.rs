//! The listeners that come and go while a process runs, and what becomes of them when the file is loaded again.
//!
//! ```text
//!   Config ──Listening::wanted──▶ wanted ─┐
//!                                         ├─compare─▶ itself ──────▶ as it is, by its new place
//!                        open, before ────┘           another ─────▶ the same sockets, another server
//!                                                     kernel ──────▶ new sockets
//!                                                     (in none) ───▶ closed: drains by itself
//! ```
//!
//! A service says what it wants by [`Listening`], and gives what serves one listener by [`ServeListener`]. All that can fail
//! is done by [`OpenListeners::prepare`], which changes nothing that a client sees: it binds new addresses without listening,
//! and reads the TLS of what is opened. [`OpenListeners::commit`] listens.
//!
//! A listener whose TLS, proxies or service changes at its address gets another server at the sockets that are there: it
//! accepts from the same queue when the server before it no longer does, so that no connection is refused, and it works for the
//! sockets of a service manager, too. For this a second handle of each open socket is kept. The handles are dropped when the
//! process drains: otherwise the kernel would go on taking connections that nobody accepts. Rejected: to bind beside the old
//! sockets, since the kernel goes on giving connections to those until they are closed.
//!
//! A socket of a service manager that no listener has any more is kept: the manager goes on listening there, so that no other
//! socket can have the address, and a later file may ask for it again.
//!
//! What drains here has no grace before it stops accepting: balancers probe a process, and not one listener.
//!
//! Deliberately absent: the listeners of registrations, of names and of StatsD, which are bound at the start alone.

mod bound;
mod compare;
mod ground;
mod refusals;
mod secured;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_admin::Servers;
use tidegate_algorithms::policy::Mistake;
use tidegate_net::drain::{Drain, Stage};
use tidegate_net::listen::Listeners;
use tidegate_net::runtime::Cores;

use super::StartError;
use super::standalone::tls_of;
use crate::config::{Config, Listener, Secured, Settings, bound_addresses, clash, load_tls_of};
pub(super) use bound::BoundSockets;
pub(super) use compare::{DeclaredListener, ListenerTerms};
use compare::{SocketsFrom, compare};
pub(super) use ground::ListenGround;
use refusals::{expect_distinct, expect_no_orders, pointer};
pub use secured::SecuredListeners;

/// What serves one listener.
pub(super) trait ServeListener: fmt::Debug + Send + Sync {
    /// Begins to accept from `sockets`, until `drain` closes them.
    fn serve(&self, sockets: Listeners, drain: Drain, cores: &Cores);
}

/// A listener that is to be there.
#[derive(Clone, Debug)]
pub(super) struct WantedListener {
    pub(super) declared: DeclaredListener,
    pub(super) server: Arc<dyn ServeListener>,
}

/// A service whose listeners come and go while it runs.
pub(super) trait Listening: fmt::Debug + Send + Sync {
    /// Its listeners by `config`.
    fn wanted(&self, config: &Config) -> Vec<WantedListener>;

    /// `servers` and what its own count, unless they are counted elsewhere.
    fn counted(&self, servers: Servers) -> Servers {
        servers
    }
}

/// A listener that is open.
#[derive(Debug)]
struct OpenListener {
    wanted: WantedListener,
    /// A second handle of its sockets, for who takes them over.
    spare: Listeners,
    drain: Drain,
}

/// The listeners that are open.
#[derive(Debug)]
pub(super) struct OpenListeners {
    ground: ListenGround,
    services: Vec<Box<dyn Listening>>,
    secured: SecuredListeners,
    /// Of listeners that are bound at the start alone, with the paths of their settings.
    fixed: Vec<(String, SocketAddr)>,
    open: Mutex<Vec<OpenListener>>,
    /// What was bound at the start, until the process serves.
    adopted: Mutex<Vec<OpenedListener>>,
    /// The settings by which the open ones listen.
    settings: Mutex<Settings>,
    draining: Mutex<Vec<DrainingListener>>,
    /// Sockets of a service manager that no listener has.
    unused: Mutex<Vec<Listeners>>,
}

/// A listener that drains.
#[derive(Debug)]
struct DrainingListener {
    address: SocketAddr,
    drain: Drain,
    /// Those by which it was opened.
    settings: Settings,
}

/// A listener of the next configuration.
#[derive(Debug)]
enum ReadyListener {
    Kept(usize, DeclaredListener),
    Opened(Box<OpenedListener>),
}

/// A listener that is ready to be served.
#[derive(Debug)]
struct OpenedListener {
    wanted: WantedListener,
    sockets: Listeners,
    spare: Listeners,
    /// The open one whose sockets these are.
    taken_from: Option<usize>,
}

/// All listeners of the next configuration, ready to be served. Dropping it leaves all as it was.
#[derive(Debug)]
pub(super) struct ReadyListeners {
    listeners: Vec<ReadyListener>,
    secured: Vec<Secured>,
    settings: Settings,
}

impl OpenListeners {
    /// Of these services, with what was bound for the configuration that the process starts with. None is open yet.
    ///
    /// # Errors
    /// When the operating system gives no more descriptors.
    pub(super) fn new(
        ground: ListenGround,
        services: Vec<Box<dyn Listening>>,
        secured: SecuredListeners,
        config: &Config,
        bound: BoundSockets,
    ) -> Result<Self, StartError> {
        let wanted = services.iter().flat_map(|service| service.wanted(config));
        let own: Vec<String> = wanted.map(|it| it.declared.listener.path("listen")).collect();
        let fixed = bound_addresses(config).into_iter().filter(|(path, _)| !own.contains(path));
        let (fixed, settings) = (fixed.collect(), Mutex::new(config.settings.clone()));
        let (open, adopted, draining) = (Mutex::default(), Mutex::default(), Mutex::default());
        let unused = Mutex::default();
        let listeners = Self { ground, services, secured, fixed, open, adopted, settings, draining, unused };
        listeners.adopt(config, bound)?;
        Ok(listeners)
    }

    /// The settings by which the open listeners listen.
    pub(super) fn settings(&self) -> Settings {
        self.settings.lock().clone()
    }

    /// The settings of all listeners that have connections: of those that are open, and of those that drain.
    pub(super) fn served(&self) -> Vec<Settings> {
        let mut draining = self.draining.lock();
        draining.retain(|it| it.drain.stage() < Stage::Stopped);
        let draining = draining.iter().map(|it| it.settings.clone());
        draining.chain([self.settings()]).collect()
    }

    /// The listeners that have TLS at present.
    pub(super) fn secured(&self) -> &SecuredListeners {
        &self.secured
    }

    fn adopt(&self, config: &Config, bound: BoundSockets) -> Result<(), StartError> {
        let mut wanted = self.wanted(config);
        for (listener, sockets) in bound.into_parts() {
            // Invariant: what is bound is what is wanted.
            let Some(place) = wanted.iter().position(|it| it.declared.listener == listener) else { continue };
            let spare = sockets.try_clone().map_err(StartError::Descriptors)?;
            let wanted = wanted.remove(place);
            self.adopted.lock().push(OpenedListener { wanted, sockets, spare, taken_from: None });
        }
        Ok(())
    }

    /// Drops what would keep sockets open that nobody accepts from. To be called before the process drains.
    pub(super) fn release(&self) {
        self.open.lock().clear();
        self.unused.lock().clear();
    }

    fn wanted(&self, config: &Config) -> Vec<WantedListener> {
        self.services.iter().flat_map(|service| service.wanted(config)).collect()
    }

    /// Makes ready what `config` declares. Nothing that is open changes, and no new address takes connections yet.
    ///
    /// # Errors
    /// Addresses that cannot be had, and TLS that cannot be served with.
    pub(super) async fn prepare(&self, config: &Config) -> Result<ReadyListeners, Vec<Mistake>> {
        let wanted = self.wanted(config);
        let before: Vec<_> = self.open.lock().iter().map(|it| it.wanted.declared.clone()).collect();
        let after: Vec<&DeclaredListener> = wanted.iter().map(|it| &it.declared).collect();
        expect_distinct(&after)?;
        let from = compare(&before, &after);
        let is_opened = |from: &SocketsFrom| !matches!(from, SocketsFrom::Itself(_));
        let opened = after.iter().zip(&from).filter(|(_, from)| is_opened(from));
        let opened: Vec<&DeclaredListener> = opened.map(|(it, _)| *it).collect();
        if self.ground.ordered.is_none() {
            expect_no_orders(&opened)?;
        }
        let loaded = self.load(config, opened.iter().map(|it| it.listener).collect()).await?;
        let secured = self.secured_after(&before, &after, &from, loaded);
        let (mut listeners, mut mistakes) = (Vec::with_capacity(wanted.len()), Vec::new());
        for (wanted, from) in wanted.into_iter().zip(from) {
            match self.ready(wanted, from, &before, &secured) {
                Ok(ready) => listeners.push(ready),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        let settings = config.settings.clone();
        if mistakes.is_empty() { Ok(ReadyListeners { listeners, secured, settings }) } else { Err(mistakes) }
    }

    /// Reads the TLS of these listeners.
    async fn load(&self, config: &Config, opened: Vec<Listener>) -> Result<Vec<Secured>, Vec<Mistake>> {
        let (config, named) = (config.clone(), self.ground.ordered.clone().unwrap_or_default());
        let read = move || load_tls_of(&config, &named, |listener| opened.contains(&listener));
        let mistake = |pointer: String, problem: String| Mistake {
            pointer,
            problem,
            accepted: "files that TLS can be served with".to_owned(),
        };
        match tokio::task::spawn_blocking(read).await {
            Ok(Ok(loaded)) => Ok(loaded),
            Ok(Err(mistakes)) => {
                Err(mistakes.into_iter().map(|it| mistake(pointer(&it.path), it.error.to_string())).collect())
            }
            Err(error) => Err(vec![mistake(String::new(), error.to_string())]),
        }
    }

    /// The TLS that is in force afterwards: what was loaded, and what stays, by its new place.
    fn secured_after(
        &self,
        before: &[DeclaredListener],
        after: &[&DeclaredListener],
        from: &[SocketsFrom],
        loaded: Vec<Secured>,
    ) -> Vec<Secured> {
        let known = self.secured.now();
        let kept = after.iter().zip(from).filter_map(|(wanted, from)| {
            let SocketsFrom::Itself(place) = from else { return None };
            let secured = known.iter().find(|it| it.listener == before[*place].listener)?;
            Some(Secured { listener: wanted.listener, ..secured.clone() })
        });
        let is_elsewhere = |it: &&Secured| !before.iter().any(|open| open.listener == it.listener);
        let elsewhere = known.iter().filter(is_elsewhere).cloned();
        kept.chain(loaded).chain(elsewhere).collect()
    }

    fn ready(
        &self,
        wanted: WantedListener,
        from: SocketsFrom,
        before: &[DeclaredListener],
        secured: &[Secured],
    ) -> Result<ReadyListener, Mistake> {
        let DeclaredListener { listener, address, .. } = wanted.declared;
        let refused = |why: &dyn fmt::Display| Mistake {
            pointer: pointer(&listener.path("listen")),
            problem: format!("cannot be opened: {why}"),
            accepted: "an address of this machine that is free".to_owned(),
        };
        let (sockets, taken_from) = match from {
            SocketsFrom::Itself(place) => return Ok(ReadyListener::Kept(place, wanted.declared)),
            SocketsFrom::Another(place) => {
                let taken = self.open.lock().get(place).map(|open| open.spare.try_clone());
                let taken = taken.ok_or_else(|| refused(&"this process is stopping"))?;
                (taken.map_err(|error| refused(&error))?, Some(place))
            }
            SocketsFrom::Kernel => (self.reserve(address, before).map_err(|why| refused(&why))?, None),
        };
        let spare = sockets.try_clone().map_err(|error| refused(&error))?;
        let sockets = sockets.with_tls(tls_of(secured, listener));
        Ok(ReadyListener::Opened(Box::new(OpenedListener { wanted, sockets, spare, taken_from })))
    }

    /// Binds `address` beside those that are open, or says why not.
    fn reserve(&self, address: SocketAddr, open: &[DeclaredListener]) -> Result<Listeners, String> {
        if let Some(problem) = clash(&self.fixed, address) {
            return Err(format!("it {problem}, which stays until the next start"));
        }
        if let Some(unused) = self.unused.lock().iter().find(|unused| unused.address() == address) {
            return unused.try_clone().map_err(|error| error.to_string());
        }
        // The sockets of one that drains are closed a moment after it was given up.
        let draining = self.draining.lock().iter().map(|it| it.address).collect::<Vec<_>>();
        let held: Vec<_> = open.iter().map(|open| open.address).chain(draining).collect();
        self.ground.reserve(address, &held).map_err(|error| error.to_string())
    }

    /// Begins to serve what was bound at the start.
    pub(super) fn start(&self, cores: &Cores) {
        let adopted = std::mem::take(&mut *self.adopted.lock());
        adopted.into_iter().for_each(|opened| self.serve(opened, cores));
    }

    /// Serves what is ready, and closes what is not in it.
    pub(super) fn commit(&self, ready: ReadyListeners, cores: &Cores) {
        let ReadyListeners { listeners, secured, settings } = ready;
        self.secured.replace(secured);
        let settings = std::mem::replace(&mut *self.settings.lock(), settings);
        let before = std::mem::take(&mut *self.open.lock());
        let mut before: Vec<Option<OpenListener>> = before.into_iter().map(Some).collect();
        for ready in listeners {
            match ready {
                ReadyListener::Kept(place, declared) => {
                    if let Some(mut kept) = before.get_mut(place).and_then(Option::take) {
                        kept.wanted.declared = declared;
                        self.open.lock().push(kept);
                    }
                }
                ReadyListener::Opened(opened) => {
                    if let Some(taken) = opened.taken_from.and_then(|place| before.get(place)?.as_ref()) {
                        taken.drain.hand_on();
                        taken.drain.advance(Stage::Closed);
                    }
                    let (listener, address) =
                        (opened.wanted.declared.listener.label(), opened.sockets.address());
                    tracing::info!(listener, %address, "a listener is opened");
                    self.serve(*opened, cores);
                }
            }
        }
        for closed in before.into_iter().flatten() {
            self.draining.lock().push(DrainingListener {
                address: closed.spare.address(),
                drain: closed.drain.clone(),
                settings: settings.clone(),
            });
            self.close(closed, cores);
        }
    }

    fn serve(&self, opened: OpenedListener, cores: &Cores) {
        let OpenedListener { wanted, sockets, spare, .. } = opened;
        let address = sockets.address();
        self.unused.lock().retain(|unused| unused.address() != address);
        if let Err(error) = sockets.listen() {
            let listener = wanted.declared.listener.label();
            tracing::error!(listener, %address, %error, "cannot listen: no connection comes to this listener");
        }
        let drain = self.ground.drain.part();
        wanted.server.serve(sockets, drain.clone(), cores);
        self.open.lock().push(OpenListener { wanted, spare, drain });
    }

    fn close(&self, closed: OpenListener, cores: &Cores) {
        let OpenListener { wanted, spare, drain } = closed;
        let (listener, address) = (wanted.declared.listener.label(), spare.address());
        tracing::info!(listener, %address, "a listener is closed: its connections drain");
        let is_taken = || self.open.lock().iter().any(|open| open.spare.address() == address);
        if spare.is_inherited() && !is_taken() {
            tracing::warn!(
                listener,
                %address,
                "the service manager still listens there, and no listener has its socket: take it out of the socket unit, or \
                 the next start is refused"
            );
            self.unused.lock().push(spare);
        } else {
            // Without the spare handle, the accept loops close the sockets.
            drop(spare);
        }
        let timing = self.ground.timing;
        cores.spawn_on(0, async move {
            let aborted = drain.run(timing).await.aborted;
            if aborted > 0 {
                tracing::warn!(listener, %address, aborted, "connections of a closed listener were cut at the deadline");
            }
        });
    }
}
