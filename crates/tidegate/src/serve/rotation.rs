//! Certificates are rotated without a restart: SIGHUP reads every listener's files again, and so does
//! a change of a listener's files that has settled (fault 42).
//!
//! A certificate and its key are two files, and who renews them writes one after the other. Both are
//! looked at together, once a second, and read when two looks in a row see the same. A pair that is
//! found half written nevertheless is refused because its halves do not match, and read again when
//! the second half has come. The listeners' files are independent of the configuration's: a
//! certificate that is refused keeps no policy from being changed.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::config::watch::Change;
use crate::config::{Secured, Stamp, stamps};

/// Follows the files of `listeners` until it is dropped.
///
/// # Errors
/// If the handler of SIGHUP cannot be installed.
pub async fn rotate(listeners: &[Secured], every: Duration) -> io::Result<()> {
    let have_files = listeners.iter().filter(|it| !it.read.is_empty());
    let mut followed: Vec<_> = have_files.map(Followed::new).collect();
    if followed.is_empty() {
        std::future::pending::<()>().await;
    }
    let mut hangups = signal(SignalKind::hangup())?;
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = tokio::select! {
            _ = hangups.recv() => true,
            _ = ticks.tick() => false,
        };
        let look = move || {
            followed.iter_mut().for_each(|listener| listener.look(now));
            followed
        };
        followed = tokio::task::spawn_blocking(look).await.map_err(io::Error::other)?;
    }
}

/// A listener, and what was read of its files.
struct Followed {
    secured: Secured,
    change: Change<Vec<Stamp>>,
}

impl Followed {
    fn new(secured: &Secured) -> Self {
        Self { secured: secured.clone(), change: Change::new(secured.read.clone()) }
    }

    /// Reads the files `now`, or if they have changed.
    fn look(&mut self, now: bool) {
        let stamps = stamps(self.secured.tls.files());
        if self.change.has_settled(stamps.clone()) || now {
            self.change.reading(stamps);
            self.reload();
        }
    }

    fn reload(&self) {
        let Secured { listener, tls, .. } = &self.secured;
        let listener = listener.label();
        match tls.reload() {
            Ok(()) => {
                let days_left = tls.status().seconds_left().map(|left| left / 86_400);
                tracing::info!(listener, days_left, "certificate loaded again");
            }
            Err(error) => tracing::error!(listener, %error, "certificate refused, the old one stays"),
        }
    }
}
