//! The decision service's part of the configuration: its listeners, and the file's `[[policy]]`, `[[override]]` and
//! `[attributes]` entries, checked by the code that checks the admin
//! API's documents, with the lines of the file put to its mistakes.
//!
//! They end as the limiter's [`FileLayer`], which keeps the numbers of an override as they were
//! written: the policy they refer to may be replaced by a stored one. An override in the file must
//! name a policy that the file declares (or the built-in one, where it declares none), because an
//! override of a policy that is not there has no effect, and so would hide a typing mistake.

use std::collections::{HashMap, HashSet};

use serde_json::{Value as Json, json};
use tidegate_algorithms::policy::{self, MAX_NAME_BYTES, MAX_VALUE_BYTES, Policy, Sources};
use tidegate_limiter::policy_set::{AttributeSources, CLIENT_ID, DEFAULT_POLICY, FileLayer, MAX_POLICIES};
use tidegate_net::tls;
use tidegate_settings::document::Document;
use tidegate_settings::mistake::{Found, Mistake, Origin, path};
use tidegate_settings::value::shown;

use super::checker::Checker;
use super::listener::{Listener, ServiceListener};
use super::service::{ServiceConfig, Table};
use super::{Config, Settings, gateway};

/// Most overrides that a file may have; more belong in the control store.
pub const MAX_OVERRIDES: usize = 10_000;

/// The table of tables that says where attributes come from.
const ATTRIBUTES: &str = "attributes";

impl Listener {
    /// The decision API.
    pub const HTTP: Self = Self::of_settings("http", "api");
    /// The Envoy rate-limit service.
    pub const GRPC: Self = Self::of_settings("grpc", "grpc");
    /// The Redis protocol.
    pub const RESP: Self = Self::of_settings("resp", "resp");
}

/// The decision service.
pub(super) const SERVICE: ServiceConfig = ServiceConfig {
    tables: &[
        Table { path: "policy", schema: || tables(MAX_POLICIES) },
        Table { path: "override", schema: || tables(MAX_OVERRIDES) },
        Table { path: ATTRIBUTES, schema: attributes },
    ],
    check,
    listeners: |Config { settings, .. }| {
        let Settings { http, grpc, resp, .. } = settings;
        vec![
            ServiceListener::of_settings(Listener::HTTP, Some(http.listen), &http.tls, tls::HTTP),
            ServiceListener::of_settings(Listener::GRPC, grpc.listen, &grpc.tls, tls::GRPC),
            ServiceListener::of_settings(Listener::RESP, resp.listen, &resp.tls, &[]),
        ]
    },
    warnings: |_| Vec::new(),
    serve: None,
};

/// Checks both lists. The entries that have mistakes are left out.
fn check(checker: &mut Checker<'_>, config: &mut Config) {
    let entries = checker.entries("policy", MAX_POLICIES);
    let policies = checker.policies(&entries);
    let declared = entries.iter().filter_map(|entry| entry.get("name")?.as_str()).collect::<Vec<_>>();
    let overrides = checker.entries("override", MAX_OVERRIDES);
    let overrides = checker.overrides(overrides, &policies, &declared);
    let sources = checker.sources();
    config.layer = FileLayer { policies, overrides, sources };
}

fn tables(most: usize) -> Json {
    json!({ "type": "array", "maxItems": most, "items": { "type": "object" } })
}

fn attributes() -> Json {
    let protocols =
        AttributeSources::PROTOCOLS.map(|(name, _)| (name.to_owned(), json!({ "type": "object" })));
    let protocols: serde_json::Map<_, _> = protocols.into_iter().collect();
    json!({ "type": "object", "additionalProperties": false, "properties": protocols })
}

/// What is accepted in the place of a concurrency limit whose permits could not be given back.
pub(super) const RETURNABLE: &str = "a limit of another algorithm, or this one listed by a [[route]] or in `policies` of an [[edge.listener]]";

/// Refuses concurrency limits of the file that can apply only where permits are not given back, and so would limit nothing
/// (decision 0361): those that the intake lists, and those of Envoy's descriptors that neither a route nor a listener of the
/// edge lists. (Bytes of the edge are looked at with its listeners.) Any other may be meant for `POST /v1/permits`.
pub(super) fn cross_checks(
    config: &Config,
    document: &Document<'_>,
    origin: impl Fn(&str) -> Origin,
    found: &mut Found,
) {
    let intake = &config.settings.intake;
    let listed = intake.listen.map(|_| &intake.policies).into_iter().flatten().map(ToString::to_string);
    for (index, name) in listed.enumerate().filter(|(_, name)| config.layer.is_concurrent(name)) {
        found.push(Mistake {
            origin: origin("intake.policies"),
            path: format!("intake.policies[{index}]"),
            problem: format!("is {name:?}, a concurrency limit: no permit can be given back there"),
            accepted: "a limit of another algorithm".to_owned(),
        });
    }
    let routes = document.entries("route").map(|entries| entries.values).unwrap_or_default();
    let by_routes = routes.iter().filter_map(|route| route.get("policies")?.as_array()).flatten();
    let by_routes: HashSet<&str> = by_routes.filter_map(Json::as_str).collect();
    let is_listed = |name: &str| {
        let mut listeners = config.edge_listeners.iter();
        by_routes.contains(name) || listeners.any(|it| it.policies.iter().any(|listed| **listed == *name))
    };
    let declared = gateway::declared(document);
    for policy in &config.layer.policies {
        let is_of_envoy = policy.attributes().any(|name| name == "descriptor_keys");
        if !is_of_envoy || !config.layer.is_concurrent(&policy.name) || is_listed(&policy.name) {
            continue;
        }
        let place =
            declared.iter().position(|it| it.get("name").and_then(Json::as_str) == Some(&*policy.name));
        let pointer = format!("/policy/{}/algorithm", place.unwrap_or_default());
        found.push(Mistake {
            origin: document.locate(&pointer),
            path: path(&pointer),
            problem: "is \"concurrency\", and only Envoy has descriptors, which gives no permit back"
                .to_owned(),
            accepted: RETURNABLE.to_owned(),
        });
    }
}

impl Checker<'_> {
    fn policies(&mut self, entries: &[Json]) -> Vec<Policy> {
        let mut names = HashMap::new();
        let mut policies = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            let pointer = format!("/policy/{index}");
            match policy::parse(entry, &pointer) {
                Ok(policy) => {
                    if let Some(first) = names.insert(policy.name.clone(), index) {
                        let problem = format!("is {:?}, as is policy[{first}]", policy.name);
                        self.refuse(&format!("{pointer}/name"), problem, "a name of its own");
                    }
                    policies.push(policy);
                }
                Err(found) => self.adopt(found),
            }
        }
        policies
    }

    fn overrides(
        &mut self,
        entries: Vec<Json>,
        policies: &[Policy],
        declared: &[&str],
    ) -> Vec<(String, String, Json)> {
        let built_in = Policy::default_per_client();
        let policies: HashMap<&str, &Policy> = policies.iter().map(|it| (&*it.name, it)).collect();
        let declared: HashSet<&str> = declared.iter().copied().collect();
        let mut seen = HashMap::new();
        let mut overrides = Vec::new();
        for (index, mut entry) in entries.into_iter().enumerate() {
            let pointer = format!("/override/{index}");
            if !entry.is_object() {
                self.refuse(&pointer, shown(&entry.to_string()), "a table");
                continue;
            }
            let client = self.take_text(&mut entry, &pointer, CLIENT_ID, None, MAX_VALUE_BYTES);
            let name = self.take_text(&mut entry, &pointer, "policy", Some(DEFAULT_POLICY), MAX_NAME_BYTES);
            let Some(name) = name else { continue };
            let base = match policies.get(&*name).copied() {
                Some(policy) => policy,
                None if declared.is_empty() && name == DEFAULT_POLICY => &built_in,
                // A policy that is declared but wrong has been reported already.
                None if declared.contains(&*name) => continue,
                None => {
                    self.refuse(
                        &format!("{pointer}/policy"),
                        shown(&name),
                        "the name of a [[policy]] of this file",
                    );
                    continue;
                }
            };
            if let Err(found) = policy::parse_quota(&entry, &base.quota.spec, &pointer) {
                self.adopt(found);
            }
            let Some(client) = client else { continue };
            if let Some(first) = seen.insert((client.clone(), name.clone()), index) {
                let problem = format!("is for the same client and policy as override[{first}]");
                self.refuse(&pointer, problem, "one override for each client and policy");
            }
            overrides.push((client, name, entry));
        }
        overrides
    }

    /// Where attributes come from: a table for each protocol.
    fn sources(&mut self) -> AttributeSources {
        let mut read = AttributeSources::default();
        let protocols = AttributeSources::PROTOCOLS;
        let accepted = protocols.map(|(name, _)| format!("[{ATTRIBUTES}.{name}]")).join(", ");
        let value = self.table(ATTRIBUTES);
        let Json::Object(tables) = value else {
            self.refuse(&format!("/{ATTRIBUTES}"), shown(&value.to_string()), accepted);
            return read;
        };
        for (name, table) in &tables {
            let pointer = format!("/{ATTRIBUTES}/{}", name.replace('~', "~0").replace('/', "~1"));
            let Some((protocol, forms)) = protocols.iter().find(|(protocol, _)| protocol == name) else {
                self.refuse(&pointer, "is not a protocol with sources of its own", accepted.as_str());
                continue;
            };
            let sources = policy::parse_sources(table, &pointer, forms).unwrap_or_else(|found| {
                self.adopt(found);
                Sources::default()
            });
            *read.of_mut(protocol) = sources;
        }
        read
    }

    /// Takes a text out of `entry`, so that what remains are the numbers.
    fn take_text(
        &mut self,
        entry: &mut Json,
        pointer: &str,
        field: &str,
        default: Option<&str>,
        most: usize,
    ) -> Option<String> {
        let value = entry.as_object_mut()?.remove(field);
        let problem = match (&value, default) {
            (None, Some(default)) => return Some(default.to_owned()),
            (None, None) => "is missing".to_owned(),
            (Some(Json::String(text)), _) if (1..=most).contains(&text.len()) => return Some(text.clone()),
            (Some(Json::String(text)), _) => shown(text),
            (Some(other), _) => shown(&other.to_string()),
        };
        self.refuse(&format!("{pointer}/{field}"), problem, format!("a string of 1 to {most} bytes"));
        None
    }
}
