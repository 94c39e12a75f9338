//! Why a process does not start.

use std::io;

use thiserror::Error;
use tidegate_algorithms::policy::Mistake;
use tidegate_net::listen::ListenError;

/// What could not be had.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The configuration database.
    #[error(transparent)]
    Control(#[from] tidegate_control::Error),
    /// The file's policies and the stored ones do not go together.
    #[error("the policies do not go together:{}", Lines(.0))]
    Policies(Vec<Mistake>),
    /// Threads.
    #[error("cannot start the worker threads: {0}")]
    Threads(io::Error),
    /// The URL of Redis.
    #[error(transparent)]
    Redis(#[from] tidegate_store::redis::UrlError),
    /// The URL of PostgreSQL. Its parser's words do not repeat the URL, which may hold a password.
    #[error("the store's URL: {0}")]
    Postgres(#[from] tidegate_store::postgres::UrlError),
}

/// Mistakes, a line each.
pub(super) struct Lines<'a>(pub(super) &'a [Mistake]);

impl std::fmt::Display for Lines<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|mistake| write!(out, "\n  {mistake}"))
    }
}
