//! The identity that a request has proved: attributes for limits, fields for servers.
//!
//! | proved by | `client_id`, where no source names it | attributes that nothing else may state | fields for servers |
//! |---|---|---|---|
//! | an API key | the key's id | `api_key`, `consumer`, `tier` | those of [`IdentityFields`] |
//! | another service's word | | those of the route's mapping | fields of its answer, and those of [`IdentityFields`] |
//! | a JWT | its `sub` | those of the route's mapping | those of the route's mapping, and of [`IdentityFields`] |
//! | a client certificate | its name | `consumer`, its name | those of [`IdentityFields`] |
//! | one or all of several ways | what the last of them says that says it | those of all, and the rest of what the route's ways may prove, which it then does not have | those of all |

use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tidegate_access::keys::ApiKey;

use crate::forwarding::fields::FieldEdits;

pub(crate) const CONSUMER: &str = "consumer";
pub(crate) const TIER: &str = "tier";
/// The attributes of a client with an API key.
pub(crate) const OF_KEYS: [&str; 3] = ["api_key", CONSUMER, TIER];

/// The identity that a request's client has proved.
#[derive(Clone, Debug)]
pub enum Identity {
    /// The owner of an API key.
    Key(Arc<ApiKey>),
    /// Whom somebody that is trusted says it is.
    Attested(Arc<Attested>),
    /// What was proved on a route with several ways. Of two that say the same, the later one counts.
    Joined {
        /// In the route's order.
        proved: Arc<[Self]>,
        /// What any of the route's ways may prove. A client that has proved another one does not have it, whatever else states it.
        attributes: Arc<[Arc<str>]>,
    },
}

/// What somebody that is trusted says of a client.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Attested {
    /// Its name there.
    pub subject: Option<Box<str>>,
    /// Attributes that no other source may state; `None`: this client does not have the attribute.
    pub attributes: Vec<(Arc<str>, Option<Box<str>>)>,
    /// What servers are told.
    pub fields: Vec<(HeaderName, HeaderValue)>,
}

impl Attested {
    fn attribute(&self, name: &str) -> Option<&str> {
        let found = self.attributes.iter().find(|(known, _)| **known == *name);
        found.and_then(|(_, value)| value.as_deref())
    }
}

impl Identity {
    /// What tells this client from others.
    #[must_use]
    pub fn client(&self) -> Option<&str> {
        match self {
            Self::Key(key) => Some(key.id()),
            Self::Attested(attested) => attested.subject.as_deref(),
            Self::Joined { proved, .. } => proved.iter().rev().find_map(Self::client),
        }
    }

    /// The id of its API key.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Key(key) => Some(key.id()),
            Self::Attested(_) => None,
            Self::Joined { proved, .. } => proved.iter().rev().find_map(Self::key),
        }
    }

    /// Who it is.
    #[must_use]
    pub fn consumer(&self) -> Option<&str> {
        match self {
            Self::Key(key) => Some(key.consumer()),
            Self::Attested(attested) => attested.attribute(CONSUMER),
            Self::Joined { proved, .. } => proved.iter().rev().find_map(Self::consumer),
        }
    }

    /// The tier, which says which numbers of a policy hold for it.
    #[must_use]
    pub fn tier(&self) -> Option<&str> {
        match self {
            Self::Key(key) => key.tier(),
            Self::Attested(attested) => attested.attribute(TIER),
            Self::Joined { proved, .. } => proved.iter().rev().find_map(Self::tier),
        }
    }

    /// Attributes that it alone says something of, and what.
    #[must_use]
    pub fn attributes(&self) -> Vec<(&str, Option<&str>)> {
        match self {
            Self::Key(key) => {
                OF_KEYS.into_iter().zip([Some(key.id()), Some(key.consumer()), key.tier()]).collect()
            }
            Self::Attested(attested) => {
                attested.attributes.iter().map(|(name, value)| (&**name, value.as_deref())).collect()
            }
            Self::Joined { proved, attributes } => {
                let stated = proved.iter().rev().flat_map(Self::attributes);
                let others = attributes.iter().map(|name| (&**name, None));
                let mut all: Vec<(&str, Option<&str>)> = Vec::new();
                for (name, value) in stated.chain(others) {
                    match all.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, known)) => *known = known.or(value),
                        None => all.push((name, value)),
                    }
                }
                all
            }
        }
    }

    /// Fields for servers that it alone says, in a request's.
    fn tell_own(&self, fields: &mut HeaderMap) {
        match self {
            Self::Key(_) => {}
            Self::Attested(attested) => {
                for (name, value) in &attested.fields {
                    fields.insert(name, value.clone());
                }
            }
            Self::Joined { proved, .. } => proved.iter().for_each(|identity| identity.tell_own(fields)),
        }
    }
}

/// The fields that tell servers a request's identity; `None`: they are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentityFields {
    /// Who it is.
    pub consumer: Option<HeaderName>,
    /// The API key's id.
    pub key: Option<HeaderName>,
    /// The tier.
    pub tier: Option<HeaderName>,
}

impl IdentityFields {
    pub(crate) fn names(&self) -> impl Iterator<Item = &HeaderName> {
        [&self.consumer, &self.key, &self.tier].into_iter().flatten()
    }

    /// Writes the identity into a request's fields.
    pub(crate) fn tell(&self, identity: &Identity, fields: &mut HeaderMap) {
        let told = [
            (&self.consumer, identity.consumer()),
            (&self.key, identity.key()),
            (&self.tier, identity.tier()),
        ];
        for (name, text) in told {
            let value = text.and_then(|text| HeaderValue::from_str(text).ok());
            if let (Some(name), Some(value)) = (name, value) {
                fields.insert(name, value);
            }
        }
        identity.tell_own(fields);
    }
}

/// `edits` that also take these fields off a request: they are made before any is set.
pub(crate) fn taken_off(edits: &FieldEdits, names: &[HeaderName]) -> FieldEdits {
    let mut edits = edits.clone();
    edits.remove.extend(names.iter().cloned());
    edits
}
