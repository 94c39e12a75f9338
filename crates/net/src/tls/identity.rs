//! From files to a TLS configuration that works: everything that can be wrong with them is found
//! here, before anything is served with them.
//!
//! A pair is refused if its certificate is not valid now, its key is another certificate's, or its chain
//! is too large for a handshake: served, each would fail every handshake. Of the certificates that follow
//! the first one only the encoding is looked at, because chains with an expired cross-signed root at their
//! end work.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    DEFAULT_VERSIONS, Error, InconsistentKeys, RootCertStore, ServerConfig, SupportedProtocolVersion,
};
use tidegate_wire::tls_version::TlsVersion;
use tidegate_wire::x509::Validity;

use super::pairs::{Pairs, names};
use super::{CertificateInForce, PairFiles, TlsConfig};
use crate::clock::wall;

/// Largest file that is read, in bytes: every public authority there is takes a fifth of it.
const MAX_FILE_BYTES: usize = 1 << 20;

/// The most that a handshake shows of a file, in bytes: clients take no longer message (65,535 bytes in
/// rustls, 100 KiB in OpenSSL, 256 KiB in Go).
const MAX_SHOWN_BYTES: usize = 65_000;
/// What a message spends on each certificate or name in it, beside its bytes.
const SHOWN_OVERHEAD: usize = 5;

/// Which of a listener's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFile {
    /// [`PairFiles::certificate`](super::PairFiles::certificate)
    Certificate,
    /// [`PairFiles::key`](super::PairFiles::key)
    Key,
    /// [`TlsFiles::client_ca`](super::TlsFiles::client_ca)
    ClientCa,
}

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{} {fault}", path.display())]
pub struct TlsError {
    /// Which one it is.
    pub file: TlsFile,
    /// Its place among [`TlsFiles::named`](super::TlsFiles::named), if it is one of these.
    pub place: Option<usize>,
    /// Where it is.
    pub path: PathBuf,
    /// Why not.
    pub fault: TlsFault,
}

/// Why a file cannot be used. The messages do not repeat the file's content.
#[derive(Debug, thiserror::Error)]
pub enum TlsFault {
    /// The operating system does not hand it out.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// Larger than any such file.
    #[error("is larger than {MAX_FILE_BYTES} bytes")]
    TooLarge,
    /// There is no certificate in it.
    #[error("holds no certificate in PEM")]
    NoCertificate,
    /// There is no key in it.
    #[error("holds no private key in PEM that is not encrypted")]
    NoKey,
    /// Its certificate is malformed or of no kind that is supported.
    #[error("holds a certificate that cannot be used: {0}")]
    BadCertificate(Error),
    /// Its key is malformed or of no kind that is supported.
    #[error("holds a private key that cannot be used: {0}")]
    BadKey(Error),
    /// The key is another certificate's.
    #[error("is not the key of the certificate in {}", .0.display())]
    Mismatch(PathBuf),
    /// The certificate is over.
    #[error("holds a certificate that expired {} ago", ValiditySpan(*.0))]
    Expired(u64),
    /// The certificate is for later.
    #[error("holds a certificate that becomes valid in {}", ValiditySpan(*.0))]
    NotYetValid(u64),
    /// Clients could not ask for it by name.
    #[error("holds a certificate without names (subject alternative names of DNS)")]
    NoName,
    /// It would not be known which one to show.
    #[error("holds a certificate for {0}, as does another one")]
    NameTaken(Box<str>),
    /// Larger than the handshake messages that clients take.
    #[error("holds {0} bytes to be shown in a handshake; clients take at most {MAX_SHOWN_BYTES}")]
    TooLongToShow(usize),
    /// The library could not be set up, which has nothing to do with the file.
    #[error("cannot be served: {0}")]
    Library(Error),
}

/// Seconds in the largest unit that says enough.
struct ValiditySpan(u64);

impl std::fmt::Display for ValiditySpan {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            seconds @ 0..7_200 => write!(out, "{seconds} s"),
            seconds @ 7_200..172_800 => write!(out, "{} h", seconds / 3_600),
            seconds => write!(out, "{} days", seconds / 86_400),
        }
    }
}

/// What the files of `listener` make at `now`, in seconds since 1970, and the certificates in them.
pub(super) fn load(
    listener: &TlsConfig,
    now: u64,
) -> Result<(ServerConfig, Vec<CertificateInForce>), TlsError> {
    let provider = Arc::new(ring::default_provider());
    let files = &listener.files;
    let (pairs, certificates) = pairs(listener, &provider, now)?;
    let named_as = certificates.first().map_or(Path::new(""), |it| &it.file);
    let of_pair = |error| refuse(TlsFile::Certificate, named_as, TlsFault::Library(error));
    let builder = ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(CivilTime))
        .with_protocol_versions(versions(listener.min_version))
        .map_err(of_pair)?;
    let resolver = Arc::new(pairs);
    let mut config = match &files.client_ca {
        None => {
            let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
            config.ticketer = ring::Ticketer::new().map_err(of_pair)?;
            config
        }
        Some(path) => {
            let no_verifier = |error: rustls::server::VerifierBuilderError| {
                refuse(TlsFile::ClientCa, path, TlsFault::Library(Error::General(error.to_string())))
            };
            let roots = Arc::new(authorities(path)?);
            // Clients are told the authorities' names.
            refuse_if_too_long(
                TlsFile::ClientCa,
                path,
                roots.subjects().iter().map(|name| name.as_ref().len()),
            )?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let verifier =
                if files.is_client_auth_optional { verifier.allow_unauthenticated() } else { verifier };
            let verifier = verifier.build().map_err(no_verifier)?;
            let mut config = builder.with_client_cert_verifier(verifier).with_cert_resolver(resolver);
            config.send_tls13_tickets = 0;
            config
        }
    };
    config.session_storage = Arc::new(NoServerSessionStorage {});
    let own = listener.protocols.iter().map(|protocol| protocol.to_vec());
    config.alpn_protocols = own.chain(listener.passed.iter().cloned()).collect();
    Ok((config, certificates))
}

/// The versions that are spoken if none older than `least` is.
fn versions(least: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    static NEWEST: [&SupportedProtocolVersion; 1] = [&rustls::version::TLS13];
    match least {
        TlsVersion::Tls12 => DEFAULT_VERSIONS,
        TlsVersion::Tls13 => &NEWEST,
    }
}

/// What `listener` has to show at `now`, and the certificates of its files.
fn pairs(
    listener: &TlsConfig,
    provider: &CryptoProvider,
    now: u64,
) -> Result<(Pairs, Vec<CertificateInForce>), TlsError> {
    let mut certificates = Vec::new();
    let mut load = |files: &PairFiles| {
        let (pair, validity) = pair(files, provider, now)?;
        let (file, names) = (files.certificate.clone(), names(&pair));
        certificates.push(CertificateInForce { file, names, not_after: validity.not_after });
        Ok(pair)
    };
    let otherwise = listener.files.pair.as_ref().map(&mut load).transpose()?;
    let mut pairs = Pairs::new(listener.named.clone().unwrap_or_default(), otherwise);
    for (place, files) in listener.files.named.iter().enumerate() {
        let added = load(files).and_then(|pair| {
            let fault = |name: Option<_>| name.map_or(TlsFault::NoName, TlsFault::NameTaken);
            pairs.add(pair).map_err(|name| refuse(TlsFile::Certificate, &files.certificate, fault(name)))
        });
        added.map_err(|error| TlsError { place: Some(place), ..error })?;
    }
    Ok((pairs, certificates))
}

/// The certificate and the key that belong together, valid now.
fn pair(
    files: &PairFiles,
    provider: &CryptoProvider,
    now: u64,
) -> Result<(CertifiedKey, Validity), TlsError> {
    let chain = certificates(TlsFile::Certificate, &files.certificate)?;
    refuse_if_too_long(TlsFile::Certificate, &files.certificate, chain.iter().map(|it| it.len()))?;
    let bad_certificate = |fault| refuse(TlsFile::Certificate, &files.certificate, fault);
    let bad_key = |fault| refuse(TlsFile::Key, &files.key, fault);

    let key = read(TlsFile::Key, &files.key)?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| bad_key(TlsFault::NoKey))?;
    let key = provider.key_provider.load_private_key(key);
    let pair = CertifiedKey::new(chain, key.map_err(|error| bad_key(TlsFault::BadKey(error)))?);
    match pair.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(Error::InconsistentKeys(_)) => {
            return Err(bad_key(TlsFault::Mismatch(files.certificate.clone())));
        }
        Err(error) => return Err(bad_certificate(TlsFault::BadCertificate(error))),
    }
    let validity = pair.cert.first().and_then(|first| Validity::of(first));
    let validity = validity.ok_or_else(|| bad_certificate(TlsFault::NoCertificate))?;
    if validity.not_after < now {
        return Err(bad_certificate(TlsFault::Expired(now - validity.not_after)));
    }
    if validity.not_before > now {
        return Err(bad_certificate(TlsFault::NotYetValid(validity.not_before - now)));
    }
    Ok((pair, validity))
}

fn refuse_if_too_long(
    file: TlsFile,
    path: &Path,
    shown: impl Iterator<Item = usize>,
) -> Result<(), TlsError> {
    let bytes: usize = shown.map(|bytes| bytes + SHOWN_OVERHEAD).sum();
    if bytes > MAX_SHOWN_BYTES {
        return Err(refuse(file, path, TlsFault::TooLongToShow(bytes)));
    }
    Ok(())
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(TlsFile::ClientCa, path)? {
        let added = roots.add(certificate);
        added.map_err(|error| refuse(TlsFile::ClientCa, path, TlsFault::BadCertificate(error)))?;
    }
    Ok(roots)
}

/// All certificates of a file, at least one.
fn certificates(file: TlsFile, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(file, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(refuse(file, path, TlsFault::NoCertificate)),
    }
}

/// The whole file, unless it is larger than it may be.
fn read(file: TlsFile, path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |error| refuse(file, path, TlsFault::Unreadable(error));
    // A pipe would keep the reader waiting.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")));
    }
    let mut bytes = Vec::new();
    let opened = fs::File::open(path).map_err(unreadable)?;
    opened.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(refuse(file, path, TlsFault::TooLarge));
    }
    Ok(bytes)
}

fn refuse(file: TlsFile, path: &Path, fault: TlsFault) -> TlsError {
    TlsError { file, place: None, path: path.to_owned(), fault }
}

/// The clock by which the certificates of clients are judged.
#[derive(Debug)]
struct CivilTime;

impl TimeProvider for CivilTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(wall().0)))
    }
}
