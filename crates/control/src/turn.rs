//! The turn at changing a database that nodes share.
//!
//! ```text
//!   node a --lock--> read the newest --decide--> write --commit-.
//!   node b --lock . . . . . . waits . . . . . . . . . . . . . . `--> read the newest --> ...
//! ```
//!
//! A change is decided on the newest revision and compared with it when it is written: what another node has
//! overtaken is decided again. Among nodes with many writers one could be overtaken for ever. So a node first takes a
//! lock that all nodes know, in the transaction that it will write in, and reads the newest revision when it has it.
//!
//! The comparison keeps changes right, not the turn. Nodes of an earlier version take none, and whoever waits longer
//! than [`PATIENCE`] goes on without. A holder that stands still costs the others that wait per change, and only until
//! the server ends its transaction: at most [`crate::OPERATION`] after its last statement, also if its machine is gone.
//! It goes on by comparison alone when it comes back.

use std::sync::Arc;
use std::time::Duration;

use tidegate_postgres::{Client, Session, SqlState};
use tokio::runtime::Handle;

use crate::database_error::{in_time, unavailable};
use crate::error::Error;
use crate::spare::Spare;

/// Number of the lock that a turn is: "tidectrl". Locks of another database have nothing to do with it.
const LOCK: i64 = 0x7469_6465_6374_726c;

/// Longest that a node waits for its turn.
const PATIENCE: Duration = Duration::from_secs(1);

/// The turn of this node, if it has one. It ends with the transaction, or when it is dropped.
#[derive(Debug, Default)]
pub struct Turn(Option<HeldTurn>);

/// A connection in the transaction that holds the lock.
#[derive(Debug)]
struct HeldTurn {
    session: Session,
    spare: Arc<Spare>,
    runtime: Handle,
}

impl Turn {
    /// The turn that `session` has taken, which goes to `spare` afterwards.
    pub(crate) fn held(session: Session, spare: Arc<Spare>, runtime: Handle) -> Self {
        Self(Some(HeldTurn { session, spare, runtime }))
    }

    /// The connection to write on, within its transaction.
    pub(crate) fn into_session(mut self) -> Option<Session> {
        self.0.take().map(|held| held.session)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(HeldTurn { session, spare, runtime }) = self.0.take() else { return };
        // Only the next turn waits for this.
        runtime.spawn(async move {
            if in_time(roll_back(&session)).await.is_ok() {
                spare.keep(session);
            }
        });
    }
}

/// Waits for the turn and begins the transaction that has it. `false`, and no transaction, if that takes too long.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn take(client: &Client) -> Result<bool, Error> {
    // What is read afterwards must be newer than the lock: each statement sees what is committed when it begins.
    let begin = format!(
        "{BEGIN}; SET LOCAL lock_timeout = {}; SELECT pg_advisory_xact_lock({LOCK}); SET LOCAL lock_timeout TO DEFAULT",
        PATIENCE.as_millis()
    );
    match client.batch_execute(&begin).await {
        Ok(()) => Ok(true),
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            tracing::warn!("another node takes long to change the configuration; this one goes on beside it");
            roll_back(client).await.map(|()| false)
        }
        Err(error) => Err(unavailable(error)),
    }
}

/// Begins a transaction without a turn.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn begin(client: &Client) -> Result<(), Error> {
    client.batch_execute(BEGIN).await.map_err(unavailable)
}

/// Ends the transaction, and with it the turn, without having changed anything.
///
/// # Errors
/// [`Error::Unavailable`].
pub(crate) async fn roll_back(client: &Client) -> Result<(), Error> {
    client.batch_execute("ROLLBACK").await.map_err(unavailable)
}

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
