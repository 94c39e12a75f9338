//! The certificate and key by which a client of TLS proves to backends who it is: read from files, and read again when these change.
//!
//! Who renews a pair writes one file after the other. So both are looked at together, and read when two looks in a row see the same;
//! a pair that is found half written nevertheless does not match, and is refused.
//!
//! Deliberately absent: a refusal of a certificate that is not valid now, which the backend decides (when it ends is read, for who
//! warns of it); the pause between two looks, which is the caller's.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tidegate_wire::x509::Validity;
use webpki::EndEntityCert;

/// Largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The files of a client's certificate, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPairFiles {
    /// The certificate, and after it those that lead to its authority.
    pub certificate: PathBuf,
    /// Its private key, not encrypted.
    pub key: PathBuf,
}

/// A client's certificate that is in force.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientCertificate {
    /// The file that it was read from.
    pub file: PathBuf,
    /// The names in it: URIs (a SPIFFE ID is one), then DNS names in lower case. Many clients' certificates have none.
    pub names: Vec<String>,
    /// Its first and its last second.
    pub validity: Validity,
}

/// Why a client's certificate cannot be used. The messages do not repeat the files' content.
#[derive(Debug, Error)]
pub enum ClientPairError {
    /// The operating system does not hand a file out, or it is larger than any such file.
    #[error("{} cannot be read: {error}", path.display())]
    Unreadable {
        /// Where it is.
        path: PathBuf,
        /// Whether it is the key's.
        is_key: bool,
        /// Why not.
        error: io::Error,
    },
    /// There is no certificate in its file.
    #[error("{} holds no certificate in PEM", .0.display())]
    NoCertificate(PathBuf),
    /// There is no key in its file.
    #[error("{} holds no private key in PEM that is not encrypted", .0.display())]
    NoKey(PathBuf),
    /// The key is another certificate's, or one of both is of no kind that is supported.
    #[error("{} is no key for the certificate in {}: {error}", key.display(), certificate.display())]
    Mismatch {
        /// Where the key is.
        key: PathBuf,
        /// Where the certificate is.
        certificate: PathBuf,
        /// What the library says.
        error: rustls::Error,
    },
}

impl ClientPairError {
    /// Whether the key's file is at fault.
    #[must_use]
    pub fn is_of_key(&self) -> bool {
        match self {
            Self::Unreadable { is_key, .. } => *is_key,
            Self::NoCertificate(_) => false,
            Self::NoKey(_) | Self::Mismatch { .. } => true,
        }
    }
}

/// What the files hold.
pub(crate) struct ClientPair {
    pub(crate) certificate: ClientCertificate,
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// What tells one version of a file from the next; `None`: it is not there. Its rights are part of it: one that could not be read may
/// be readable now.
type FileStamp = Option<(i64, i64, u64, u64, [u32; 3])>;

/// Versions of both files: of those that were read, and of those that were there at the last look.
#[derive(Debug)]
pub(crate) struct PairVersions {
    read: [FileStamp; 2],
    seen: [FileStamp; 2],
}

impl ClientPairFiles {
    /// What they hold. Blocks on the disk.
    pub(crate) fn read(&self) -> Result<ClientPair, ClientPairError> {
        let read = |path: &PathBuf, is_key: bool| {
            bytes(path).map_err(|error| ClientPairError::Unreadable { path: path.clone(), is_key, error })
        };
        let chain = read(&self.certificate, false)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        let first = chain.as_deref().and_then(|chain| self.described(chain.first()?));
        let (chain, certificate) =
            chain.zip(first).ok_or_else(|| ClientPairError::NoCertificate(self.certificate.clone()))?;
        let key = read(&self.key, true)?;
        let key = PrivateKeyDer::from_pem_slice(&key);
        let key = key.map_err(|_| ClientPairError::NoKey(self.key.clone()))?;
        Ok(ClientPair { certificate, chain, key })
    }

    /// What `certificate` says of itself; `None`: it is none.
    fn described(&self, certificate: &CertificateDer<'_>) -> Option<ClientCertificate> {
        let validity = Validity::of(certificate)?;
        let parsed = EndEntityCert::try_from(certificate).ok();
        let uris = parsed.iter().flat_map(|it| it.valid_uri_names()).map(str::to_owned);
        let names = parsed.iter().flat_map(|it| it.valid_dns_names()).map(str::to_ascii_lowercase);
        Some(ClientCertificate {
            file: self.certificate.clone(),
            names: uris.chain(names).collect(),
            validity,
        })
    }

    /// The error of a pair that the library does not take.
    pub(crate) fn mismatch(&self, error: rustls::Error) -> ClientPairError {
        let (key, certificate) = (self.key.clone(), self.certificate.clone());
        ClientPairError::Mismatch { key, certificate, error }
    }

    /// The versions that are there now, which are about to be read. Said before reading, so that a change in between is seen by
    /// the next look.
    pub(crate) fn versions(&self) -> PairVersions {
        let now = self.stamps();
        PairVersions { read: now, seen: now }
    }

    /// Whether what is there now is not what was read, and the same as at the last look. If so, it is about to be read.
    pub(crate) fn have_changed(&self, versions: &mut PairVersions) -> bool {
        let now = self.stamps();
        let settled = now == versions.seen && now != versions.read;
        versions.seen = now;
        if settled {
            versions.read = now;
        }
        settled
    }

    fn stamps(&self) -> [FileStamp; 2] {
        [stamp(&self.certificate), stamp(&self.key)]
    }
}

/// The stamp of the file at `path`, symbolic links followed.
fn stamp(path: &Path) -> FileStamp {
    let metadata = fs::metadata(path).ok()?;
    let rights = [metadata.mode(), metadata.uid(), metadata.gid()];
    Some((metadata.mtime(), metadata.mtime_nsec(), metadata.size(), metadata.ino(), rights))
}

/// A small file, whole.
fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    // A pipe would keep the reader waiting.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(bytes)
}
