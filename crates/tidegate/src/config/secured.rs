//! The TLS of a listener, once its files are read, and why it cannot be had.

use tidegate_net::tls::{Tls, TlsError};

use super::file_stamp::Stamp;
use super::listener::Listener;

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
