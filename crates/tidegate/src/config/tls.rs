//! The TLS settings of the listeners: what must be given together, and whether it can be served with.
//!
//! [`super::load`] reads no files, so it checks only which settings are there. The files are read
//! by [`load_tls`], which both `tidegate check` and the start of the server call: what the one accepts,
//! the other can serve with.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_net::tls::{self, Tls, TlsConfig, TlsError, TlsFile, TlsFiles};

use super::mistake::{Found, Mistake};
use super::watch::{Stamp, stamp};
use super::{Config, Loaded, Mistakes, Settings};

/// A certificate that is good for less than this is worth a warning.
const SOON: Duration = Duration::from_secs(7 * 86_400);

/// A listener that may have TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// The decision API.
    Http,
    /// The admin API, if it has a listener of its own.
    Admin,
    /// The Envoy rate-limit service.
    Grpc,
    /// The Redis protocol.
    Resp,
    /// The metrics intake.
    Intake,
    /// The gateway, at this place among its listeners.
    Gateway(usize),
    /// The edge, at this place among its listeners.
    Edge(usize),
}

impl Listener {
    /// Those whose settings stand in the table of settings.
    const OF_SETTINGS: [Self; 5] = [Self::Http, Self::Admin, Self::Grpc, Self::Resp, Self::Intake];

    /// All of them.
    fn all(config: &Config) -> impl Iterator<Item = Self> {
        let gateway = (0..config.listeners.len()).map(Self::Gateway);
        let edge = (0..config.edge_listeners.len()).map(Self::Edge);
        Self::OF_SETTINGS.into_iter().chain(gateway).chain(edge)
    }

    /// The name of its server in metrics.
    #[must_use]
    pub const fn server(self) -> &'static str {
        match self {
            Self::Http => "api",
            Self::Admin => "admin",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
            Self::Intake => "intake",
            Self::Gateway(_) => "gateway",
            Self::Edge(_) => "edge",
        }
    }

    /// Its own name in metrics: its server's, and its place if the server has several.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::Gateway(place) | Self::Edge(place) => format!("{}[{place}]", self.server()),
            other => other.server().to_owned(),
        }
    }

    /// The path of one of its settings.
    fn path(self, setting: &str) -> String {
        match self {
            Self::Http => format!("http.{setting}"),
            Self::Admin => format!("admin.{setting}"),
            Self::Grpc => format!("grpc.{setting}"),
            Self::Resp => format!("resp.{setting}"),
            Self::Intake => format!("intake.{setting}"),
            Self::Gateway(place) | Self::Edge(place) => {
                format!("{}.listener[{place}].{setting}", self.server())
            }
        }
    }

    /// Certificate, key, client authorities, where the settings have them.
    fn values(self, settings: &Settings) -> [&Option<PathBuf>; 3] {
        match self {
            Self::Http => settings.http.tls.files(),
            Self::Admin => settings.admin.tls.files(),
            Self::Grpc => settings.grpc.tls.files(),
            Self::Resp => settings.resp.tls.files(),
            Self::Intake => settings.intake.tls.files(),
            Self::Gateway(_) | Self::Edge(_) => [&None, &None, &None],
        }
    }

    fn files(self, config: &Config) -> [&Option<PathBuf>; 3] {
        match self {
            Self::Gateway(place) => {
                let listener = &config.listeners[place];
                [&listener.tls_certificate, &listener.tls_key, &listener.tls_client_ca]
            }
            Self::Edge(place) => {
                let listener = &config.edge_listeners[place];
                [&listener.tls_certificate, &listener.tls_key, &listener.tls_client_ca]
            }
            other => other.values(&config.settings),
        }
    }

    fn is_client_auth_optional(self, config: &Config) -> bool {
        matches!(self, Self::Gateway(place) if config.listeners[place].is_client_auth_optional)
    }

    const fn protocols(self) -> &'static [&'static [u8]] {
        match self {
            Self::Http | Self::Admin | Self::Intake | Self::Gateway(_) => tls::HTTP,
            Self::Grpc => tls::GRPC,
            Self::Resp | Self::Edge(_) => &[],
        }
    }
}

/// A listener that has TLS.
#[derive(Clone, Debug)]
pub struct Secured {
    /// Which one.
    pub listener: Listener,
    /// Its TLS.
    pub tls: Tls,
    /// What its files were just before they were read.
    pub(crate) read: Vec<Stamp>,
}

/// What tells whether `files` have changed.
pub(crate) fn stamps(TlsFiles { certificate, key, client_ca, .. }: &TlsFiles) -> Vec<Stamp> {
    [Some(certificate), Some(key), client_ca.as_ref()].into_iter().flatten().map(|path| stamp(path)).collect()
}

/// Why a listener cannot have the TLS that its settings ask for.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct TlsMistake {
    /// Whose it is.
    pub listener: Listener,
    /// The setting that names the file.
    pub path: String,
    /// The file and what is wrong with it.
    pub error: TlsError,
}

/// Reads the files that TLS settings name; one entry for each listener that has TLS. Blocks on the
/// disk.
///
/// # Errors
/// For each listener the first file that cannot be used.
pub fn load_tls(config: &Config) -> Result<Vec<Secured>, Vec<TlsMistake>> {
    let (mut loaded, mut mistakes) = (Vec::new(), Vec::new());
    for listener in Listener::all(config) {
        let [Some(certificate), Some(key), client_ca] = listener.files(config) else { continue };
        let tls = TlsConfig {
            files: TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                client_ca: client_ca.clone(),
                is_client_auth_optional: listener.is_client_auth_optional(config),
            },
            protocols: listener.protocols(),
            handshake_timeout: config.settings.limits.header_deadline,
            max_handshakes: tls::MAX_HANDSHAKES,
        };
        let read = stamps(&tls.files);
        match Tls::load(tls) {
            Ok(tls) => loaded.push(Secured { listener, tls, read }),
            Err(error) => {
                let path = listener.path(match error.file {
                    TlsFile::Certificate => "tls_certificate",
                    TlsFile::Key => "tls_key",
                    TlsFile::ClientCa => "tls_client_ca",
                });
                mistakes.push(TlsMistake { listener, path, error });
            }
        }
    }
    if mistakes.is_empty() { Ok(loaded) } else { Err(mistakes) }
}

impl Loaded {
    /// Reads the files that the TLS settings name, as the server would. Warnings about certificates
    /// that expire soon. Blocks on the disk.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn check_tls(&self) -> Result<Vec<String>, Mistakes> {
        let found = match load_tls(&self.config) {
            Ok(loaded) => {
                let soon = loaded.iter().filter(|it| it.tls.status().seconds_left() < SOON.as_secs());
                return Ok(soon.map(|it| expires_soon(&it.tls)).collect());
            }
            Err(found) => found,
        };
        let mut list = Found::default();
        list.extend(found.into_iter().map(|TlsMistake { listener, path, error }| Mistake {
            origin: match listener {
                Listener::Gateway(place) => self.listener_origins[place].clone(),
                Listener::Edge(place) => self.edge_listener_origins[place].clone(),
                _ => self.origin(&path).clone(),
            },
            path,
            accepted: accepted(error.file).to_owned(),
            problem: error.to_string(),
        }));
        Err(Mistakes::new(self.file_name(), list).expect("at least one was found"))
    }
}

fn expires_soon(tls: &Tls) -> String {
    let hours = tls.status().seconds_left() / 3_600;
    format!("{} holds a certificate that expires in {hours} h", tls.files().certificate.display())
}

fn accepted(file: TlsFile) -> &'static str {
    match file {
        TlsFile::Certificate => "a PEM file with a certificate that is valid now",
        TlsFile::Key => "a PEM file with the certificate's private key, not encrypted",
        TlsFile::ClientCa => "a PEM file with the certificates of authorities",
    }
}

/// Refuses halves: a certificate and its key are given together, authorities beside them.
pub(super) fn cross_checks(settings: &Settings, refuse: &mut dyn FnMut(&str, String, &str)) {
    for listener in Listener::OF_SETTINGS {
        let [certificate, key, client_ca] =
            ["tls_certificate", "tls_key", "tls_client_ca"].map(|setting| listener.path(setting));
        match listener.values(settings) {
            [Some(_), None, _] => refuse(&certificate, format!("is given without {key}"), "both or neither"),
            [None, Some(_), _] => refuse(&key, format!("is given without {certificate}"), "both or neither"),
            [None, None, Some(_)] => {
                let problem = format!("is given without {certificate}");
                refuse(&client_ca, problem, "a certificate and its key beside it");
            }
            _ => {}
        }
    }
    let [certificate, ..] = settings.admin.tls.files();
    if settings.admin.listen.is_none() && certificate.is_some() {
        let problem = "is given without admin.listen".to_owned();
        refuse("admin.tls_certificate", problem, "an address for the admin API beside it");
    }
}
