//! TLS for a listener: the pair in force, how it is replaced, and the handshakes.
//!
//! ```text
//!   files --identity--> ServerConfig --swap--> in force --handshake--> stream for the protocol
//!           all checks                  ^
//!   reload -----------------------------+   a pair that fails a check changes nothing (fault 42)
//! ```
//!
//! A connection keeps the certificate that it was opened with; a new one gets what is in force. So a
//! rotation breaks no connection and refuses none.
//!
//! TLS 1.2 and 1.3, or 1.3 alone ([`TlsConfig::min_version`]), with the suites that rustls takes as safe. Sessions are resumed by tickets that the
//! client keeps, so that resumption costs no memory here; their keys live as long as the pair and are
//! replaced with it. A listener that asks for client certificates resumes none: a ticket would let a
//! client in for hours after its authority was taken off the list. No early data, which can be replayed.
//!
//! A listener may have several pairs of files, each for the names in its certificate, and certificates that are no files,
//! but ordered for names ([`NamedCertificates`]; who orders them puts them in force there). A client is shown what is of
//! the name that it asks for: of files first, then what was ordered, or else the pair for all others.
//!
//! Deliberately absent: ordering certificates, revocation lists, OCSP stapling, and what a client may do. A client certificate opens the listener and names the client
//! ([`peer_name`]); what may be asked there is decided by the service, as it is without TLS.

mod handshake;
mod identity;
mod named;
mod pairs;
mod peer;
mod settings;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tidegate_wire::tls_version::TlsVersion;
use tokio::sync::Semaphore;

pub use handshake::TlsStream;
pub use identity::{TlsError, TlsFault, TlsFile};
pub use named::{Named, NamedCertificates, NamedPair, NamedPairError};
pub use peer::peer_name;
pub use settings::{MAX_PAIRS, TlsSettings};

use crate::clock::wall;

/// Application protocols (ALPN) of a listener for HTTP/2 and HTTP/1.1, the preferred one first.
pub const HTTP: &[&[u8]] = &[b"h2", b"http/1.1"];
/// Application protocols of a listener for gRPC.
pub const GRPC: &[&[u8]] = &[b"h2"];

/// The server name that a client asks for as it is looked up: in lower case, without the last dot. No client should send that
/// dot (RFC 6066, 3), and browsers do for `https://a.example./`.
#[must_use]
pub fn looked_up(server_name: &str) -> String {
    server_name.strip_suffix('.').unwrap_or(server_name).to_ascii_lowercase()
}

/// A good bound for [`TlsConfig::max_handshakes`]: each takes up to 40 KiB, and a core can do a
/// thousand a second or more.
pub const MAX_HANDSHAKES: usize = 1_000;

/// The files of a certificate, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairFiles {
    /// The certificate, and after it those that lead to its authority.
    pub certificate: PathBuf,
    /// The certificate's private key, not encrypted: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

/// The files of a listener's TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The pair for clients that ask for no name, or for a name without a pair of its own.
    pub pair: Option<PairFiles>,
    /// What clients are shown that ask for a name in the certificate.
    pub named: Vec<PairFiles>,
    /// The authorities one of which must have signed a client's certificate; without them, none is
    /// asked for.
    pub client_ca: Option<PathBuf>,
    /// Whether a client without a certificate is let in, too; one with a bad certificate never is.
    pub is_client_auth_optional: bool,
}

/// A listener's TLS.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// Where its secrets are.
    pub files: TlsFiles,
    /// Certificates of names, beside the files.
    pub named: Option<NamedCertificates>,
    /// The application protocols it speaks: [`HTTP`], [`GRPC`], or nothing, if ALPN is not used.
    pub protocols: &'static [&'static [u8]],
    /// Protocols of the servers behind it, to which it passes bytes on as they are: these are agreed on, too.
    pub passed: Vec<Vec<u8>>,
    /// The oldest version that clients may speak.
    pub min_version: TlsVersion,
    /// From connecting to the turn of the handshake, and from there to its end.
    pub handshake_timeout: Duration,
    /// Handshakes at once, over all cores; others wait.
    pub max_handshakes: usize,
}

/// How a listener's certificate fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsStatus {
    /// The last second of the certificate in the files that ends first, since 1970; `None`: there is none.
    pub not_after: Option<u64>,
    /// Whether the last attempt to load the files again succeeded; true if there was none.
    pub is_reload_good: bool,
    /// Times that files loaded again were taken over.
    pub applied: u64,
    /// Times that files loaded again were refused.
    pub refused: u64,
    /// Handshakes under way; at [`TlsConfig::max_handshakes`], others wait.
    pub handshaking: usize,
}

impl TlsStatus {
    /// Seconds for which all certificates in the files are still good.
    #[must_use]
    pub fn seconds_left(&self) -> Option<u64> {
        Some(self.not_after?.saturating_sub(seconds_now()))
    }
}

/// A certificate of a file that is in force.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileCertificate {
    /// The file.
    pub file: PathBuf,
    /// The names in it, in lower case.
    pub names: Vec<String>,
    /// Its last second since 1970.
    pub not_after: u64,
}

/// A listener's TLS as it is in force; clones share it.
#[derive(Clone)]
pub struct Tls {
    shared: Arc<TlsState>,
}

struct TlsState {
    config: TlsConfig,
    in_force: ArcSwap<TlsInForce>,
    slots: Semaphore,
    is_reload_good: AtomicBool,
    applied: AtomicU64,
    refused: AtomicU64,
}

struct TlsInForce {
    server: Arc<ServerConfig>,
    /// Those of the files.
    certificates: Vec<CertificateInForce>,
}

/// A certificate of a file.
struct CertificateInForce {
    file: PathBuf,
    /// The names in it, in lower case.
    names: Vec<Box<str>>,
    /// Its last second since 1970.
    not_after: u64,
}

impl CertificateInForce {
    fn seconds_left(&self, now: u64) -> u64 {
        self.not_after.saturating_sub(now)
    }
}

impl Tls {
    /// Reads and checks the files. Blocks on the disk.
    ///
    /// # Errors
    /// The first file that cannot be used, and why.
    pub fn load(config: TlsConfig) -> Result<Self, TlsError> {
        let in_force = ArcSwap::from_pointee(in_force(&config)?);
        let slots = Semaphore::new(config.max_handshakes.clamp(1, Semaphore::MAX_PERMITS));
        Ok(Self {
            shared: Arc::new(TlsState {
                config,
                in_force,
                slots,
                is_reload_good: AtomicBool::new(true),
                applied: AtomicU64::new(0),
                refused: AtomicU64::new(0),
            }),
        })
    }

    /// Whether they are the TLS of the same listener: clones of one another.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Reads and checks the files again, and puts them in force for connections from now on. Blocks
    /// on the disk. For one caller at a time: of two, the slower one wins.
    ///
    /// # Errors
    /// The first file that cannot be used, and why; what was in force stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        let TlsState { config, in_force: current, is_reload_good, applied, refused, .. } = &*self.shared;
        let outcome = in_force(config).map(|new| current.store(Arc::new(new)));
        is_reload_good.store(outcome.is_ok(), Relaxed);
        if outcome.is_ok() { applied } else { refused }.fetch_add(1, Relaxed);
        outcome
    }

    /// Where the certificate, the key and the authorities are read from.
    #[must_use]
    pub fn files(&self) -> &TlsFiles {
        &self.shared.config.files
    }

    /// The files of certificates that are in force, with the seconds for which each is still good.
    #[must_use]
    pub fn certificates(&self) -> Vec<(PathBuf, u64)> {
        let (in_force, now) = (self.shared.in_force.load(), seconds_now());
        in_force.certificates.iter().map(|it| (it.file.clone(), it.seconds_left(now))).collect()
    }

    /// The certificates of files that are in force.
    #[must_use]
    pub fn of_files(&self) -> Vec<FileCertificate> {
        let in_force = self.shared.in_force.load();
        let of_file = |it: &CertificateInForce| FileCertificate {
            file: it.file.clone(),
            names: it.names.iter().map(ToString::to_string).collect(),
            not_after: it.not_after,
        };
        in_force.certificates.iter().map(of_file).collect()
    }

    /// Whether it shows certificates of names beside those of the files.
    #[must_use]
    pub fn shows_ordered(&self) -> bool {
        self.shared.config.named.is_some()
    }

    /// Seconds for which certificates of files are still good, by the first name in each, or by its file where it has no name. Of
    /// several under one, the one that ends first counts.
    #[must_use]
    pub fn seconds_left_by_name(&self) -> BTreeMap<String, u64> {
        let (in_force, now) = (self.shared.in_force.load(), seconds_now());
        let mut all = BTreeMap::new();
        for certificate in &in_force.certificates {
            let file = || certificate.file.display().to_string();
            let name = certificate.names.first().map_or_else(file, ToString::to_string);
            let left = certificate.seconds_left(now);
            all.entry(name).and_modify(|least: &mut u64| *least = left.min(*least)).or_insert(left);
        }
        all
    }

    /// How the certificates in force fare.
    #[must_use]
    pub fn status(&self) -> TlsStatus {
        let TlsState { config, in_force, slots, is_reload_good, applied, refused } = &*self.shared;
        TlsStatus {
            not_after: in_force.load().certificates.iter().map(|it| it.not_after).min(),
            is_reload_good: is_reload_good.load(Relaxed),
            applied: applied.load(Relaxed),
            refused: refused.load(Relaxed),
            handshaking: config.max_handshakes.saturating_sub(slots.available_permits()),
        }
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tls").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

fn in_force(config: &TlsConfig) -> Result<TlsInForce, TlsError> {
    let (server, certificates) = identity::load(config, seconds_now())?;
    Ok(TlsInForce { server: Arc::new(server), certificates })
}

fn seconds_now() -> u64 {
    wall().0 / 1_000_000_000
}
