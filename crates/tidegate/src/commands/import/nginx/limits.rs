//! `limit_req` and `limit_conn`: policies of routes.
//!
//! nginx counts a request at once and lets `burst` more than the rate pass: a token bucket of `burst` + 1. It slows
//! down what is beyond the rate unless it says `nodelay`; a gateway's limit answers, and never slows down.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::product::ProductTable;
use super::Importer;
use super::files::Node;
use super::scope::Scope;

/// The zones of a file, by name.
#[derive(Debug, Default)]
pub(super) struct Zones {
    requests: BTreeMap<String, LimitZone>,
    connections: BTreeMap<String, LimitZone>,
}

/// A zone, and the policies that count in it.
#[derive(Debug)]
struct LimitZone {
    key: Vec<String>,
    /// Requests, and seconds.
    rate: Option<(u64, u64)>,
    /// The policy and what it was made for, once there is one.
    policy: Option<(String, u64, bool)>,
}

impl<'n> Importer<'n> {
    pub(super) fn read_zones(&mut self, nodes: &'n [Node]) {
        for node in nodes.iter().filter(|node| node.name.ends_with("_zone")) {
            let is_requests = node.name == "limit_req_zone";
            let option = |name: &str| node.arguments.iter().find_map(|word| word.strip_prefix(name));
            let zone = option("zone=").map(|zone| zone.split(':').next().unwrap_or_default().to_owned());
            let rate = option("rate=").and_then(rate);
            let key = node.arguments.first().and_then(|text| self.key(text));
            let (Some(name), Some(key), true) = (zone, key, rate.is_some() == is_requests) else {
                let problem = "is not understood here: a key of addresses, hosts, paths, fields, cookies and \
                    parameters, and a rate in r/s or r/m are";
                self.product.lacks(&node.source(), &node.name, problem);
                continue;
            };
            let zones = if is_requests { &mut self.zones.requests } else { &mut self.zones.connections };
            zones.insert(name, LimitZone { key, rate, policy: None });
        }
    }

    /// The attributes that a zone's key is made of.
    fn key(&mut self, text: &str) -> Option<Vec<String>> {
        let mut attributes = Vec::new();
        // A key without variables is one counter for all.
        for variable in text.split('$').skip(1) {
            let name = variable.trim_start_matches('{').trim_end_matches('}');
            let from = |beginning: &str, source: &str| {
                let rest = name.strip_prefix(beginning)?;
                let value = if source == "header" { rest.replace('_', "-") } else { rest.to_owned() };
                Some(json!({ source: value }))
            };
            let source = from("http_", "header")
                .filter(|_| name != "http_host")
                .or_else(|| from("cookie_", "cookie"))
                .or_else(|| from("arg_", "query"));
            let attribute = match (name, source) {
                ("binary_remote_addr" | "remote_addr", _) => "ip".to_owned(),
                ("host" | "server_name" | "http_host", _) => "host".to_owned(),
                ("uri" | "document_uri", _) => "path".to_owned(),
                ("request_method", _) => "method".to_owned(),
                (name, Some(source)) => {
                    if !self.product.attributes.iter().any(|(known, _)| known == name) {
                        self.product.attributes.push((name.to_owned(), source));
                    }
                    name.to_owned()
                }
                _ => return None,
            };
            if !attributes.contains(&attribute) {
                attributes.push(attribute);
            }
        }
        let is_plain = !text.split('$').next().unwrap_or_default().contains(['{', '}']);
        is_plain.then_some(attributes)
    }

    /// The policies that a route's directives ask for.
    pub(super) fn limits(&mut self, scope: &Scope<'n>, route: &mut ProductTable) {
        let mut policies: Vec<Value> = Vec::new();
        for node in scope.all("limit_req") {
            policies.extend(self.limit_req(node, scope).map(Value::from));
        }
        for node in scope.all("limit_conn") {
            policies.extend(self.limit_conn(node, scope).map(Value::from));
        }
        if !policies.is_empty() {
            route.set("policies", policies);
        }
    }

    fn limit_req(&mut self, node: &'n Node, scope: &Scope<'n>) -> Option<String> {
        let (mut zone, mut burst, mut is_slowed) = (None, 0, true);
        for word in &node.arguments {
            match word.split_once('=').unwrap_or((word, "")) {
                ("zone", name) => zone = Some(name),
                ("burst", number) => burst = number.parse().unwrap_or(u64::MAX),
                ("nodelay", _) => is_slowed = false,
                ("delay", _) => {}
                _ => zone = None,
            }
        }
        let shadow = scope.is_on("limit_req_dry_run");
        let found = zone.and_then(|name| Some((name, self.zones.requests.get(name)?)));
        let Some((name, zone, (limit, window))) =
            found.and_then(|(name, zone)| Some((name, zone, zone.rate?)))
        else {
            self.product.lacks(&node.source(), "limit_req", "names no zone that is understood here");
            return None;
        };
        if burst > 0 && is_slowed {
            let problem = "requests of the burst pass at once, and are not slowed down";
            self.product.differs(&node.source(), "limit_req", problem);
        }
        let known = zone.policy.clone();
        let mut policy = vec![
            ("algorithm", json!("token_bucket")),
            ("limit", json!(limit)),
            ("window_seconds", json!(window)),
            ("burst", json!(burst.saturating_add(1))),
            ("key", json!(zone.key)),
        ];
        if shadow {
            policy.push(("mode", json!("shadow")));
        }
        self.statuses(node, scope, "limit_req_status");
        let name = self.policy(node, known, (name, burst, shadow), policy)?;
        if let Some(zone) = zone_of(&mut self.zones.requests, node) {
            zone.policy = Some((name.clone(), burst, shadow));
        }
        Some(name)
    }

    fn limit_conn(&mut self, node: &'n Node, scope: &Scope<'n>) -> Option<String> {
        let found = match node.words()[..] {
            [name, most] => {
                self.zones.connections.get(name).zip(most.parse::<u64>().ok()).map(|it| (name, it))
            }
            _ => None,
        };
        let Some((name, (zone, most))) = found else {
            self.product.lacks(&node.source(), "limit_conn", "names no zone that is understood here");
            return None;
        };
        let shadow = scope.is_on("limit_conn_dry_run");
        let known = zone.policy.clone();
        let mut policy =
            vec![("algorithm", json!("concurrency")), ("limit", json!(most)), ("key", json!(zone.key))];
        if shadow {
            policy.push(("mode", json!("shadow")));
        }
        self.statuses(node, scope, "limit_conn_status");
        let policy = self.policy(node, known, (name, most, shadow), policy)?;
        if let Some(zone) = self.zones.connections.get_mut(name) {
            zone.policy = Some((policy.clone(), most, shadow));
        }
        Some(policy)
    }

    /// The policy of a zone: a zone counts once, so it has one.
    fn policy(
        &mut self,
        node: &Node,
        known: Option<(String, u64, bool)>,
        (zone, number, shadow): (&str, u64, bool),
        fields: Vec<(&'static str, Value)>,
    ) -> Option<String> {
        match known {
            Some((name, other, was_shadow)) if (other, was_shadow) == (number, shadow) => Some(name),
            Some(_) => {
                let problem = format!("zone {zone} is used with two numbers, and a policy has one");
                self.product.lacks(&node.source(), &node.name, problem);
                None
            }
            None => {
                let name = self.product.name(&[zone]);
                let mut document = ProductTable::new(node.source());
                document.set("name", name.clone());
                document.fields.extend(fields);
                self.product.policies.push(document);
                Some(name)
            }
        }
    }

    fn statuses(&mut self, node: &Node, scope: &Scope<'n>, name: &str) {
        if scope.one(name).and_then(Node::argument) != Some("429") {
            self.product.differs(&node.source(), &node.name, "denials are 429, and not another status");
        }
    }
}

/// The zone that a `limit_req` names.
fn zone_of<'z>(zones: &'z mut BTreeMap<String, LimitZone>, node: &Node) -> Option<&'z mut LimitZone> {
    let name = node.arguments.iter().find_map(|word| word.strip_prefix("zone="))?;
    zones.get_mut(name)
}

/// `10r/s`, `30r/m`: requests, and seconds.
fn rate(text: &str) -> Option<(u64, u64)> {
    let (number, seconds) = match text.strip_suffix("r/s") {
        Some(number) => (number, 1),
        None => (text.strip_suffix("r/m")?, 60),
    };
    Some((number.parse().ok().filter(|number| *number > 0)?, seconds))
}
