//! The services of this program: what each brings to the configuration, as one value on one line.
//!
//! ```text
//!                 ┌── tables ────▶ which keys of the file are known, and the JSON schema
//!   SERVICES ─────┼── check ─────▶ what the file declares, read into `Config`
//!   (values of    ├── listeners ─▶ whose address is whose, what TLS is read, what the doctor looks at
//!    modules)     └── warnings ──▶ what looks like a mistake
//! ```
//!
//! A service's value stands in its own module here (`gateway.rs`, `edge.rs`, ...), so that whoever adds one
//! writes that module and a line below. Still by name, elsewhere in this folder: the settings, the text of the reference
//! page, `Config::layers`, and which listeners must have a secret (`tokens.rs`).
//!
//! Settings are not in it: they are a group of the one table in `settings.rs`, from which flags and environment
//! variables are made.
//!
//! Rejected: a trait with a method for each of these. There is nothing to keep between the calls.

use std::net::SocketAddr;

use serde_json::{Value as Json, json};
use tidegate_net::tls::TlsFiles;

use super::checker::Checker;
use super::mistake::Origin;
use super::settings::TlsSettings;
use super::{Config, edge, gateway, intake_lists, policies, tokens};
use crate::serve::Standalone;

/// The services of this program, in the order in which they are checked: the edge's listeners must not have the
/// addresses of the gateway's.
pub const SERVICES: &[ServiceConfig] =
    &[policies::SERVICE, intake_lists::SERVICE, tokens::SERVICE, gateway::SERVICE, edge::SERVICE];

/// What a service brings to the configuration.
#[derive(Clone, Copy, Debug)]
pub struct ServiceConfig {
    /// What is its own in the file and no setting.
    pub tables: &'static [Table],
    /// Reads these tables into the configuration, whose settings are there already. A table with a mistake is left out.
    pub check: fn(&mut Checker<'_>, &mut Config),
    /// Its listeners, those too that are off.
    pub listeners: fn(&Config) -> Vec<ServiceListener<'_>>,
    /// What is not wrong but looks like a mistake.
    pub warnings: fn(&Config) -> Vec<String>,
    /// What serves it, if it asks nothing of the other services. Services that do ask others are wired in
    /// `serve/mod.rs`.
    pub serve: Option<Serve>,
}

/// Makes what serves a service.
pub type Serve = fn(&Config) -> Box<dyn Standalone>;

/// A table of the file, or a list of tables, that is no setting.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name, as `route`, or the group of settings beside which it stands and its name: `gateway.listener`.
    pub path: &'static str,
    /// Its JSON schema.
    pub schema: fn() -> Json,
}

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

/// What is accepted where listeners clash.
pub(super) const ADDRESS_OF_ITS_OWN: &str = "an address of its own";

/// Why a listener cannot have this address beside those that are taken, if it cannot.
pub(super) fn clash(taken: &[(String, SocketAddr)], address: SocketAddr) -> Option<String> {
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

/// The JSON schema of a list of up to `most` tables with these keys. What each accepts is said by `tidegate check`, and
/// on the reference page.
pub(super) fn list_schema(keys: &[&str], most: usize, required: &[&str]) -> Json {
    let properties: serde_json::Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), json!({}))).collect();
    json!({
        "type": "array",
        "maxItems": most,
        "items": {
            "type": "object",
            "additionalProperties": false,
            "required": required,
            "properties": properties,
        },
    })
}
