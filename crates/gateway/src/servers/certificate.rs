//! The state of a server's certificate: whether it was refused the last time, and when the log says so again.
//!
//! The log has a refusal once, and again when the reason is another one or a connection succeeded in between; of a server whose
//! addresses show different certificates, at most one line in [`PAUSE`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Shortest time between two lines of one server.
const PAUSE: Duration = Duration::from_secs(10);

/// A server's certificate, as connections found it.
#[derive(Debug, Default)]
pub(crate) struct ServerCertificate {
    seen: Mutex<LastRefusal>,
}

#[derive(Debug, Default)]
struct LastRefusal {
    refusal: Option<Arc<str>>,
    last_line: Option<Instant>,
}

impl ServerCertificate {
    /// Takes note that it was taken.
    pub(crate) fn accepted(&self) {
        self.seen.lock().refusal = None;
    }

    /// Takes note that it was refused. True if the log is to say so.
    pub(crate) fn refused(&self, reason: &str, now: Instant) -> bool {
        let mut seen = self.seen.lock();
        if seen.refusal.as_deref() == Some(reason) {
            return false;
        }
        seen.refusal = Some(reason.into());
        let is_due = seen.last_line.is_none_or(|last| now.duration_since(last) >= PAUSE);
        if is_due {
            seen.last_line = Some(now);
        }
        is_due
    }

    /// Why it was refused the last time; `None`: it was not.
    pub(crate) fn refusal(&self) -> Option<Arc<str>> {
        self.seen.lock().refusal.clone()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_net::clock::monotonic;

    use super::*;

    #[test]
    fn a_refusal_is_said_once_until_it_is_another_one_and_never_twice_in_ten_seconds() {
        let (certificate, begun) = (ServerCertificate::default(), monotonic());
        let refused = |reason, seconds| certificate.refused(reason, begun + Duration::from_secs(seconds));
        assert!(refused("expired", 0));
        assert!(!refused("expired", 60), "nothing has changed");
        assert!(refused("not valid yet", 61));
        certificate.accepted();
        assert_eq!(certificate.refusal(), None);
        assert!(!refused("expired", 62), "that was a moment ago");
        assert_eq!(certificate.refusal().as_deref(), Some("expired"), "explanations know it all the same");
    }
}
