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
use super::{Loaded, Mistakes, Settings};

/// A certificate that is good for less than this is worth a warning.
const SOON: Duration = Duration::from_secs(7 * 86_400);

/// A listener that may have TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    /// The decision API.
    Http,
    /// The Envoy rate-limit service.
    Grpc,
    /// The Redis protocol.
    Resp,
}

impl Listener {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Http, Self::Grpc, Self::Resp];

    /// Its name in metrics: that of its server.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Http => "api",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
        }
    }

    /// The paths of its settings: certificate, key, client authorities.
    const fn paths(self) -> [&'static str; 3] {
        match self {
            Self::Http => ["http.tls_certificate", "http.tls_key", "http.tls_client_ca"],
            Self::Grpc => ["grpc.tls_certificate", "grpc.tls_key", "grpc.tls_client_ca"],
            Self::Resp => ["resp.tls_certificate", "resp.tls_key", "resp.tls_client_ca"],
        }
    }

    fn values(self, settings: &Settings) -> [&Option<PathBuf>; 3] {
        let tls = match self {
            Self::Http => &settings.http.tls,
            Self::Grpc => &settings.grpc.tls,
            Self::Resp => &settings.resp.tls,
        };
        tls.files()
    }

    const fn protocols(self) -> &'static [&'static [u8]] {
        match self {
            Self::Http => tls::HTTP,
            Self::Grpc => tls::GRPC,
            Self::Resp => &[],
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
pub(crate) fn stamps(TlsFiles { certificate, key, client_ca }: &TlsFiles) -> Vec<Stamp> {
    [Some(certificate), Some(key), client_ca.as_ref()].into_iter().flatten().map(|path| stamp(path)).collect()
}

/// Why a listener cannot have the TLS that its settings ask for.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct TlsMistake {
    /// The setting that names the file.
    pub path: &'static str,
    /// The file and what is wrong with it.
    pub error: TlsError,
}

/// Reads the files that the TLS settings name; one entry for each listener that has TLS. Blocks on the
/// disk.
///
/// # Errors
/// For each listener the first file that cannot be used.
pub fn load_tls(settings: &Settings) -> Result<Vec<Secured>, Vec<TlsMistake>> {
    let (mut loaded, mut mistakes) = (Vec::new(), Vec::new());
    for listener in Listener::ALL {
        let [Some(certificate), Some(key), client_ca] = listener.values(settings) else { continue };
        let config = TlsConfig {
            files: TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                client_ca: client_ca.clone(),
            },
            protocols: listener.protocols(),
            handshake_timeout: settings.limits.header_deadline,
            max_handshakes: tls::MAX_HANDSHAKES,
        };
        let read = stamps(&config.files);
        match Tls::load(config) {
            Ok(tls) => loaded.push(Secured { listener, tls, read }),
            Err(error) => {
                let [certificate, key, client_ca] = listener.paths();
                let path = match error.file {
                    TlsFile::Certificate => certificate,
                    TlsFile::Key => key,
                    TlsFile::ClientCa => client_ca,
                };
                mistakes.push(TlsMistake { path, error });
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
        let found = match load_tls(&self.config.settings) {
            Ok(loaded) => {
                let soon = loaded.iter().filter(|it| it.tls.status().seconds_left() < SOON.as_secs());
                return Ok(soon.map(|it| expires_soon(&it.tls)).collect());
            }
            Err(found) => found,
        };
        let mut list = Found::default();
        list.extend(found.into_iter().map(|TlsMistake { path, error }| Mistake {
            origin: self.origin(path).clone(),
            path: path.to_owned(),
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
    for listener in Listener::ALL {
        let [certificate_path, key_path, client_ca_path] = listener.paths();
        match listener.values(settings) {
            [Some(_), None, _] => {
                let problem = format!("is given without {key_path}");
                refuse(certificate_path, problem, "both or neither");
            }
            [None, Some(_), _] => {
                let problem = format!("is given without {certificate_path}");
                refuse(key_path, problem, "both or neither");
            }
            [None, None, Some(_)] => {
                let problem = format!("is given without {certificate_path}");
                refuse(client_ca_path, problem, "a certificate and its key beside it");
            }
            _ => {}
        }
    }
}
