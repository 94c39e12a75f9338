//! Sessions: what a page of this server shows instead of a token, so that no script can read the secret.
//!
//! ```text
//!   POST /v1/session, authorization: Bearer ... ──> begin ──> set-cookie: tidegate_session=<64 hexadecimal digits>
//!   a request with that cookie ──> find ──> the token's name and scopes, for as long as the token is in force
//! ```
//!
//! A session is good for the scopes `read` and `configure` that its token has, and for no decision: proxies pass their
//! clients' cookies on. The table has digests of what the cookies hold. It is this process's own: another node, or the
//! next process, wants a session of its own.
//!
//! Bounds: [`MAX_SESSIONS`], where the one that would end first makes room, and [`LIFETIME`].

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use http::header::{COOKIE, HeaderMap, HeaderValue};
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest, Sha256};

use crate::tokens::Credential;

/// Most sessions at once.
pub const MAX_SESSIONS: usize = 1_024;

/// How long a session lasts, however much it is used.
pub const LIFETIME: Duration = Duration::from_secs(12 * 3_600);

/// The name of the cookie.
pub const NAME: &str = "tidegate_session";

/// How many bytes of chance a cookie holds.
pub const SECRET_BYTES: usize = 32;

/// The sessions of a process.
#[derive(Debug, Default)]
pub struct Sessions {
    table: Mutex<SessionTable>,
}

#[derive(Default)]
struct SessionTable {
    sessions: HashMap<[u8; 32], OpenSession>,
    evicted: u64,
}

struct OpenSession {
    credential: Credential,
    ends: Instant,
}

impl fmt::Debug for SessionTable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SessionTable").field("sessions", &self.sessions.len()).finish_non_exhaustive()
    }
}

impl Sessions {
    /// Begins a session of `credential`; what its cookie holds. `secret` is random, and no other party knows it.
    #[must_use]
    pub fn begin(&self, credential: Credential, secret: [u8; SECRET_BYTES], now: Instant) -> String {
        let value: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut table = self.table();
        table.sessions.retain(|_, session| session.ends > now);
        if table.sessions.len() >= MAX_SESSIONS {
            let first =
                table.sessions.iter().min_by_key(|(_, session)| session.ends).map(|(digest, _)| *digest);
            first.and_then(|digest| table.sessions.remove(&digest));
            table.evicted += 1;
        }
        table.sessions.insert(digest(value.as_bytes()), OpenSession { credential, ends: now + LIFETIME });
        value
    }

    /// The token of the session that a request's cookie names.
    #[must_use]
    pub fn find(&self, headers: &HeaderMap, now: Instant) -> Option<Credential> {
        let digest = digest(cookie(headers)?);
        let table = self.table();
        let session = table.sessions.get(&digest).filter(|session| session.ends > now)?;
        Some(session.credential.clone())
    }

    /// Ends the session that a request's cookie names, if there is one.
    pub fn end(&self, headers: &HeaderMap) {
        if let Some(value) = cookie(headers) {
            self.table().sessions.remove(&digest(value));
        }
    }

    /// How many there are, and how many had to make room for others.
    #[must_use]
    pub fn count(&self) -> (usize, u64) {
        let table = self.table();
        (table.sessions.len(), table.evicted)
    }

    fn table(&self) -> MutexGuard<'_, SessionTable> {
        // A panic under the lock leaves a whole table.
        self.table.lock()
    }
}

/// What the cookie of a session holds, if the request has one; of several the first.
fn cookie(headers: &HeaderMap) -> Option<&[u8]> {
    let fields = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let mut pairs = fields.flat_map(|field| field.split(|byte| *byte == b';')).map(<[u8]>::trim_ascii);
    pairs.find_map(|pair| pair.strip_prefix(NAME.as_bytes())?.strip_prefix(b"="))
}

fn digest(value: &[u8]) -> [u8; 32] {
    Sha256::digest(value).into()
}

#[cfg(test)]
mod tests {
    use tidegate_net::clock::monotonic;

    use super::*;
    use crate::tokens::Scope;

    fn credential(name: &str) -> Credential {
        Credential::new(name, [Scope::Read], "sixteen-letters-and-more")
    }

    fn with(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(COOKIE, cookie.parse().unwrap())])
    }

    #[test]
    fn a_session_lasts_for_its_lifetime_and_no_longer() {
        let (sessions, now) = (Sessions::default(), monotonic());
        let value = sessions.begin(credential("ops"), [7; SECRET_BYTES], now);
        let cookie = with(&format!("a=b; {NAME}={value}"));
        let just_before = now + LIFETIME - Duration::from_nanos(1);
        assert_eq!(sessions.find(&cookie, just_before).unwrap().name(), "ops");
        assert!(sessions.find(&cookie, now + LIFETIME).is_none());
        for wrong in [format!("{NAME}={value}0"), format!("x{NAME}={value}"), format!("{NAME}="), value] {
            assert!(sessions.find(&with(&wrong), now).is_none(), "{wrong}");
        }
        sessions.end(&cookie);
        assert!(sessions.find(&cookie, now).is_none());
    }

    #[test]
    fn the_session_that_would_end_first_makes_room() {
        let (sessions, now) = (Sessions::default(), monotonic());
        let secret = |number: usize| {
            let mut secret = [0; SECRET_BYTES];
            secret[..8].copy_from_slice(&number.to_be_bytes());
            secret
        };
        let begin = |number: usize| {
            let at = now + Duration::from_secs(number as u64);
            with(&format!("{NAME}={}", sessions.begin(credential("ops"), secret(number), at)))
        };
        let all: Vec<HeaderMap> = (0..=MAX_SESSIONS).map(begin).collect();
        assert_eq!(sessions.count(), (MAX_SESSIONS, 1));
        assert!(sessions.find(&all[0], now).is_none() && sessions.find(&all[1], now).is_some());
    }
}
