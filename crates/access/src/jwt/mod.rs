//! JSON Web Tokens (RFC 7519) of clients: a token is verified, and its claims, by an issuer that is trusted, are the
//! client's identity.
//!
//! ```text
//!   JWKS (RFC 7517) ── JwtKeys: each key has one algorithm ──.
//!   token ── header: kid, alg ── the key of this kid ── signature ── claims: exp, nbf, iss, aud ── Claims
//!                                                                                              `── JwtDenial
//! ```
//!
//! The algorithm is the key's and not the token's: a token is refused that names another one, so that a public key is
//! never taken for a secret, and `none` is no algorithm. Keys come from the configured place only: `jku`, `jwk` and `x5u`
//! of a header are not looked at, and a header with `crit` is refused. The kid is looked up in a map, and means nothing
//! else.
//!
//! A token must end (`exp`), must be of the configured issuer, and if it is for certain audiences, this must be one. Times are
//! compared with civil time, give or take the leeway, since issuers' clocks and ours differ.
//!
//! The token is parsed and its signature checked by `jsonwebtoken` with `ring` ([`provider`]); the time is an argument, so
//! the claims are checked here.
//!
//! Deliberately absent: where a request has its token, where keys are fetched from, and HTTP.

mod keys;
mod provider;

use std::borrow::Cow;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use serde_json::{Map, Value};
use thiserror::Error;
use tidegate_algorithms::time::{SECOND, Wall};

pub use keys::{JwtKeys, JwtKeysError, MAX_KEYS};

/// Longest token that is looked at.
pub const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Longest claim that is made an attribute or a field.
pub const MAX_CLAIM_BYTES: usize = 512;

/// What the claims of a token must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtRules {
    /// Its issuer.
    pub issuer: Box<str>,
    /// The audiences (`aud`) that are accepted: the token must name one of them. If empty, the token must name no audience.
    pub audiences: Vec<Box<str>>,
    /// By how many seconds its times may be off.
    pub leeway_seconds: u64,
    /// Claims that it must have, with these values; [`ANY_VALUE`]: with whatever value.
    pub required: Vec<(Box<str>, Box<str>)>,
}

/// A required claim may have any value.
pub const ANY_VALUE: &str = "*";

/// Why a request is not taken for whose it says it is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JwtDenial {
    /// It has no token.
    #[error("a bearer token is needed")]
    Missing,
    /// Its token is no JWT, or not of an accepted algorithm.
    #[error("the token is not a JWT that is signed with an accepted algorithm")]
    Malformed,
    /// The key that it names is not known.
    #[error("the token is signed by a key that is not known")]
    UnknownKey,
    /// It is not signed by the key that it names.
    #[error("the token's signature is wrong")]
    Signature,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time has not come.
    #[error("the token is not valid yet")]
    NotYet,
    /// Somebody else has issued it.
    #[error("the token is of another issuer")]
    Issuer,
    /// It is for somebody else.
    #[error("the token is for another audience")]
    Audience,
    /// A claim is absent or cannot be used.
    #[error("the token's claim {0} is missing or malformed")]
    Claim(Box<str>),
    /// It does not say what is required here.
    #[error("the token's claim {0} is not what is required")]
    Required(Box<str>),
}

impl JwtDenial {
    /// The word for it in the access log.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Missing => "no_jwt",
            Self::Malformed => "malformed_jwt",
            Self::UnknownKey => "unknown_jwt_key",
            Self::Signature => "jwt_signature",
            Self::Expired => "expired_jwt",
            Self::NotYet => "early_jwt",
            Self::Issuer => "jwt_issuer",
            Self::Audience => "jwt_audience",
            Self::Claim(_) => "jwt_claim",
            Self::Required(_) => "jwt_not_enough",
        }
    }

    /// Whether the token is good, and only says too little.
    #[must_use]
    pub fn is_insufficient(&self) -> bool {
        matches!(self, Self::Required(_))
    }

    /// What the field `WWW-Authenticate` says of it (RFC 6750, 3). It names no error for a request without a token.
    #[must_use]
    pub fn challenge(&self) -> String {
        let error = match self {
            Self::Missing => return "Bearer".to_owned(),
            Self::Required(_) => "insufficient_scope",
            _ => "invalid_token",
        };
        // Names of claims are the operator's, and may have letters that a quoted string cannot.
        let description = self.to_string().replace(|letter: char| !is_quotable(letter), "?");
        format!("Bearer error=\"{error}\", error_description=\"{description}\"")
    }
}

fn is_quotable(letter: char) -> bool {
    matches!(letter, ' '..='~') && letter != '"' && letter != '\\'
}

/// What a token that is good says.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims(Map<String, Value>);

impl JwtRules {
    /// What a token says, if it is good at `now`.
    ///
    /// # Errors
    /// Why it is not.
    pub fn verify(&self, token: &[u8], keys: &JwtKeys, now: Wall) -> Result<Claims, JwtDenial> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(JwtDenial::Malformed);
        }
        let header = decode_header(token).map_err(|_| JwtDenial::Malformed)?;
        if header.crit.is_some() {
            return Err(JwtDenial::Malformed);
        }
        provider::install();
        let mut denial = JwtDenial::UnknownKey;
        for key in keys.find(header.kid.as_deref(), header.alg)? {
            match decode::<Map<String, Value>>(token, &key.key, &signature_only(key.algorithm)) {
                Ok(decoded) => {
                    let claims = Claims(decoded.claims);
                    self.check(&claims, now)?;
                    return Ok(claims);
                }
                Err(error) if matches!(error.kind(), ErrorKind::InvalidSignature) => {
                    denial = JwtDenial::Signature
                }
                Err(_) => return Err(JwtDenial::Malformed),
            }
        }
        Err(denial)
    }

    fn check(&self, claims: &Claims, now: Wall) -> Result<(), JwtDenial> {
        // Both are far below what a floating-point number of seconds can tell apart.
        let (now, leeway) = ((now.0 / SECOND) as f64, self.leeway_seconds as f64);
        let expires = claims.seconds("exp")?.ok_or_else(|| JwtDenial::Claim("exp".into()))?;
        if now >= expires + leeway {
            return Err(JwtDenial::Expired);
        }
        if claims.seconds("nbf")?.is_some_and(|begins| now < begins - leeway) {
            return Err(JwtDenial::NotYet);
        }
        if claims.0.get("iss").and_then(Value::as_str) != Some(&*self.issuer) {
            return Err(JwtDenial::Issuer);
        }
        let is_for = |audience: &Value| {
            audience.as_str().is_some_and(|name| self.audiences.iter().any(|own| **own == *name))
        };
        let is_for_us = match claims.0.get("aud") {
            None => self.audiences.is_empty(),
            Some(Value::Array(audiences)) => audiences.iter().any(is_for),
            Some(audience) => is_for(audience),
        };
        if !is_for_us {
            return Err(JwtDenial::Audience);
        }
        match self.required.iter().find(|(name, value)| !claims.has(name, value)) {
            Some((name, _)) => Err(JwtDenial::Required(name.clone())),
            None => Ok(()),
        }
    }
}

/// The library checks signatures; whatever it would compare with the clock is compared here.
fn signature_only(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}

impl Claims {
    /// A claim of this name; or, if the name begins with a slash, the one at this place (RFC 6901).
    fn at(&self, name: &str) -> Option<&Value> {
        let Some(pointer) = name.strip_prefix('/') else { return self.0.get(name) };
        let (first, rest) =
            pointer.split_once('/').map_or((pointer, None), |(first, rest)| (first, Some(rest)));
        let first = self.0.get(&first.replace("~1", "/").replace("~0", "~"))?;
        rest.map_or(Some(first), |rest| first.pointer(&format!("/{rest}")))
    }

    /// A claim as text: a string, a number, a truth value, or a list of these with commas between them. `None` if it is
    /// not there.
    ///
    /// # Errors
    /// If it is something else, longer than [`MAX_CLAIM_BYTES`], or has control characters.
    pub fn text(&self, name: &str) -> Result<Option<Box<str>>, JwtDenial> {
        let wrong = || JwtDenial::Claim(name.into());
        let text = match self.at(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Array(members)) => {
                let members: Option<Vec<Cow<'_, str>>> = members.iter().map(plain).collect();
                Cow::Owned(members.ok_or_else(wrong)?.join(","))
            }
            Some(value) => plain(value).ok_or_else(wrong)?,
        };
        let is_good = text.len() <= MAX_CLAIM_BYTES && !text.chars().any(char::is_control);
        if is_good { Ok(Some(text.into())) } else { Err(wrong()) }
    }

    /// When the token ends, in seconds of civil time.
    #[must_use]
    pub fn expires(&self) -> f64 {
        self.seconds("exp").ok().flatten().unwrap_or(0.0)
    }

    /// Whether a claim has a value: is it, has it among others, or, as `scope` and `scp` do, as one of its words.
    fn has(&self, name: &str, wanted: &str) -> bool {
        let is_it = |value: &Value| plain(value).is_some_and(|text| wanted == ANY_VALUE || text == wanted);
        match self.at(name) {
            None | Some(Value::Null) => false,
            Some(Value::Array(members)) => members.iter().any(is_it),
            Some(Value::String(text)) if matches!(name, "scope" | "scp") => {
                text.split(' ').any(|word| wanted == ANY_VALUE || word == wanted)
            }
            Some(value) => is_it(value) || (wanted == ANY_VALUE && value.is_object()),
        }
    }

    fn seconds(&self, name: &str) -> Result<Option<f64>, JwtDenial> {
        match self.0.get(name) {
            None => Ok(None),
            Some(value) => {
                let seconds = value.as_f64().filter(|seconds| seconds.is_finite());
                seconds.map(Some).ok_or_else(|| JwtDenial::Claim(name.into()))
            }
        }
    }
}

fn plain(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Bool(truth) => Some(Cow::Borrowed(if *truth { "true" } else { "false" })),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
