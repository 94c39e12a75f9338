//! The reach of policies, for `tidegate check`: attributes that no request can have, and concurrency
//! limits, which do not apply at every door.
//!
//! The asking door decides which attributes a request has. A policy that routes or the edge's listeners list is looked at with
//! the attributes that these supply: one that looks at another attribute never limits there. Any other policy is for the
//! decision service, whose callers send what attributes they like (`POST /v1/decisions`): one of these is a mistake only where
//! it looks like a slip of a known name, or is what a door knows that does not list the policy. (The intake knows nothing that
//! the decision service does not.)

use std::collections::BTreeSet;
use std::sync::Arc;

use tidegate_algorithms::policy::{Policy, nearest};
use tidegate_gateway::config::RouteConfig;
use tidegate_limiter::policy_set::{CLIENT_ID, InForce};
use tidegate_limiter::{connections, routed};

use super::layers::Layers;
use super::sample::Samples;
use crate::config::{Config, ProxyHeaders};

/// Attributes that say that a policy is about Envoy's descriptors, whose entries Envoy names.
const OF_ENVOY: [&str; 2] = ["domain", "descriptor_keys"];

/// What a proxy in front says of the request that it asks `/v1/check` about, where `http.proxy_headers` has it believed.
const PROXIED: [&str; 2] = ["path", "method"];

/// Who lists policies.
pub(super) struct Reach<'a> {
    config: &'a Config,
    layers: &'a Layers,
    routes: Vec<Arc<RouteConfig>>,
}

impl<'a> Reach<'a> {
    pub(super) fn of(config: &'a Config, layers: &'a Layers) -> Self {
        Self { config, layers, routes: layers.routes() }
    }

    fn policies(&self) -> impl Iterator<Item = &'a InForce> + use<'a> {
        self.layers.set.policies().iter()
    }

    /// The routes that list a policy.
    fn routes(&self, policy: &Policy) -> impl Iterator<Item = &Arc<RouteConfig>> {
        self.routes.iter().filter(|route| route.policies.contains(&policy.name))
    }

    /// Whether a listener of the edge counts connections, or their bytes, under a policy.
    fn is_at_the_edge(&self, policy: &Policy, bytes: bool) -> bool {
        self.config.edge_listeners.iter().any(|listener| {
            listener.policies.contains(&policy.name) || bytes && listener.byte_policies.contains(&policy.name)
        })
    }

    /// Whether a route or a listener of the edge lists a policy.
    fn is_listed(&self, policy: &Policy) -> bool {
        self.routes(policy).next().is_some() || self.is_at_the_edge(policy, true)
    }

    /// The attributes that a policy may meet, where callers do not send others.
    fn supplied<'s>(&'s self, policy: &Policy, samples: &'s Samples) -> BTreeSet<&'s str> {
        let mut supplied: BTreeSet<&str> = BTreeSet::from([CLIENT_ID, "ip"]);
        let sources = &self.config.layer.sources;
        if !self.is_listed(policy) {
            supplied.insert("resource");
            if self.config.settings.http.proxy_headers != ProxyHeaders::None {
                supplied.extend(PROXIED);
            }
            supplied.extend(sources.check.iter().chain(sources.grpc.iter()).map(|(name, _)| name));
        }
        for route in self.routes(policy) {
            supplied.extend(routed::ATTRIBUTES);
            supplied.extend(sources.gateway.iter().map(|(name, _)| name));
            supplied.extend(route.auth.iter().flat_map(|auth| auth.attributes()));
        }
        if self.is_at_the_edge(policy, true) {
            supplied.extend(connections::ATTRIBUTES);
        }
        supplied.extend(samples.names());
        supplied
    }

    /// What doors know of their requests by themselves. A policy that looks at it is probably meant for one of them.
    fn known_at_doors(&self) -> BTreeSet<&'static str> {
        let mut known = BTreeSet::from(PROXIED);
        if !self.routes.is_empty() {
            known.extend(routed::ATTRIBUTES);
        }
        if !self.config.edge_listeners.is_empty() {
            known.extend(connections::ATTRIBUTES);
        }
        known
    }

    /// Policies that look at an attribute which nothing supplies, in words.
    pub(super) fn unsupplied(&self, samples: &Samples) -> Vec<String> {
        let mut warnings = Vec::new();
        let at_doors = self.known_at_doors();
        for policy in self.policies().map(|in_force| &in_force.policy) {
            let names: BTreeSet<&str> = policy.attributes().collect();
            if OF_ENVOY.iter().any(|name| names.contains(name)) {
                continue;
            }
            let (is_listed, supplied) = (self.is_listed(policy), self.supplied(policy, samples));
            for name in names.difference(&supplied) {
                let meant = nearest(name, supplied.iter().copied());
                if !is_listed && meant.is_none() && !at_doors.contains(name) {
                    continue;
                }
                let who = if is_listed {
                    "which no request of the routes and listeners that list it has"
                } else {
                    "which only requests have that state it themselves (POST /v1/decisions, descriptors of Envoy)"
                };
                let meant = meant.map(|meant| format!("; did you mean {meant:?}?")).unwrap_or_default();
                let is_proxied = !is_listed && PROXIED.contains(name);
                let hint = if is_proxied { ", http.proxy_headers" } else { "" };
                warnings.push(format!(
                    "policy {:?} looks at the attribute {name:?}, {who}{meant} ([attributes]{hint} or an example here, \
                     --request {name}=VALUE, says where it comes from)",
                    policy.name
                ));
            }
        }
        warnings
    }

    /// Concurrency limits that apply to nothing but requests that ask for a permit, in words. That may be meant.
    pub(super) fn only_permits(&self) -> Vec<String> {
        let concurrent = self.policies().filter(|in_force| in_force.is_concurrent()).map(|it| &it.policy);
        let unlisted =
            concurrent.filter(|it| self.routes(it).next().is_none() && !self.is_at_the_edge(it, false));
        let note = |policy: &Policy| {
            format!(
                "policy {:?} limits what is held at one time, and no route and no listener of the edge lists it: it \
                 applies to POST /v1/permits and /v1/decisions only, where a permit can be given back",
                policy.name
            )
        };
        unlisted.map(note).collect()
    }
}
