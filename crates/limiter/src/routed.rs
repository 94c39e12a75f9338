//! Decisions about requests that a gateway routes: under the policies that the route lists.
//!
//! Each attribute has one source, as for `/v1/check` (decision 0065):
//!
//! | attribute | source, unless `[attributes.gateway]` names one |
//! |---|---|
//! | `route`, `method`, `host`, `path` | the request, the path in normal form |
//! | `ip` | the client's address; an IPv6 one as its /64 |
//! | `client_id` | the same, also where the configured source has no value; of a request that has proved whose it is that client |
//! | what the request has proved | `api_key`, `consumer`, `tier` of an API key, mapped claims of a JWT; then no other source is looked at |

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use serde_json::Value;
use thiserror::Error;
use tidegate_algorithms::policy::{Attributes, Policy, Source};

use crate::answers::Door;
use crate::decision::Decision;
use crate::engine::{Ask, Engine};
use crate::error::AskError;
use crate::policy_set::{CLIENT_ID, PolicySet};
pub use crate::routed_permits::RoutedHold;
use crate::routed_permits::RoutedPermit;
use crate::sources::{self, SourceError};

/// The attributes of a routed request that no source names: all but the last are the request's own.
pub const ATTRIBUTES: [&str; 6] = ["route", "method", "host", "path", "ip", CLIENT_ID];

/// The attribute that may have a second reading.
const PATH: &str = "path";

/// An attribute's name and value.
type RoutedAttribute<'a> = (&'a str, Cow<'a, [u8]>);

/// What is known of a request.
#[derive(Clone, Copy, Debug)]
pub struct RoutedRequest<'a> {
    /// The name of its route.
    pub route: &'a str,
    /// Its method.
    pub method: &'a str,
    /// Its host.
    pub host: &'a str,
    /// Its path, in normal form.
    pub path: &'a str,
    /// The same for a server that takes encoded slashes and backslashes for slashes; `None`: it has none.
    pub other_path: Option<&'a str>,
    /// Its query, as it came.
    pub query: &'a str,
    /// The client's address.
    pub client: IpAddr,
    /// Its header fields.
    pub fields: &'a HeaderMap,
    /// The name in the certificate that its connection showed.
    pub tls_name: Option<&'a str>,
    /// The consumer that it has proved to be from.
    pub proved: Proved<'a>,
}

/// The consumer that a request has proved to be from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proved<'a> {
    /// The consumer's name.
    pub client: Option<&'a str>,
    /// Attributes that nothing else may state; `None`: the request does not have the attribute.
    pub attributes: &'a [(&'a str, Option<&'a str>)],
}

/// Why there is no decision.
#[derive(Debug, Error)]
pub enum RoutedError {
    /// What the request states has no one reading.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The request is out of bounds, or the store gave no answer.
    #[error(transparent)]
    Ask(#[from] AskError),
}

impl Engine {
    /// Decides a routed request under those of `policies` that apply. What concurrency limits have granted is held
    /// until the second value is dropped.
    ///
    /// # Errors
    /// As [`Engine::decide`]; and when an attribute has no one value.
    pub async fn decide_routed(
        self: &Arc<Self>,
        policies: &[Arc<str>],
        request: &RoutedRequest<'_>,
    ) -> Result<(Decision, Option<RoutedHold>), RoutedError> {
        let set = self.in_force();
        let address = sources::address_text(request.client);
        let attributes = request.attributes(&set, policies, &address)?;
        let pairs: Vec<(&str, &[u8])> = attributes.iter().map(|(name, value)| (*name, &**value)).collect();
        let ask = Ask {
            attributes: Attributes::new(&pairs),
            cost: 1,
            peek: false,
            can_release: true,
            door: Door::Gateway,
        };
        let decision = self.decide_under(policies, &ask).await?;
        let permit = RoutedPermit::of(&decision, &pairs);
        Ok((decision, permit.map(|permit| permit.hold(Arc::clone(self)))))
    }
}

impl Engine {
    /// Has the candidate judge a request whose route lists no policies. Nothing in force is charged.
    pub fn judge_unlimited(&self, request: &RoutedRequest<'_>) {
        let set = self.in_force();
        let address = sources::address_text(request.client);
        let Ok(attributes) = request.attributes(&set, &[], &address) else { return };
        let pairs: Vec<(&str, &[u8])> = attributes.iter().map(|(name, value)| (*name, &**value)).collect();
        let attributes = Attributes::new(&pairs);
        self.judge_listed(&Ask { attributes, cost: 1, peek: false, can_release: true, door: Door::Gateway });
    }

    /// What [`Engine::decide_routed`] would say, and of each of the `policies` whether it applies, its numbers and
    /// its state. Nothing is charged.
    ///
    /// # Errors
    /// As [`Engine::decide_routed`].
    pub async fn explain_routed(
        &self,
        policies: &[Arc<str>],
        request: &RoutedRequest<'_>,
    ) -> Result<Value, RoutedError> {
        let set = self.set();
        let address = sources::address_text(request.client);
        let attributes = request.attributes(&set, policies, &address)?;
        let pairs: Vec<(&str, &[u8])> = attributes.iter().map(|(name, value)| (*name, &**value)).collect();
        let attributes = Attributes::new(&pairs);
        let decision = self
            .decide_under(
                policies,
                &Ask { attributes, cost: 1, peek: true, can_release: true, door: Door::Gateway },
            )
            .await?;
        Ok(crate::explain::of_policies(self, &set, &attributes, &decision, policies))
    }
}

impl Engine {
    /// The policies among `policies` that can count a request without credentials, as a browser's preflight is: they use only
    /// its route, line and host, and its client's address.
    #[must_use]
    pub fn of_anyone(&self, policies: &[Arc<str>]) -> Vec<Arc<str>> {
        let set = self.in_force();
        let sources = &set.sources().gateway;
        // Without a source it is the address; with one, whoever sends a preflight could charge any client.
        let is_known =
            |name: &str| ATTRIBUTES.contains(&name) && (name != CLIENT_ID || sources.of(name).is_none());
        let is_of_anyone = |policy: &Policy| {
            policy.matches.iter().map(|(name, _)| name).chain(&policy.key).all(|name| is_known(name))
        };
        let listed =
            policies.iter().filter(|name| set.policy(name).is_some_and(|it| is_of_anyone(&it.policy)));
        listed.cloned().collect()
    }
}

impl<'a> RoutedRequest<'a> {
    fn attributes(
        &'a self,
        set: &'a PolicySet,
        policies: &[Arc<str>],
        address: &'a str,
    ) -> Result<Vec<RoutedAttribute<'a>>, SourceError> {
        let sources = &set.sources().gateway;
        let in_force = || policies.iter().filter_map(|policy| set.policy(policy));
        let is_needed = |name: &str| in_force().any(|it| it.policy.attributes().any(|other| other == name));
        let mut configured = sources.read(is_needed, |source| self.look(source, address))?;
        let is_proved = |name: &str| self.proved.attributes.iter().any(|(other, _)| *other == name);
        configured.retain(|(name, _)| !is_proved(name));
        let has_client = configured.iter().any(|(name, _)| *name == CLIENT_ID) || is_proved(CLIENT_ID);
        let built_in = [self.route, self.method, self.host, self.path, address];
        let built_in = ATTRIBUTES.into_iter().zip(built_in).filter(|(name, _)| sources.of(name).is_none());
        // A policy applies if any reading of the path matches, and counts by the first (decision 0311).
        let other = self.other_path.filter(|_| sources.of(PATH).is_none()).map(|path| (PATH, path));
        let client = self.proved.client.unwrap_or(address);
        let client = Some((CLIENT_ID, client)).filter(|_| !has_client);
        let proved = self.proved.attributes.iter().filter_map(|(name, value)| Some((*name, (*value)?)));
        let mut attributes = configured;
        let value = |(name, value): (&'a str, &'a str)| (name, Cow::Borrowed(value.as_bytes()));
        attributes.extend(built_in.chain(other).chain(client).chain(proved).map(value));
        Ok(attributes)
    }

    fn look(&'a self, source: &Source, address: &'a str) -> Result<Option<Cow<'a, [u8]>>, SourceError> {
        Ok(match source {
            Source::Header(name) => sources::header(self.fields, name)?.map(Cow::Borrowed),
            Source::Cookie(name) => sources::cookie(self.fields, name)?.map(Cow::Borrowed),
            Source::Query(name) => self.parameter(name)?,
            Source::PathPart(number) => {
                // Of the reading with more separators: parts do not vanish in others.
                let path = self.other_path.unwrap_or(self.path);
                path.split('/').nth(*number).map(|part| Cow::Borrowed(part.as_bytes()))
            }
            Source::Address => Some(Cow::Borrowed(address.as_bytes())),
            Source::TlsName => self.tls_name.map(|name| Cow::Borrowed(name.as_bytes())),
        })
    }

    fn parameter(&self, name: &str) -> Result<Option<Cow<'a, [u8]>>, SourceError> {
        let parsed = form_urlencoded::parse(self.query.as_bytes());
        let mut values = parsed.filter(|(other, _)| other == name).map(|(_, value)| value);
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(SourceError::RepeatedParameter(name.to_owned())),
            (value, None) => Ok(value.map(|value| match value {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            })),
        }
    }
}
