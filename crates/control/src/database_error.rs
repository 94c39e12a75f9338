//! The database that nodes share: its schema's name, and the errors that its failures and its silence become.

use std::future::Future;

use tidegate_postgres::{Error as PgError, text};
use tokio::time::timeout;

use crate::error::Error;

/// The schema's name in the database, and the channel's.
pub(crate) const NAME: &str = "tidegate_control";

/// Bounds an operation.
///
/// # Errors
/// Those of the operation; [`Error::Late`] if it takes too long.
pub(crate) async fn in_time<T>(operation: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    timeout(crate::OPERATION, operation).await.map_err(|_| Error::Late)?
}

/// An error of the database from before anything was written.
pub(crate) fn unavailable(error: PgError) -> Error {
    Error::Unavailable { reason: text(&error) }
}
