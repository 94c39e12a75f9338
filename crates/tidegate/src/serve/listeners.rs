//! The listeners that are open, and what becomes of them when the file is loaded again.
//!
//! ```text
//!   Config ──Listening::wanted──▶ wanted ─┐
//!                                         ├─compare─▶ keep ──────────────▶ as it is, by its new name
//!                        open, before ────┘           take over ─────────▶ the same sockets, another server
//!                                                     bind ──────────────▶ new sockets
//!                                                     (none of these) ───▶ closed: drains by itself
//! ```
//!
//! [`compare`] is the one place that compares. A service says what it wants by [`Listening`], and gives what serves one
//! listener by [`ServeListener`]. All that can fail is done by [`OpenListeners::prepare`], which changes nothing: it binds new
//! addresses and reads the TLS of what is opened. [`OpenListeners::commit`] cannot fail.
//!
//! A listener whose TLS, proxies or service changes at its address gets another server at the sockets that are there: one
//! accepts when the other no longer does, from the same queue, so that no connection is refused, and it works for the sockets
//! of a service manager, too. For this a second handle of each open socket is kept. The handles are dropped when the process
//! drains: otherwise the kernel would go on taking connections that nobody accepts. Rejected: to bind beside the old sockets,
//! since the kernel goes on giving connections to those until they are closed.
//!
//! What drains here has no grace before it stops accepting: no probe speaks of one listener.
//!
//! Deliberately absent: the API of registrations, the server of names and StatsD, which are bound at the start alone.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_algorithms::policy::Mistake;
use tidegate_edge::config::ListenerConfig;
use tidegate_net::drain::{Drain, DrainTiming};
use tidegate_net::listen::{ListenConfig, Listeners};
use tidegate_net::runtime::Cores;
use tidegate_net::tls::{NamedCertificates, TlsFiles};

use super::standalone::tls_of;
use crate::config::{Config, GatewayListener, Listener, Secured, TlsSettings, clash, load_tls_of};

/// What a listener is made of, beside its address.
#[derive(Clone, Debug)]
pub(super) enum Terms {
    /// The TLS in its group of settings.
    Settings(TlsSettings),
    /// All of a `[[gateway.listener]]`.
    Gateway(Box<GatewayListener>),
    /// An `[[edge.listener]]`, of which much changes without another server.
    Edge(Box<ListenerConfig>),
}

impl Terms {
    fn are_served_by(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Settings(one), Self::Settings(other)) => one == other,
            (Self::Gateway(one), Self::Gateway(other)) => one == other,
            (Self::Edge(one), Self::Edge(other)) => one.has_socket_of(other),
            _ => false,
        }
    }
}

/// A listener as the configuration declares it.
#[derive(Clone, Debug)]
pub(super) struct Declared {
    pub(super) listener: Listener,
    /// The address that it is to have. Port 0 stands for one that the kernel chooses.
    pub(super) address: SocketAddr,
    pub(super) terms: Terms,
}

impl Declared {
    fn is(&self, other: &Self) -> bool {
        self.address == other.address
            && self.listener.server() == other.listener.server()
            && self.terms.are_served_by(&other.terms)
    }

    /// Whether the sockets of this are what the other one needs.
    fn has_sockets_for(&self, other: &Self) -> bool {
        let is_of_same = self.listener.server() == other.listener.server();
        self.address == other.address && (self.address.port() != 0 || is_of_same)
    }
}

/// How a declared listener comes to its sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It is the open one at this place.
    Keep(usize),
    /// It takes the sockets of the open one at this place, which stops accepting.
    TakeOver(usize),
    /// It is bound.
    Bind,
}

/// The way of each listener of `after`. What is in no way of `before` is closed.
fn compare(before: &[&Declared], after: &[&Declared]) -> Vec<Way> {
    let mut left: Vec<usize> = (0..before.len()).collect();
    let mut find = |is_it: &dyn Fn(&Declared) -> bool| {
        let found = left.iter().position(|place| is_it(before[*place]))?;
        Some(left.remove(found))
    };
    // First what stays, so that nobody takes its sockets.
    let kept: Vec<_> = after.iter().map(|wanted| find(&|open| open.is(wanted))).collect();
    let ways = kept.into_iter().zip(after).map(|(kept, wanted)| {
        let taken = || find(&|open| open.has_sockets_for(wanted)).map(Way::TakeOver);
        kept.map(Way::Keep).or_else(taken).unwrap_or(Way::Bind)
    });
    ways.collect()
}

/// What serves one listener.
pub(super) trait ServeListener: fmt::Debug + Send + Sync {
    /// Begins to accept from `sockets`, until `drain` closes them.
    fn serve(&self, sockets: Listeners, drain: Drain, cores: &Cores);

    /// It accepts no more.
    fn closed(&self) {}
}

/// A listener that is to be there.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) declared: Declared,
    pub(super) server: Arc<dyn ServeListener>,
}

/// A service whose listeners come and go while it runs.
pub(super) trait Listening: fmt::Debug + Send + Sync {
    /// Its listeners by `config`.
    fn wanted(&self, config: &Config) -> Vec<Wanted>;
}

/// The listeners that have TLS now; clones share them.
#[derive(Clone, Debug, Default)]
pub struct SecuredListeners(Arc<Mutex<Vec<Secured>>>);

impl SecuredListeners {
    pub(super) fn new(secured: Vec<Secured>) -> Self {
        Self(Arc::new(Mutex::new(secured)))
    }

    /// Each with its TLS.
    #[must_use]
    pub fn now(&self) -> Vec<Secured> {
        self.0.lock().clone()
    }
}

/// What does not change while a process runs.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) workers: NonZeroUsize,
    pub(super) share_ports: bool,
    /// The drain of the process.
    pub(super) drain: Drain,
    pub(super) timing: DrainTiming,
    /// Certificates that are ordered, for listeners that show them.
    pub(super) named: NamedCertificates,
}

/// A listener that is open.
#[derive(Debug)]
struct OpenListener {
    wanted: Wanted,
    /// A second handle of its sockets, for who takes them over.
    spare: Listeners,
    drain: Drain,
}

/// The listeners that are open.
#[derive(Debug)]
pub(super) struct OpenListeners {
    ground: Ground,
    services: Vec<Arc<dyn Listening>>,
    secured: SecuredListeners,
    open: Mutex<Vec<OpenListener>>,
}

/// A listener of the next configuration, ready to be served.
#[derive(Debug)]
enum Ready {
    Kept(usize, Declared),
    Opened { wanted: Wanted, sockets: Listeners, spare: Listeners, taken_from: Option<usize> },
}

/// All listeners of the next configuration, ready to be served. Dropping it leaves all as it was.
#[derive(Debug)]
pub(super) struct ReadyListeners {
    listeners: Vec<Ready>,
    secured: Vec<Secured>,
}

impl OpenListeners {
    /// Of these services; none is open yet.
    pub(super) fn new(
        ground: Ground,
        services: Vec<Arc<dyn Listening>>,
        secured: SecuredListeners,
    ) -> Self {
        Self { ground, services, secured, open: Mutex::default() }
    }

    /// Begins to serve what was bound at the start.
    pub(super) fn start(&self, config: &Config, bound: Vec<(Listener, Listeners)>, cores: &Cores) {
        let mut wanted = self.wanted(config);
        for (listener, sockets) in bound {
            let Some(place) = wanted.iter().position(|it| it.declared.listener == listener) else {
                tracing::error!(listener = listener.label(), "a listener is bound that nobody serves");
                continue;
            };
            let wanted = wanted.swap_remove(place);
            match sockets.try_clone() {
                Ok(spare) => self.serve(wanted, sockets, spare, cores),
                Err(error) => {
                    tracing::error!(%error, listener = listener.label(), "no descriptors for a listener");
                }
            }
        }
    }

    /// Drops what would keep sockets open that nobody accepts from. To be called before the process drains.
    pub(super) fn release(&self) {
        self.open.lock().clear();
    }

    fn wanted(&self, config: &Config) -> Vec<Wanted> {
        self.services.iter().flat_map(|service| service.wanted(config)).collect()
    }

    fn serve(&self, wanted: Wanted, sockets: Listeners, spare: Listeners, cores: &Cores) {
        let drain = self.ground.drain.part();
        wanted.server.serve(sockets, drain.clone(), cores);
        self.open.lock().push(OpenListener { wanted, spare, drain });
    }

    /// Makes ready what `config` declares. Nothing that is open changes.
    ///
    /// # Errors
    /// Addresses that cannot be had, and TLS that cannot be served with.
    pub(super) async fn prepare(&self, config: &Config) -> Result<ReadyListeners, Vec<Mistake>> {
        let wanted = self.wanted(config);
        let after: Vec<&Declared> = wanted.iter().map(|it| &it.declared).collect();
        let before: Vec<Declared> = self.open.lock().iter().map(|it| it.wanted.declared.clone()).collect();
        let before: Vec<&Declared> = before.iter().collect();
        let ways = compare(&before, &after);
        let is_opened = |way: &Way| !matches!(way, Way::Keep(_));
        let opened = after.iter().zip(&ways).filter(|(_, way)| is_opened(way));
        let loaded = self.load(config, opened.map(|(it, _)| it.listener).collect()).await?;
        let secured = self.secured_after(&before, &after, &ways, loaded);
        let (mut listeners, mut mistakes) = (Vec::with_capacity(wanted.len()), Vec::new());
        for (wanted, way) in wanted.into_iter().zip(ways) {
            match self.ready(wanted, way, &before, &secured) {
                Ok(ready) => listeners.push(ready),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        if mistakes.is_empty() { Ok(ReadyListeners { listeners, secured }) } else { Err(mistakes) }
    }

    /// Reads the TLS of these listeners.
    async fn load(&self, config: &Config, opened: Vec<Listener>) -> Result<Vec<Secured>, Vec<Mistake>> {
        let (config, named) = (config.clone(), self.ground.named.clone());
        let read = move || load_tls_of(&config, &named, |listener| opened.contains(&listener));
        let mistake = |pointer: String, problem: String, accepted: &str| {
            vec![Mistake { pointer, problem, accepted: accepted.to_owned() }]
        };
        match tokio::task::spawn_blocking(read).await {
            Ok(Ok(loaded)) => Ok(loaded),
            Ok(Err(mistakes)) => {
                let each = mistakes.into_iter().flat_map(|it| {
                    mistake(pointer(&it.path), format!("cannot be used: {}", it.error), "files for TLS")
                });
                Err(each.collect())
            }
            Err(error) => Err(mistake(String::new(), error.to_string(), "files for TLS")),
        }
    }

    /// The TLS that is in force afterwards: what was loaded, and what stays, by its new name.
    fn secured_after(
        &self,
        before: &[&Declared],
        after: &[&Declared],
        ways: &[Way],
        loaded: Vec<Secured>,
    ) -> Vec<Secured> {
        let known = self.secured.now();
        let kept = after.iter().zip(ways).filter_map(|(wanted, way)| {
            let Way::Keep(place) = way else { return None };
            let secured = known.iter().find(|it| it.listener == before[*place].listener)?;
            Some(Secured { listener: wanted.listener, ..secured.clone() })
        });
        let is_elsewhere = |it: &&Secured| !before.iter().any(|open| open.listener == it.listener);
        let elsewhere = known.iter().filter(is_elsewhere).cloned();
        kept.chain(loaded).chain(elsewhere).collect()
    }

    fn ready(
        &self,
        wanted: Wanted,
        way: Way,
        before: &[&Declared],
        secured: &[Secured],
    ) -> Result<Ready, Mistake> {
        let Declared { listener, address, .. } = wanted.declared;
        let refused = |why: &dyn fmt::Display| Mistake {
            pointer: pointer(&listener.path("listen")),
            problem: format!("cannot be opened: {why}"),
            accepted: "an address of this machine that is free".to_owned(),
        };
        let (sockets, taken_from) = match way {
            Way::Keep(place) => return Ok(Ready::Kept(place, wanted.declared)),
            Way::TakeOver(place) => {
                let taken = self.open.lock().get(place).map(|open| open.spare.try_clone());
                let taken = taken.ok_or_else(|| refused(&"this process is stopping"))?;
                (taken.map_err(|error| refused(&error))?, Some(place))
            }
            Way::Bind => {
                // One of all addresses and one of a single address may be open side by side for a moment.
                let own = before.iter().map(|open| (String::new(), open.address)).collect::<Vec<_>>();
                let share_port = self.ground.share_ports || clash(&own, address).is_some();
                let config = ListenConfig { share_port, ..ListenConfig::new(address, self.ground.workers) };
                (Listeners::bind(&config).map_err(|error| refused(&error))?, None)
            }
        };
        let spare = sockets.try_clone().map_err(|error| refused(&error))?;
        let sockets = sockets.with_tls(tls_of(secured, listener));
        Ok(Ready::Opened { wanted, sockets, spare, taken_from })
    }

    /// Serves what is ready, and closes what is not in it.
    pub(super) fn commit(&self, ready: ReadyListeners, cores: &Cores) {
        let ReadyListeners { listeners, secured } = ready;
        *self.secured.0.lock() = secured;
        let before = std::mem::take(&mut *self.open.lock());
        let mut before: Vec<Option<OpenListener>> = before.into_iter().map(Some).collect();
        for ready in listeners {
            match ready {
                Ready::Kept(place, declared) => {
                    if let Some(mut kept) = before.get_mut(place).and_then(Option::take) {
                        kept.wanted.declared = declared;
                        self.open.lock().push(kept);
                    }
                }
                Ready::Opened { wanted, sockets, spare, taken_from } => {
                    let taken = taken_from.and_then(|place| before.get(place)?.as_ref());
                    if let Some(taken) = taken {
                        taken.drain.hand_on();
                    }
                    let (listener, address) = (wanted.declared.listener.label(), sockets.address());
                    let is_changed = taken.is_some();
                    tracing::info!(listener, %address, is_changed, "a listener is opened");
                    self.serve(wanted, sockets, spare, cores);
                }
            }
        }
        for closed in before.into_iter().flatten() {
            self.close(closed, cores);
        }
    }

    fn close(&self, closed: OpenListener, cores: &Cores) {
        let OpenListener { wanted, spare, drain } = closed;
        let (listener, address) = (wanted.declared.listener.label(), spare.address());
        tracing::info!(listener, %address, "a listener is closed: its connections drain");
        // Without the spare handle, the accept loops close the sockets.
        drop(spare);
        wanted.server.closed();
        let timing = DrainTiming { grace: Duration::ZERO, ..self.ground.timing };
        cores.spawn_on(0, async move {
            let aborted = drain.run(timing).await.aborted;
            if aborted > 0 {
                tracing::warn!(listener, %address, aborted, "connections of a closed listener were cut at the deadline");
            }
        });
    }
}

/// A path of the configuration, as a mistake says where it is.
fn pointer(path: &str) -> String {
    format!("/{}", path.replace('.', "/").replace('[', "/").replace(']', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(listener: Listener, port: u16, certificate: Option<&str>) -> Declared {
        let certificate = certificate.map(Into::into);
        let tls = TlsSettings { key: certificate.clone(), certificate, client_ca: None };
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        Declared { listener, address, terms: Terms::Settings(tls) }
    }

    fn ways(before: &[Declared], after: &[Declared]) -> Vec<Way> {
        let [before, after] = [before, after].map(|all| all.iter().collect::<Vec<_>>());
        compare(&before, &after)
    }

    #[test]
    fn listeners_that_are_the_same_stay_and_others_are_told_apart() {
        let before = [settings(Listener::GRPC, 1, None), settings(Listener::RESP, 2, Some("a"))];
        assert_eq!(ways(&before, &before), [Way::Keep(0), Way::Keep(1)]);
        let moved = [settings(Listener::GRPC, 3, None), settings(Listener::RESP, 2, Some("b"))];
        assert_eq!(ways(&before, &moved), [Way::Bind, Way::TakeOver(1)]);
        let swapped = [settings(Listener::GRPC, 2, None), settings(Listener::RESP, 1, Some("a"))];
        assert_eq!(ways(&before, &swapped), [Way::TakeOver(1), Way::TakeOver(0)]);
        assert_eq!(ways(&before, &[]), []);
    }

    #[test]
    fn ports_that_the_kernel_chose_stay_with_their_service() {
        let before = [settings(Listener::GRPC, 0, None), settings(Listener::RESP, 0, None)];
        assert_eq!(ways(&before, &before), [Way::Keep(0), Way::Keep(1)]);
        let secured = [settings(Listener::RESP, 0, Some("a"))];
        assert_eq!(ways(&before, &secured), [Way::TakeOver(1)]);
        assert_eq!(ways(&before[..1], &secured), [Way::Bind]);
    }

    #[test]
    fn a_listener_of_a_list_stays_when_one_before_it_goes() {
        let at = |place, port| settings(Listener::gateway(place), port, None);
        assert_eq!(ways(&[at(0, 1), at(1, 2)], &[at(0, 2)]), [Way::Keep(1)]);
    }

    #[test]
    fn a_mistake_says_where_the_listener_stands() {
        assert_eq!(pointer("gateway.listener[2].listen"), "/gateway/listener/2/listen");
        assert_eq!(pointer("grpc.listen"), "/grpc/listen");
    }
}
