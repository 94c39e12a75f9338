//! An open connection, which ends with whoever uses it.
//!
//! ```text
//!   Session ----- statements -----> task ----- socket -----> server
//!      | dropped                     | ends: every answer is here, or GRACE is over
//!      `-------- tells it ---------->'
//! ```
//!
//! `tokio_postgres` leaves a connection open until its last statement is answered. A statement that
//! waits for a lock would then outlive everyone who wants to know, and each new attempt would add a
//! backend to the server. So the server is told to give up by itself ([`Session::bound`]), and a
//! session that is dropped closes its socket soon.

use std::convert::Infallible;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_postgres::{AsyncMessage, Client, Connection, Error};

/// How long a connection goes on for the answers that are due when its session is dropped.
const GRACE: Duration = Duration::from_secs(1);

/// A client and its connection.
#[derive(Debug)]
pub struct Session {
    client: Client,
    /// The driving task sees this end.
    _in_use: oneshot::Sender<Infallible>,
}

impl Session {
    /// Has a task of the calling runtime drive `connection`; `heard` is called with the channel and
    /// the payload of each notification.
    pub(crate) fn start<S, T>(
        client: Client,
        connection: Connection<S, T>,
        heard: impl Fn(&str, &str) + Send + 'static,
    ) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (in_use, dropped) = oneshot::channel();
        tokio::spawn(async move {
            tokio::select! {
                () = drive(connection, heard) => {}
                () = given_up(dropped) => {}
            }
        });
        Self { client, _in_use: in_use }
    }

    /// Has the server cancel every later statement that takes longer than this, waiting for locks
    /// included, and end a transaction that its client leaves idle for so long. What it cancels has
    /// changed nothing.
    ///
    /// # Errors
    /// When the server refuses or is gone.
    pub async fn bound(&self, longest: Duration) -> Result<(), Error> {
        let millis = i32::try_from(longest.as_millis()).unwrap_or(i32::MAX).max(1);
        let settings =
            format!("SET statement_timeout = {millis}; SET idle_in_transaction_session_timeout = {millis}");
        self.client.batch_execute(&settings).await
    }
}

impl Deref for Session {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

/// Ends with the client, or with the connection, whose error every later call reports.
async fn drive<S, T>(mut connection: Connection<S, T>, heard: impl Fn(&str, &str))
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(notification) = message {
            heard(notification.channel(), notification.payload());
        }
    }
}

/// Ends [`GRACE`] after the session.
async fn given_up(dropped: oneshot::Receiver<Infallible>) {
    // It can only end, since nothing can be sent.
    drop(dropped.await);
    tokio::time::sleep(GRACE).await;
}
