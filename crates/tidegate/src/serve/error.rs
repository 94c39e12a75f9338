//! Why a process does not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;
use tidegate_edge::geo::DatabaseError;
use tidegate_net::listen::ListenError;

use crate::config::TlsMistake;

/// Most sockets that are taken: there are fewer listeners.
pub(super) const MAX_SOCKETS: usize = 16;

/// What could not be had.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address.
    #[error("{}{}", .0, elsewhere(.0))]
    Listen(#[from] ListenError),
    /// An address that one flag chooses.
    #[error("{source} (stop the program that listens there, or choose another address with {flag})")]
    ListenFlag {
        /// The flag.
        flag: &'static str,
        /// Why not.
        source: ListenError,
    },
    /// The configuration database, here or in PostgreSQL.
    #[error("{}", no_configuration(.0))]
    Control(#[from] tidegate_control::Error),
    /// The intake's log.
    #[error("the intake's log cannot be used: {0} (--data-dir or TIDEGATE_DATA_DIR chooses another)")]
    Log(#[from] tidegate_log::OpenError),
    /// A socket that the service manager passed on.
    #[error(transparent)]
    Inherited(#[from] InheritError),
    /// The TLS of one or more listeners.
    #[error("TLS:{}", Lines(.0))]
    Tls(Vec<TlsMistake>),
    /// The authorities of the ACME directory.
    #[error("acme.ca_file: {0}")]
    Acme(String),
    /// The authorities of the collector's TLS.
    #[error("telemetry.endpoint: {0}")]
    Telemetry(String),
    /// The access log.
    #[error("the access log cannot be written: {0} (access_log.to chooses another place)")]
    AccessLog(io::Error),
    /// Second handles of the listening sockets.
    #[error("there are no descriptors for the listeners: {0} (raise the limit of open files)")]
    Descriptors(io::Error),
    /// Threads.
    #[error("cannot start the worker threads: {0}")]
    Threads(io::Error),
    /// The socket for questions about names.
    #[error("cannot answer questions about names on {address}: {source} (another address: edge.dns_listen)")]
    Names {
        /// The address asked for.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The database of countries.
    #[error("edge.country_database: {path:?} {error}")]
    CountryDatabase {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        error: DatabaseError,
    },
    /// The URL of Redis.
    #[error(transparent)]
    Redis(#[from] tidegate_store::redis::UrlError),
    /// The URL of PostgreSQL, for counters or for the configuration.
    #[error(transparent)]
    Postgres(#[from] tidegate_store::postgres::UrlError),
}

/// Why a socket cannot be taken over.
#[derive(Debug, Error)]
pub enum InheritError {
    /// `LISTEN_FDS` is no number, or too large a one.
    #[error("LISTEN_FDS is {0:?} (accepted: a number up to {MAX_SOCKETS})")]
    Count(String),
    /// It is no listening TCP socket.
    #[error("descriptor {descriptor} of the service manager cannot be used: {source}")]
    Socket {
        /// Its number.
        descriptor: usize,
        /// Why not.
        source: io::Error,
    },
    /// No listener has its address.
    #[error("the service manager listens on {0}, which is no listener's address: see http.listen")]
    Stranger(SocketAddr),
}

/// How to listen somewhere else.
fn elsewhere(error: &ListenError) -> &'static str {
    match error {
        ListenError::AddressInUse { .. } => {
            " (stop it, or choose: --http-listen, --grpc-listen, --resp-listen, --intake-listen, --edge-api-listen; or the listener's listen in the file)"
        }
        _ => "",
    }
}

/// Why there is no configuration to start with, and what to do.
fn no_configuration(error: &tidegate_control::Error) -> String {
    use tidegate_control::Error;
    match error {
        Error::Io { .. } => format!(
            "the data directory cannot be used: {error} (--data-dir or TIDEGATE_DATA_DIR chooses another)"
        ),
        Error::InUse { .. } => format!("{error} (--data-dir or TIDEGATE_DATA_DIR chooses another directory)"),
        Error::NothingToStartWith { .. } => {
            format!("{error} (`--control local` keeps the configuration in the data directory)")
        }
        other => other.to_string(),
    }
}

/// Mistakes, a line each.
pub(super) struct Lines<'a, M>(pub(super) &'a [M]);

impl<M: std::fmt::Display> std::fmt::Display for Lines<'_, M> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|mistake| write!(out, "\n  {mistake}"))
    }
}
