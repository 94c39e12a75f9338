//! Authentication: the gateway takes the credential from a request, verifies it, and tells the server who the consumer is.
//!
//! ```text
//!   take ── the key's or the token's text, off every place where the route looks for it, so that it reaches no server
//!     |     and no log (a token does, where the route says so)
//!   verify ── API keys in force ──.
//!         `── JWT: known for a minute at most, or verified with the issuer's keys ──.
//!                                                                     `── whose it is: attributes, fields for servers
//!                                                                     `── 401, with a challenge; 403; 503 without keys
//!         `── another service is asked (forward_auth.rs)
//!         `── the name in the certificate that the connection showed
//! ```
//!
//! The fields that name the client towards servers are taken off every request, whatever its route: a server may
//! believe them.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use http::header::{AUTHORIZATION, HeaderMap};
use http::request::Parts;
use http::uri::PathAndQuery;
use tidegate_access::jwt::MAX_TOKEN_BYTES;
use tidegate_access::keys::{ApiKeys, KeyDenial};
use tidegate_access::tokens::bearer;
use tidegate_net::clock::wall;

use crate::config::{Auth, CertificateAuth, KeyAuth, KeyPlace};
use crate::identity::{Attested, CONSUMER, Identity};
use crate::refusal::Refusal;

/// Longest that a key's text is looked at, encoded or not.
const MAX_TEXT: usize = 512;

/// The credential of a request.
#[derive(Debug)]
pub(crate) struct Stated(pub(crate) Result<Option<Vec<u8>>, Refusal>);

impl Auth {
    /// Takes what proves whose a request is off it.
    pub(crate) fn take(&self, request: &mut Parts) -> Stated {
        match self {
            Self::Key(key) => key.take(request),
            Self::Jwt(jwt) => Stated(token(&mut request.headers, jwt.forward)),
            Self::Forward(_) | Self::Certificate(_) => Stated(Ok(None)),
        }
    }

    /// Whether that may stand in the target.
    pub(crate) fn is_in_target(&self) -> bool {
        match self {
            Self::Key(key) => key.places.iter().any(|place| matches!(place, KeyPlace::Parameter(_))),
            Self::Jwt(_) | Self::Forward(_) | Self::Certificate(_) => false,
        }
    }
}

impl CertificateAuth {
    /// The identity of a request whose connection showed a certificate with this name.
    pub(crate) fn verify(&self, name: Option<&str>) -> Result<Identity, Refusal> {
        let name = name.ok_or(Refusal::NoCertificate)?;
        if !self.accepts(name) {
            return Err(Refusal::OtherCertificate);
        }
        let attributes = vec![(Arc::from(CONSUMER), Some(name.into()))];
        let attested = Attested { subject: Some(name.into()), attributes, fields: Vec::new() };
        Ok(Identity::Attested(Arc::new(attested)))
    }
}

impl KeyAuth {
    /// Takes the key off a request, from every place where one is looked for.
    fn take(&self, request: &mut Parts) -> Stated {
        let mut found = None;
        let mut refused = None;
        for place in &self.places {
            match take(place, request) {
                Ok(text) => found = found.or(text),
                Err(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        Stated(refused.map_or(Ok(found), Err))
    }

    /// Whose request it is. `notes`: it is a request, and no question about one.
    pub(crate) fn verify(&self, stated: Stated, keys: &ApiKeys, notes: bool) -> Result<Identity, Refusal> {
        let text = stated.0?;
        let text = text.as_deref();
        let found = if notes { keys.admit(text, wall()) } else { keys.look(text, wall()) };
        let key = found.map_err(|denial| match denial {
            KeyDenial::Stale => Refusal::StaleKeys,
            denial => Refusal::Unauthorized { denial, challenges: self.challenges.clone() },
        });
        key.map(Identity::Key)
    }
}

/// The token of a request. It is taken off, unless it is to be passed on.
fn token(fields: &mut HeaderMap, is_passed_on: bool) -> Result<Option<Vec<u8>>, Refusal> {
    let read = |value: &[u8]| {
        let token = bearer(value)?;
        (1..=MAX_TOKEN_BYTES).contains(&token.len()).then(|| token.to_vec())
    };
    let before = fields.get(AUTHORIZATION).cloned().filter(|_| is_passed_on);
    let token = authorization(fields, read)?;
    if let Some(before) = before {
        fields.insert(AUTHORIZATION, before);
    }
    Ok(token)
}

fn take(place: &KeyPlace, request: &mut Parts) -> Result<Option<Vec<u8>>, Refusal> {
    let twice = Refusal::Malformed("the API key is stated more than once");
    match place {
        KeyPlace::Field(name) => {
            let is_twice = request.headers.get_all(name).iter().nth(1).is_some();
            let value = request.headers.remove(name);
            if is_twice { Err(twice) } else { Ok(value.and_then(|value| bounded(value.as_bytes()))) }
        }
        KeyPlace::Parameter(name) => {
            let (uri, mut values) = without_parameter(&request.uri, name);
            if let Some(uri) = uri {
                request.uri = uri;
            }
            if values.len() > 1 {
                Err(twice)
            } else {
                Ok(values.pop().and_then(|text| bounded(text.as_bytes())))
            }
        }
        KeyPlace::Bearer => authorization(&mut request.headers, |value| bearer(value).and_then(bounded)),
        KeyPlace::Basic => authorization(&mut request.headers, basic),
    }
}

fn bounded(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii();
    (1..=MAX_TEXT).contains(&text.len()).then(|| text.to_vec())
}

/// Takes `Authorization` off if it is of the scheme that `read` reads.
fn authorization(
    fields: &mut HeaderMap,
    read: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Result<Option<Vec<u8>>, Refusal> {
    let mut values = fields.get_all(AUTHORIZATION).iter();
    let (value, other) = (values.next(), values.next());
    let text = value.and_then(|value| read(value.as_bytes()));
    if other.is_some() {
        return Err(Refusal::Malformed("the field Authorization is there more than once"));
    }
    if text.is_some() {
        fields.remove(AUTHORIZATION);
    }
    Ok(text)
}

/// The password of Basic credentials, or the user's name if that is empty.
fn basic(authorization: &[u8]) -> Option<Vec<u8>> {
    let (scheme, encoded) = authorization.split_at_checked(b"Basic ".len())?;
    let encoded = encoded.trim_ascii();
    if !scheme.eq_ignore_ascii_case(b"basic ") || encoded.len() > 2 * MAX_TEXT {
        return None;
    }
    let decoded = STANDARD.decode(encoded).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (user, password) = (&decoded[..colon], &decoded[colon + 1..]);
    bounded(if password.is_empty() { user } else { password })
}

/// The target without a parameter of its query, if it has it, and its values.
fn without_parameter(uri: &Uri, name: &str) -> (Option<Uri>, Vec<String>) {
    let mut values = Vec::new();
    let Some(query) = uri.query() else { return (None, values) };
    let mut kept: Vec<&str> = Vec::new();
    for part in query.split('&') {
        match form_urlencoded::parse(part.as_bytes()).next() {
            Some((key, value)) if key == name => values.push(value.into_owned()),
            _ => kept.push(part),
        }
    }
    if values.is_empty() {
        return (None, values);
    }
    let kept = kept.join("&");
    let target = if kept.is_empty() { uri.path().to_owned() } else { format!("{}?{kept}", uri.path()) };
    let mut parts = uri.clone().into_parts();
    // Invariant: what is left of a target's own path and query is one.
    parts.path_and_query = PathAndQuery::try_from(target).ok();
    (Uri::from_parts(parts).ok(), values)
}

#[cfg(test)]
mod tests {
    use http::header::HeaderName;

    use super::*;

    fn request(uri: &str, fields: &[(&'static str, &str)]) -> Parts {
        let mut request = http::Request::builder().uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn taken(places: Vec<KeyPlace>, request: &mut Parts) -> Result<Option<String>, &'static str> {
        let auth = KeyAuth { places, challenges: Vec::new() };
        let stated = auth.take(request).0.map_err(|refusal| refusal.word())?;
        Ok(stated.map(|text| String::from_utf8(text).unwrap()))
    }

    #[test]
    fn a_key_is_taken_off_every_place_and_the_first_counts() {
        let field = || KeyPlace::Field(HeaderName::from_static("x-api-key"));
        let parameter = || KeyPlace::Parameter("key".into());
        let mut parts = request("/a?x=1&k%65y=second&y", &[("x-api-key", " first ")]);
        assert_eq!(taken(vec![field(), parameter()], &mut parts), Ok(Some("first".to_owned())));
        assert_eq!((parts.uri.to_string().as_str(), parts.headers.len()), ("/a?x=1&y", 0));
        let mut parts = request("http://h/a?key=k", &[]);
        assert_eq!(taken(vec![field(), parameter()], &mut parts), Ok(Some("k".to_owned())));
        assert_eq!(parts.uri, "http://h/a");
        let mut parts = request("/", &[("authorization", "Bearer abc")]);
        assert_eq!(taken(vec![KeyPlace::Basic], &mut parts), Ok(None));
        assert!(parts.headers.contains_key(AUTHORIZATION), "of another scheme, it is the application's");
        assert_eq!(taken(vec![KeyPlace::Basic, KeyPlace::Bearer], &mut parts), Ok(Some("abc".to_owned())));
        assert!(!parts.headers.contains_key(AUTHORIZATION));
        for (pair, key) in [("me:k", "k"), ("k:", "k"), (":k:x", "k:x")] {
            let value = format!("bAsic {}", STANDARD.encode(pair));
            let mut parts = request("/", &[("authorization", &value)]);
            assert_eq!(taken(vec![KeyPlace::Basic], &mut parts), Ok(Some(key.to_owned())), "{pair}");
        }
    }

    #[test]
    fn fault_59_a_key_that_is_there_twice_is_none() {
        let field = || vec![KeyPlace::Field(HeaderName::from_static("x-api-key"))];
        let parameter = || vec![KeyPlace::Parameter("key".into())];
        let mut parts = request("/", &[("x-api-key", "a"), ("x-api-key", "a")]);
        assert_eq!(taken(field(), &mut parts), Err("malformed"));
        assert_eq!(taken(parameter(), &mut request("/?key=a&key=a", &[])), Err("malformed"));
        let mut parts = request("/", &[("authorization", "Bearer a"), ("authorization", "Basic Yjo=")]);
        assert_eq!(taken(vec![KeyPlace::Bearer], &mut parts), Err("malformed"));
        for hostile in ["", " ", &"x".repeat(MAX_TEXT + 1)] {
            assert_eq!(taken(field(), &mut request("/", &[("x-api-key", hostile)])), Ok(None));
        }
        for hostile in ["Basic", "Basic !", "Basic YQ==", "Basic Og=="] {
            assert_eq!(
                taken(vec![KeyPlace::Basic], &mut request("/", &[("authorization", hostile)])),
                Ok(None)
            );
        }
    }
}
