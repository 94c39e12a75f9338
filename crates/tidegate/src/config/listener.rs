//! Listeners, as the configuration knows them: their names, their addresses, and where their TLS is said.

use std::net::SocketAddr;

use tidegate_net::tls::TlsFiles;
use tidegate_settings::mistake::Origin;
use tidegate_settings::table::TlsSettings;
use tidegate_wire::tls_version::TlsVersion;

use super::Config;

/// A listener, by what it is known in settings, messages and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    group: &'static str,
    server: &'static str,
    place: Option<usize>,
}

impl Listener {
    /// The listener of the server `server` whose settings are in the group `group`.
    #[must_use]
    pub const fn of_settings(group: &'static str, server: &'static str) -> Self {
        Self { group, server, place: None }
    }

    /// The listener at `place`, from 0, of the list `[[group.listener]]`.
    #[must_use]
    pub const fn of_list(group: &'static str, place: usize) -> Self {
        Self { group, server: group, place: Some(place) }
    }

    /// The name of its server in metrics.
    #[must_use]
    pub const fn server(self) -> &'static str {
        self.server
    }

    /// Its own name in metrics: its server's, and its place if the server has several.
    #[must_use]
    pub fn label(self) -> String {
        match self.place {
            Some(place) => format!("{}[{place}]", self.server),
            None => self.server.to_owned(),
        }
    }

    /// The path of one of its settings.
    #[must_use]
    pub fn path(self, setting: &str) -> String {
        match self.place {
            Some(place) => format!("{}.listener[{place}].{setting}", self.group),
            None => format!("{}.{setting}", self.group),
        }
    }
}

/// What the configuration says of a listener.
#[derive(Debug)]
pub struct ServiceListener<'a> {
    /// Which one.
    pub listener: Listener,
    /// The setting that has its address: mostly `listen`.
    pub setting: &'static str,
    /// Its address; `None`: it is off.
    pub address: Option<SocketAddr>,
    /// Its TLS, if it can have any.
    pub tls: Option<ListenerTls<'a>>,
}

impl<'a> ServiceListener<'a> {
    /// A listener whose address is the setting `listen` of its group, with the TLS settings that stand there, too.
    pub(super) fn of_settings(
        listener: Listener,
        address: Option<SocketAddr>,
        tls: &'a TlsSettings,
        protocols: &'static [&'static [u8]],
    ) -> Self {
        let tls = ListenerTls { source: TlsSource::Settings(tls), protocols };
        Self { listener, setting: "listen", address, tls: Some(tls) }
    }

    /// A listener without TLS.
    #[must_use]
    pub fn plain(listener: Listener, setting: &'static str, address: Option<SocketAddr>) -> Self {
        Self { listener, setting, address, tls: None }
    }

    /// Whether it shows the certificates that are ordered by ACME.
    pub(super) fn has_acme(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| matches!(tls.source, TlsSource::List { has_acme: true, .. }))
    }
}

/// The TLS that a listener can have.
#[derive(Debug)]
pub struct ListenerTls<'a> {
    /// What says whether it has any.
    pub source: TlsSource<'a>,
    /// The application protocols that it speaks.
    pub protocols: &'static [&'static [u8]],
}

/// Where it is said what a listener's TLS is made of.
#[derive(Debug)]
pub enum TlsSource<'a> {
    /// In its group of settings.
    Settings(&'a TlsSettings),
    /// In its table of a list, which was checked when it was read.
    List {
        /// The files.
        files: TlsFiles,
        /// Whether certificates that are ordered by ACME are shown.
        has_acme: bool,
        /// The application protocols of what is behind it, which are agreed on for it.
        passed: Vec<Box<str>>,
        /// The oldest version that clients may speak.
        min_version: TlsVersion,
    },
}

/// The listeners of all services that `config` was made for.
pub(crate) fn listeners(config: &Config) -> impl Iterator<Item = ServiceListener<'_>> {
    config.services.iter().flat_map(|service| (service.listeners)(config))
}

/// The addresses that are listened on, with the paths of their settings.
pub(crate) fn listen_addresses(config: &Config) -> Vec<(String, SocketAddr)> {
    listeners(config).filter_map(|it| Some((it.listener.path(it.setting), it.address?))).collect()
}

/// Those of them that a process binds: others are of services that have nothing to do.
pub(crate) fn bound_addresses(config: &Config) -> Vec<(String, SocketAddr)> {
    let has_edge = !config.edge_listeners.is_empty();
    let is_bound = |setting: &str| match setting {
        "edge.api_listen" => has_edge || config.gateway.has_apps(),
        "edge.dns_listen" => has_edge,
        "intake.statsd_listen" => config.settings.intake.listen.is_some(),
        _ => true,
    };
    let mut addresses = listen_addresses(config);
    addresses.retain(|(setting, _)| is_bound(setting));
    addresses
}

/// What is accepted where listeners clash.
pub(super) const ADDRESS_OF_ITS_OWN: &str = "an address of its own";

/// Why a listener cannot have this address beside those that are taken, if it cannot.
pub(crate) fn clash(taken: &[(String, SocketAddr)], address: SocketAddr) -> Option<String> {
    let has_all = |address: SocketAddr| address.ip().is_unspecified();
    let clashes = |other: SocketAddr| {
        address.port() != 0
            && address.port() == other.port()
            // A listener for all of IPv6 takes none of IPv4.
            && address.is_ipv4() == other.is_ipv4()
            && (address.ip() == other.ip() || has_all(address) || has_all(other))
    };
    let (path, other) = taken.iter().find(|(_, other)| clashes(*other))?;
    Some(if *other == address {
        format!("is {address}, as is {path}")
    } else {
        format!("is {address}, and {path} is {other}")
    })
}

/// Where a listener of a list stands. Of several at one place, all but the last had mistakes and were left out.
pub(super) fn origin_of(listener: Listener, origins: &[(Listener, Origin)]) -> Option<Origin> {
    origins.iter().rfind(|(other, _)| *other == listener).map(|(_, origin)| origin.clone())
}
