//! Authentication: the gateway takes the credential from a request, verifies it, and tells the server who the consumer is.
//!
//! A route names one way, several of which the first decides for which there is something (`auth_any`), or several that are all
//! demanded (`auth_all`).
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

use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use sha2::{Digest, Sha256};
use tidegate_access::jwt::{JwtDenial, MAX_TOKEN_BYTES};
use tidegate_access::keys::{ApiKeys, KeyDenial};
use tidegate_net::clock::{monotonic, wall};

use crate::authentication::identity::{Attested, CONSUMER, Identity};
use crate::authentication::places::{
    StatedText, of_basic, of_bearer, of_cookie, of_field, of_parameter, of_subprotocol,
};
use crate::config::{Auth, CertificateAuth, JwtAuth, KeyAuth, KeyPlace, TokenPlace};
use crate::observed::record::{Recorder, What};
use crate::response::refusal::{CERTIFICATE, Refusal};
use crate::routes::normal::Normal;
use crate::routes::route::Route;
use crate::service::Gateway;

/// Longest that a key's text is looked at, encoded or not.
const MAX_TEXT: usize = 512;

/// What a request states to prove whose it is.
#[derive(Debug)]
pub(crate) struct StatedCredential {
    key: StatedText,
    token: StatedText,
    /// The subprotocol that a client of WebSocket must be answered, since it has offered no other and it led to the token.
    pub(crate) subprotocol: Option<HeaderValue>,
    /// The place of the first way for which there is something, among those of the route.
    first: Option<usize>,
    /// Tells these keys and tokens from others, where a service's answer is remembered beside what they prove.
    credentials: Option<[u8; 32]>,
}

impl StatedCredential {
    /// The key, which is verified once.
    pub(crate) fn key(&mut self) -> StatedText {
        std::mem::replace(&mut self.key, Ok(None))
    }

    /// The token, which is verified once.
    pub(crate) fn token(&mut self) -> StatedText {
        std::mem::replace(&mut self.token, Ok(None))
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for text in [&self.key, &self.token] {
            let text = text.as_ref().ok().and_then(Option::as_deref).unwrap_or_default();
            digest.update(text.len().to_le_bytes());
            digest.update(text);
        }
        digest.finalize().into()
    }

    /// Why it cannot be said which of several values is meant, if it cannot. Whatever way decides: the others were left on the request.
    fn malformed(&mut self) -> Option<Refusal> {
        let unclear = [&mut self.key, &mut self.token].into_iter().find(|credential| credential.is_err())?;
        std::mem::replace(unclear, Ok(None)).err()
    }
}

impl Auth {
    /// Takes what proves whose a request is off it. `shows_certificate`: its connection has, one with a name.
    pub(crate) fn take(&self, request: &mut Parts, shows_certificate: bool) -> StatedCredential {
        let (key, token) = (Ok(None), Ok(None));
        let mut stated = StatedCredential { key, token, subprotocol: None, first: None, credentials: None };
        for (place, way) in self.ways().iter().enumerate() {
            let is_there = match way {
                Self::Key(key) => {
                    stated.key = key.take(request);
                    !matches!(stated.key, Ok(None))
                }
                Self::Jwt(jwt) => {
                    // Where another way decides, nobody verifies the token, and no server is sent it.
                    let may_stay = stated.first.is_none() || !matches!(self, Self::Any { .. });
                    (stated.token, stated.subprotocol) = jwt.take(request, may_stay);
                    !matches!(stated.token, Ok(None))
                }
                Self::Certificate(_) => shows_certificate,
                Self::Forward(_) => true,
                // A list has no list in it.
                Self::Any { .. } | Self::All { .. } => false,
            };
            if is_there {
                stated.first = stated.first.or(Some(place));
            }
        }
        let remembers = |way: &Self| matches!(way, Self::Forward(forward) if forward.cache > 0);
        if matches!(self, Self::All { ways, .. } if ways.iter().any(remembers)) {
            stated.credentials = Some(stated.digest());
        }
        stated
    }

    /// The ways in which a request that states this must prove whose it is: at least one.
    pub(crate) fn demanded(&self, stated: &mut StatedCredential) -> Result<&[Self], Refusal> {
        if self.ways().len() > 1
            && let Some(refusal) = stated.malformed()
        {
            return Err(refusal);
        }
        let demanded = match self {
            Self::Any { ways, .. } => {
                stated.first.and_then(|place| ways.get(place..=place)).unwrap_or_default()
            }
            other => other.ways(),
        };
        if demanded.is_empty() {
            return Err(Refusal::NoCredential { challenges: self.challenges() });
        }
        Ok(demanded)
    }

    /// What a request is told that states nothing: a challenge for each place where a proof is looked for.
    fn challenges(&self) -> Vec<HeaderValue> {
        let of_way = |way: &Self| match way {
            Self::Key(key) => key.challenges.clone(),
            Self::Jwt(_) => HeaderValue::from_str(&JwtDenial::Missing.challenge()).into_iter().collect(),
            Self::Certificate(_) => vec![HeaderValue::from_static(CERTIFICATE)],
            Self::Forward(_) | Self::Any { .. } | Self::All { .. } => Vec::new(),
        };
        self.ways().iter().flat_map(of_way).collect()
    }

    /// The identity of a request that has proved these, in the order of the ways.
    pub(crate) fn identity(&self, mut proved: Vec<Identity>) -> Option<Identity> {
        match self {
            Self::Any { attributes, .. } | Self::All { attributes, .. } => {
                Some(Identity::Joined { proved: proved.into(), attributes: Arc::clone(attributes) })
            }
            _ => proved.pop(),
        }
    }

    /// Whether that may stand in the target.
    pub(crate) fn is_in_target(&self) -> bool {
        match self {
            Self::Key(key) => key.places.iter().any(|place| matches!(place, KeyPlace::Parameter(_))),
            Self::Jwt(jwt) => jwt.places.iter().any(|place| matches!(place, TokenPlace::Parameter(_))),
            Self::Forward(_) | Self::Certificate(_) => false,
            Self::Any { ways, .. } | Self::All { ways, .. } => ways.iter().any(Self::is_in_target),
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
    fn take(&self, request: &mut Parts) -> StatedText {
        let mut found = None;
        let mut refused = None;
        for place in &self.places {
            match take(place, request) {
                Ok(text) => found = found.or(text),
                Err(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        refused.map_or(Ok(found), Err)
    }

    /// Whose request it is, if its key opens this route. `notes`: it is a request, and no question about one.
    pub(crate) fn verify(
        &self,
        stated: StatedText,
        keys: &ApiKeys,
        notes: bool,
    ) -> Result<Identity, Refusal> {
        let text = stated?;
        let text = text.as_deref();
        let (route, scope) = (&*self.route, self.scope.as_deref());
        let found = if notes {
            keys.admit(text, route, scope, wall())
        } else {
            keys.look(text, wall()).and_then(|key| key.opens(route, scope).map(|()| key))
        };
        let key = found.map_err(|denial| match denial {
            KeyDenial::Stale => Refusal::StaleKeys,
            KeyDenial::Route | KeyDenial::Scope => Refusal::KeyLacks(denial),
            denial => Refusal::Unauthorized { denial, challenges: self.challenges.clone() },
        });
        key.map(Identity::Key)
    }
}

impl JwtAuth {
    /// Takes tokens off a request, from every place where one is looked for; the first counts, and is left where it is if it `may_stay`
    /// and servers are to be sent it. No other is: nobody verifies it. With it comes what a client of WebSocket must be answered.
    fn take(&self, request: &mut Parts, may_stay: bool) -> (StatedText, Option<HeaderValue>) {
        let (mut found, mut refused, mut subprotocol) = (None, None, None);
        for place in &self.places {
            let kept = place.field().filter(|_| self.forward && may_stay && found.is_none());
            let kept = kept.map(|name| (lines(&request.headers, &name), name));
            let placed = match place {
                TokenPlace::Bearer => of_bearer(&mut request.headers),
                TokenPlace::Cookie(name) => of_cookie(&mut request.headers, name),
                TokenPlace::Parameter(name) => of_parameter(request, name),
                TokenPlace::Protocol(name) => {
                    let (placed, answered) = of_subprotocol(&mut request.headers, name);
                    subprotocol = subprotocol.or(answered);
                    placed
                }
            };
            match placed {
                Ok(text) => {
                    let text = text.filter(|text| (1..=MAX_TOKEN_BYTES).contains(&text.len()));
                    if let Some((lines, name)) = kept.filter(|_| text.is_some()) {
                        put_back(&mut request.headers, &name, lines);
                    }
                    found = found.or(text);
                }
                Err(_) if *place == TokenPlace::Bearer => refused = refused.or(Some(two_fields())),
                Err(_) => {
                    refused = refused.or(Some(Refusal::Malformed("the token is stated more than once")));
                }
            }
        }
        (refused.map_or(Ok(found), Err), subprotocol)
    }
}

impl TokenPlace {
    /// The field whose lines a token can be left in.
    fn field(&self) -> Option<HeaderName> {
        match self {
            Self::Bearer => Some(AUTHORIZATION),
            Self::Cookie(_) => Some(COOKIE),
            Self::Parameter(_) | Self::Protocol(_) => None,
        }
    }
}

fn lines(fields: &HeaderMap, name: &HeaderName) -> Vec<HeaderValue> {
    fields.get_all(name).iter().cloned().collect()
}

fn put_back(fields: &mut HeaderMap, name: &HeaderName, lines: Vec<HeaderValue>) {
    fields.remove(name);
    for line in lines {
        fields.append(name.clone(), line);
    }
}

fn take(place: &KeyPlace, request: &mut Parts) -> StatedText {
    let twice = |_| Refusal::Malformed("the API key is stated more than once");
    let placed = match place {
        KeyPlace::Field(name) => of_field(&mut request.headers, name).map_err(twice),
        KeyPlace::Parameter(name) => of_parameter(request, name).map_err(twice),
        KeyPlace::Bearer => of_bearer(&mut request.headers).map_err(|_| two_fields()),
        KeyPlace::Basic => of_basic(&mut request.headers, MAX_TEXT).map_err(|_| two_fields()),
    };
    placed.map(|text| text.and_then(|text| bounded(&text)))
}

/// The refusal of `Authorization` that is there twice.
fn two_fields() -> Refusal {
    Refusal::Malformed("the field Authorization is there more than once")
}

fn bounded(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii();
    (1..=MAX_TEXT).contains(&text.len()).then(|| text.to_vec())
}

impl Gateway {
    /// Authenticates a request, if its route asks for that.
    pub(crate) async fn authenticate(
        &self,
        route: &Route,
        stated: Option<StatedCredential>,
        normal: &mut Normal<'_>,
        parts: &Parts,
        record: &mut Recorder,
    ) -> Result<(), Refusal> {
        let Some(auth) = &route.config.auth else { return Ok(()) };
        if normal.is_preflight {
            return Ok(());
        }
        let found = match stated {
            Some(stated) => self.proved(auth, route, stated, normal, parts).await,
            // Nothing was taken off it, so that it has proved nothing.
            None => Err(Refusal::NoCredential { challenges: auth.challenges() }),
        };
        record.step(|| What::Authenticate);
        normal.since = monotonic();
        normal.identity = found?;
        record.identified(normal.identity.as_ref());
        Ok(())
    }

    /// The identity that a request proves in all ways that are demanded of it; the first that fails is the answer.
    async fn proved(
        &self,
        auth: &Auth,
        route: &Route,
        mut stated: StatedCredential,
        normal: &mut Normal<'_>,
        parts: &Parts,
    ) -> Result<Option<Identity>, Refusal> {
        let mut proved = Vec::new();
        for way in auth.demanded(&mut stated)? {
            proved.extend(self.prove(way, route, &mut stated, normal, parts).await?);
        }
        Ok(auth.identity(proved))
    }

    /// The identity that a request proves in one way; `None`: it may pass all the same.
    async fn prove(
        &self,
        way: &Auth,
        route: &Route,
        stated: &mut StatedCredential,
        normal: &mut Normal<'_>,
        parts: &Parts,
    ) -> Result<Option<Identity>, Refusal> {
        match way {
            // In a box: it takes far more room than all the rest, and few routes need it.
            Auth::Forward(forward) => {
                let beside = stated.credentials;
                let admitted = Box::pin(self.ask_authority(forward, route, normal, parts, beside)).await?;
                normal.cookies = admitted.cookies;
                Ok(admitted.identity)
            }
            Auth::Certificate(auth) => auth.verify(normal.peer.tls_name.as_deref()).map(Some),
            Auth::Jwt(auth) => {
                // Invariant: a route that asks for a JWT was made with what verifies it.
                let verifier = route.jwt.as_ref().ok_or(Refusal::NoJwtKeys)?;
                let (token, now) = (stated.token(), self.tick());
                let found = verifier.verify(auth, token, self.known(), self.jwt_counts(), now).await;
                found.map(Some)
            }
            Auth::Key(auth) => auth.verify(stated.key(), self.keys(), true).map(Some),
            // A list has no list in it.
            Auth::Any { .. } | Auth::All { .. } => Err(Refusal::NoCredential { challenges: Vec::new() }),
        }
    }

    /// The identity that a request would prove in one way by what it states, for an explanation.
    pub(crate) fn look(
        &self,
        way: &Auth,
        route: &Route,
        stated: &mut StatedCredential,
    ) -> Result<Identity, Refusal> {
        match (way, &route.jwt) {
            (Auth::Key(auth), _) => auth.verify(stated.key(), self.keys(), false),
            (Auth::Jwt(auth), Some(verifier)) => {
                verifier.look(auth, stated.token(), self.known(), self.tick())
            }
            (Auth::Jwt(_), None) => Err(Refusal::NoJwtKeys),
            // An explanation asks no other service, and there is no connection that could have shown a certificate.
            (Auth::Forward(_), _) => Err(Refusal::NoAuthority),
            (Auth::Certificate(_), _) => Err(Refusal::NoCertificate),
            (Auth::Any { .. } | Auth::All { .. }, _) => Err(Refusal::NoCredential { challenges: Vec::new() }),
        }
    }
}

#[cfg(test)]
mod tests;
