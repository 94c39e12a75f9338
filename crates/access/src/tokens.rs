//! Tokens with names and scopes, kept as digests. A reload replaces the whole list.
//!
//! ```text
//!   [[token]], admin.token, grpc.token, resp.password ── Credential ──> Tokens, one list a listener
//!                                                                          |
//!   authorization: Bearer (HTTP, gRPC metadata), AUTH (RESP) ── admit(scope, secret) ──> whose it is
//! ```
//!
//! A scope is open until a token guards it:
//!
//! | scope | is demanded |
//! |---|---|
//! | `decide`, `ingest` | as soon as a token has it |
//! | `refund`, `read`, `configure` | as soon as there is any token |
//!
//! So a process without tokens is open, which is why configuration is then for loopback only
//! ([`crate::origins`]) and public listeners are refused at the start. A deployment that guards only its
//! configuration keeps its decisions and its intake open. No scope includes another.
//!
//! Secrets are compared by their SHA-256 digests, in constant time and with every token of the list, so
//! neither a matching prefix nor the place in the list shows in the time it takes (fault 46).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// Most tokens of a configuration.
pub const MAX_TOKENS: usize = 64;

/// What a token lets its bearer do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Ask for decisions and permits.
    Decide,
    /// Give units back.
    Refund,
    /// Read the configuration, explanations, the audit log and metrics.
    Read,
    /// Change the configuration.
    Configure,
    /// Send metrics to the intake.
    Ingest,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Decide, Self::Refund, Self::Read, Self::Configure, Self::Ingest];

    /// The word for it in configuration and messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Decide => "decide",
            Self::Refund => "refund",
            Self::Read => "read",
            Self::Configure => "configure",
            Self::Ingest => "ingest",
        }
    }

    /// The scope that `word` names.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.word() == word)
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// Whether `scope` is in it.
    #[must_use]
    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u8) != 0
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |set, scope| set | (1 << scope as u8)))
    }
}

/// A token: the name of its owner, its scopes, and the digest of its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    name: Arc<str>,
    scopes: Scopes,
    digest: [u8; 32],
}

impl Credential {
    /// The token with this secret, of which only the digest is kept.
    #[must_use]
    pub fn new(name: &str, scopes: impl IntoIterator<Item = Scope>, secret: &str) -> Self {
        Self::from_digest(name, scopes, digest(secret.as_bytes()))
    }

    /// The token whose secret has this SHA-256 digest.
    #[must_use]
    pub fn from_digest(name: &str, scopes: impl IntoIterator<Item = Scope>, digest: [u8; 32]) -> Self {
        Self { name: name.into(), scopes: scopes.into_iter().collect(), digest }
    }

    /// The name of its owner, for the audit log.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has `scope`.
    #[must_use]
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(scope)
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Credential({:?}, {:?}, redacted)", self.name, self.scopes)
    }
}

fn digest(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// Why a request is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// No token came, or one that is not known.
    #[error("a token is needed")]
    Unknown,
    /// The token is known and has not this scope.
    #[error("the token does not have the scope {:?}", .0.word())]
    Scope(Scope),
}

/// The tokens of a listener.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    credentials: Vec<Credential>,
    demanded: Scopes,
}

impl FromIterator<Credential> for Tokens {
    fn from_iter<I: IntoIterator<Item = Credential>>(credentials: I) -> Self {
        let credentials: Vec<_> = credentials.into_iter().collect();
        let demanded = Scope::ALL.into_iter().filter(|scope| match scope {
            Scope::Decide | Scope::Ingest => credentials.iter().any(|it| it.scopes.contains(*scope)),
            Scope::Refund | Scope::Read | Scope::Configure => !credentials.is_empty(),
        });
        Self { demanded: demanded.collect(), credentials }
    }
}

impl Tokens {
    /// Whether a request for `scope` needs a token.
    #[must_use]
    pub fn demands(&self, scope: Scope) -> bool {
        self.demanded.contains(scope)
    }

    /// The token that lets a request do `scope`; `None`: it needs none.
    ///
    /// # Errors
    /// When a token is needed, and `secret` is not the secret of a token with the scope.
    pub fn admit(&self, scope: Scope, secret: Option<&[u8]>) -> Result<Option<&Credential>, Denial> {
        if !self.demands(scope) {
            return Ok(None);
        }
        let known = secret.and_then(|secret| self.find(secret)).ok_or(Denial::Unknown)?;
        if known.scopes.contains(scope) { Ok(Some(known)) } else { Err(Denial::Scope(scope)) }
    }

    /// Whether `credential` is still among them, as it was.
    #[must_use]
    pub fn contains(&self, credential: &Credential) -> bool {
        self.credentials.contains(credential)
    }

    /// The token of this secret. Takes the same time for any token, and for an unknown secret.
    #[must_use]
    pub fn find(&self, secret: &[u8]) -> Option<&Credential> {
        let given = digest(secret);
        let mut found = u32::MAX;
        for (index, credential) in (0_u32..).zip(&self.credentials) {
            let same: Choice = credential.digest.ct_eq(&given);
            found.conditional_assign(&index, same);
        }
        self.credentials.get(usize::try_from(found).ok()?)
    }
}

/// The tokens that are in force at a listener; clones share them.
#[derive(Clone, Debug, Default)]
pub struct TokensInForce(Arc<Versioned>);

#[derive(Debug, Default)]
struct Versioned {
    tokens: ArcSwap<Tokens>,
    version: AtomicU64,
}

impl TokensInForce {
    /// Has `tokens` in force until they are replaced.
    #[must_use]
    pub fn new(tokens: Tokens) -> Self {
        Self(Arc::new(Versioned { tokens: ArcSwap::from_pointee(tokens), version: AtomicU64::new(0) }))
    }

    /// Puts others in force.
    pub fn replace(&self, tokens: Tokens) {
        self.0.tokens.store(Arc::new(tokens));
        self.0.version.fetch_add(1, Ordering::Release);
    }

    /// The tokens in force now.
    #[must_use]
    pub fn load(&self) -> arc_swap::Guard<Arc<Tokens>> {
        self.0.tokens.load()
    }

    /// How often they were replaced. A session that was admitted reads it before [`Self::load`]; if it is larger
    /// later, the session looks its token up again.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }
}

/// The secret of an `authorization` field whose scheme is `Bearer` (RFC 6750, 2.1). After the scheme stands a space, or what
/// other programs take for one: no server is to find a secret where this finds none.
#[must_use]
pub fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = authorization.split_at_checked(b"Bearer".len())?;
    // Latin-1 has two more blanks, which are no first byte in UTF-8.
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, 0x85 | 0xa0);
    let blanks = rest.iter().position(|byte| !is_blank(byte)).unwrap_or(rest.len());
    (blanks > 0 && scheme.eq_ignore_ascii_case(b"bearer")).then(|| rest[blanks..].trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"sixteen-letters-and-more";

    fn token(name: &str, scopes: &[Scope]) -> Credential {
        Credential::new(name, scopes.iter().copied(), &format!("{name}-secret-of-sixteen"))
    }

    fn name(admitted: Result<Option<&Credential>, Denial>) -> Result<Option<&str>, Denial> {
        admitted.map(|it| it.map(Credential::name))
    }

    #[test]
    fn without_tokens_nothing_is_demanded() {
        let none = Tokens::default();
        for scope in Scope::ALL {
            assert_eq!(none.admit(scope, None), Ok(None));
            assert_eq!(none.admit(scope, Some(SECRET)), Ok(None));
        }
    }

    #[test]
    fn a_scope_is_demanded_as_the_table_says() {
        let configure_only: Tokens = [token("a", &[Scope::Configure])].into_iter().collect();
        let demanded = Scope::ALL.map(|scope| configure_only.demands(scope));
        assert_eq!(demanded, [false, true, true, true, false]);
        let senders: Tokens =
            [token("a", &[Scope::Decide]), token("b", &[Scope::Ingest])].into_iter().collect();
        assert!(Scope::ALL.iter().all(|scope| senders.demands(*scope)));
    }

    #[test]
    fn fault_46_a_token_is_found_by_its_digest_wherever_it_stands() {
        let tokens: Tokens =
            ["first", "second", "third"].map(|name| token(name, &[Scope::Decide])).into_iter().collect();
        for known in ["first", "second", "third"] {
            let secret = format!("{known}-secret-of-sixteen");
            assert_eq!(name(tokens.admit(Scope::Decide, Some(secret.as_bytes()))), Ok(Some(known)));
            assert_eq!(
                tokens.admit(Scope::Refund, Some(secret.as_bytes())),
                Err(Denial::Scope(Scope::Refund))
            );
        }
        for unknown in [None, Some(&b""[..]), Some(SECRET), Some(b"first-secret-of-sixtee")] {
            assert_eq!(tokens.admit(Scope::Decide, unknown), Err(Denial::Unknown));
        }
    }

    #[test]
    fn fault_52_a_token_shows_its_name_and_not_its_digest() {
        let shown = format!("{:?}", token("checkout", &[Scope::Decide]));
        assert!(shown.contains("checkout") && shown.ends_with("redacted)"), "{shown}");
        assert!(shown.len() < 60, "{shown}");
    }

    #[test]
    fn only_bearer_is_read() {
        for stated in [&b"bEARER  abc "[..], b"Bearer\tabc", b"bearer \t abc", b"Bearer\xa0abc"] {
            assert_eq!(bearer(stated), Some(&b"abc"[..]));
        }
        for other in [&b"Basic abc"[..], b"Bearer", b"abc", b""] {
            assert_eq!(bearer(other), None);
        }
    }
}
