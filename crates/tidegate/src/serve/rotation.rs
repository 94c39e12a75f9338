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

use super::listeners::SecuredListeners;
use crate::config::watch::Change;
use crate::config::{Secured, Stamp, stamps};

/// Follows the files of the listeners that have TLS, as they come and go, until it is dropped.
///
/// # Errors
/// If the handler of SIGHUP cannot be installed.
pub async fn rotate(listeners: &SecuredListeners, every: Duration) -> io::Result<()> {
    let mut followed = Vec::new();
    let mut hangups = signal(SignalKind::hangup())?;
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = tokio::select! {
            _ = hangups.recv() => true,
            _ = ticks.tick() => false,
        };
        followed = present(followed, listeners.now());
        if followed.is_empty() {
            continue;
        }
        let look = move || {
            followed.iter_mut().for_each(|listener| listener.look(now));
            followed
        };
        followed = tokio::task::spawn_blocking(look).await.map_err(io::Error::other)?;
    }
}

/// The listeners that have files now. Of those that had them before, it stays known what was read.
fn present(mut before: Vec<Followed>, listeners: Vec<Secured>) -> Vec<Followed> {
    let have_files = listeners.into_iter().filter(|it| !it.read.is_empty());
    let followed =
        have_files.map(|secured| match before.iter().position(|it| it.secured.tls.is_same(&secured.tls)) {
            Some(place) => Followed { secured, ..before.swap_remove(place) },
            None => Followed::new(secured),
        });
    followed.collect()
}

/// A listener, and what was read of its files.
struct Followed {
    secured: Secured,
    change: Change<Vec<Stamp>>,
}

impl Followed {
    fn new(secured: Secured) -> Self {
        Self { change: Change::new(secured.read.clone()), secured }
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
