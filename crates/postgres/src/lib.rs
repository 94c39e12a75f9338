//! Connections to PostgreSQL, for counters and for the configuration.
//!
//! ```text
//!   URL --parse--> Place --connect--> Session       (a task drives the connection and ends with it)
//!                                       |-- bound: the server cancels what takes longer
//!                                       `-- migrate: a schema, one node at a time
//! ```
//!
//! Deliberately absent: pools, retries and the length of deadlines, which depend on what a statement means; and
//! statements.

mod migration;
mod place;
mod session;
mod tls;
mod url;

pub use migration::{Schema, migrate};
pub use place::Place;
pub use session::Session;
pub use tokio_postgres::error::SqlState;
pub use tokio_postgres::types;
pub use tokio_postgres::{Client, Error, IsolationLevel, Row, Statement, Transaction};
pub use url::UrlError;

/// What went wrong, in the server's own words, which [`Error`] leaves to its sources. The messages never repeat a
/// password.
#[must_use]
pub fn text(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{}: {}", said.code().code(), said.message());
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
