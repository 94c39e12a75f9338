//! Middlewares: keys of the routes that use them, and policies.
//!
//! Traefik runs them in the order of the list, Tidegate in its own (docs/gateway-requests.md). Where the order decides, as it
//! does for the path that `forwardAuth` is told, the other order is listed.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use tidegate_wire::yaml;

use super::super::fields::{Fields, Taken};
use super::super::product::ProductTable;
use super::TraefikImporter;
use super::matching::RouterMatch;

/// Keys of a route that change the path.
const PATH_KEYS: [&str; 3] = ["strip_prefix", "add_prefix", "replace_path"];
/// Switches of `headers`, each with the field that it sets in replies.
const SWITCHES: [(&str, &str, &str); 3] = [
    ("frameDeny", "x-frame-options", "DENY"),
    ("contentTypeNosniff", "x-content-type-options", "nosniff"),
    ("browserXssFilter", "x-xss-protection", "1; mode=block"),
];
/// Values of `headers`, each with the field that it becomes in replies.
const VALUES: [(&str, &str); 4] = [
    ("customFrameOptionsValue", "x-frame-options"),
    ("contentSecurityPolicy", "content-security-policy"),
    ("referrerPolicy", "referrer-policy"),
    ("permissionsPolicy", "permissions-policy"),
];

impl<'y> TraefikImporter<'y> {
    /// The middlewares of these names with their kinds, those of a `chain` in its place. Each is there once, so that a chain
    /// that leads to itself ends.
    pub(super) fn chain(&mut self, names: Vec<Taken<'y>>) -> Vec<(&'y str, Taken<'y>)> {
        let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
        let mut waiting = names;
        waiting.reverse();
        while let Some(by) = waiting.pop() {
            let name = by.text().unwrap_or_default();
            let Some(taken) = self.middlewares.get(name.strip_suffix("@file").unwrap_or(name)).cloned()
            else {
                self.lacks(&by, format!("there is no middleware {name:?} in this file"));
                continue;
            };
            self.used.insert(taken.path.clone());
            if !seen.insert(taken.path.clone()) {
                self.lacks(&by, format!("{name} is there for the second time"));
                continue;
            }
            let mut kinds = taken.fields(&mut self.product).rest();
            match kinds.pop() {
                Some(("chain", config)) if kinds.is_empty() => {
                    let mut fields = config.fields(&mut self.product);
                    let inner = fields.list("middlewares", &mut self.product);
                    fields.end_strictly(&mut self.product);
                    waiting.extend(inner.into_iter().rev());
                }
                Some(kind) if kinds.is_empty() => found.push(kind),
                _ => self.lacks(&taken, "is not understood here: one kind of middleware is"),
            }
        }
        found
    }

    /// How often a request is tried at most.
    pub(super) fn attempts(&mut self, chain: &[(&'y str, Taken<'y>)]) -> u64 {
        let Some((_, config)) = chain.iter().find(|(kind, _)| *kind == "retry") else { return 1 };
        let mut fields = config.fields(&mut self.product);
        let attempts = self.count(&mut fields, "attempts", 1);
        fields.end(&["initialInterval"], &mut self.product);
        self.differs(config, "docs/gateway-requests.md says which requests are tried again");
        attempts.unwrap_or(1)
    }

    /// The port that a `redirectScheme` leads to.
    pub(super) fn https_port(&mut self, config: &Taken<'y>) -> u64 {
        let mut fields = config.fields(&mut self.product);
        if fields.text("scheme") != Some("https") {
            self.lacks(config, "is not understood here: the scheme https is");
        }
        let port = self.count(&mut fields, "port", 443);
        fields.end(&["permanent"], &mut self.product);
        port.unwrap_or(443)
    }

    /// What a middleware does to a route for `found`.
    pub(super) fn middleware(
        &mut self,
        router: &str,
        kind: &str,
        config: &Taken<'y>,
        found: &RouterMatch,
        route: &mut ProductTable,
    ) {
        let mut fields = config.fields(&mut self.product);
        let ignored: &[&str] = match kind {
            // The upstream has it already.
            "retry" => return,
            "rateLimit" => {
                self.rate_limit(router, config, &mut fields, route);
                &[]
            }
            "inFlightReq" => {
                self.in_flight(router, config, &mut fields, route);
                &[]
            }
            "stripPrefix" => {
                self.strip_prefix(config, &mut fields, found, route);
                &["forceSlash"]
            }
            "addPrefix" => {
                let prefix = fields.text("prefix").unwrap_or_default().trim_end_matches('/');
                self.change_path(config, "add_prefix", prefix, route);
                &[]
            }
            "replacePath" => {
                let path = fields.text("path").unwrap_or_default();
                self.change_path(config, "replace_path", path, route);
                &[]
            }
            "headers" => {
                self.headers(config, &mut fields, route);
                &["addVaryHeader"]
            }
            "forwardAuth" => {
                self.forward_auth(config, &mut fields, route);
                &["trustForwardHeader", "addAuthCookiesToResponse", "maxResponseBodySize"]
            }
            "ipAllowList" | "ipWhiteList" => {
                self.ip_allow_list(config, &mut fields, route);
                &[]
            }
            _ => match self.switch(kind, config, &mut fields, route) {
                Some(ignored) => ignored,
                None => {
                    self.lacks(config, "is not understood here");
                    return;
                }
            },
        };
        fields.end(ignored, &mut self.product);
    }

    /// What a middleware does that is one key of a route at most, and the keys of it that have no counterpart. `None`: it is no
    /// such middleware.
    fn switch(
        &mut self,
        kind: &str,
        config: &Taken<'y>,
        fields: &mut Fields<'y>,
        route: &mut ProductTable,
    ) -> Option<&'static [&'static str]> {
        let ignored: &'static [&'static str] = match kind {
            "compress" => {
                route.set("compress", true);
                &[
                    "excludedContentTypes",
                    "includedContentTypes",
                    "minResponseBodyBytes",
                    "defaultEncoding",
                    "encodings",
                ]
            }
            "buffering" => {
                if let Some(most) = self.count(fields, "maxRequestBodyBytes", 0).filter(|most| *most > 0) {
                    route.set("max_body_bytes", most);
                }
                self.differs(config, "bodies are passed on as they come, and not kept");
                &["memRequestBodyBytes", "memResponseBodyBytes"]
            }
            "redirectScheme" => {
                self.differs(config, "has no effect here: clients of this router speak TLS");
                &["scheme", "port", "permanent"]
            }
            _ => return None,
        };
        Some(ignored)
    }

    /// Takes off the first prefix that all paths of the route have. One that only some of them have, or that ends within a part
    /// of the path, is not understood.
    fn strip_prefix(
        &mut self,
        config: &Taken<'y>,
        fields: &mut Fields<'y>,
        found: &RouterMatch,
        route: &mut ProductTable,
    ) {
        let base = found.prefix();
        let prefixes = self.texts(fields, "prefixes");
        let related = prefixes
            .iter()
            .map(|prefix| prefix.trim_end_matches('/'))
            .find(|prefix| base.starts_with(prefix) || prefix.starts_with(&base));
        let Some(prefix) = related else {
            self.differs(config, "takes nothing off, since no path of the router has one of the prefixes");
            return;
        };
        let is_whole = base.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if is_whole && !prefix.is_empty() {
            self.change_path(config, "strip_prefix", prefix, route);
        } else {
            self.lacks(config, "is not understood here: the rule must ask for a path that has the prefix");
        }
    }

    /// A prefix is taken off before another is added, and a path that is replaced is all there is.
    fn change_path(&mut self, config: &Taken<'y>, key: &'static str, text: &str, route: &mut ProductTable) {
        let allowed: &[&str] = if key == "add_prefix" { &["strip_prefix"] } else { &[] };
        let is_changed =
            PATH_KEYS.iter().any(|known| !allowed.contains(known) && !route.value(known).is_null());
        if is_changed {
            self.lacks(config, "is not understood here behind another change of the path");
        } else if !text.is_empty() {
            route.set(key, text);
        } else if key == "replace_path" {
            self.lacks(config, "has no path");
        }
    }

    fn headers(&mut self, config: &Taken<'y>, fields: &mut Fields<'y>, route: &mut ProductTable) {
        for (there, key) in
            [("customRequestHeaders", "request_fields"), ("customResponseHeaders", "response_fields")]
        {
            let Some(mut pairs) = fields.map(there, &mut self.product) else { continue };
            for (name, value) in pairs.rest() {
                match &value.node.value {
                    yaml::Value::Text(text) => edit(route, key, name, text),
                    yaml::Value::Null => edit(route, key, name, ""),
                    _ => self.lacks(&value, "is no text"),
                }
            }
        }
        for (there, name, value) in SWITCHES {
            if fields.take(there).is_some_and(|switch| switch.is_true()) {
                edit(route, "response_fields", name, value);
            }
        }
        for (there, name) in VALUES {
            if let Some(value) = fields.text(there) {
                edit(route, "response_fields", name, value);
            }
        }
        let seconds = self.count(fields, "stsSeconds", 0).unwrap_or_default();
        let [subdomains, preload] = ["stsIncludeSubdomains", "stsPreload"]
            .map(|it| fields.take(it).is_some_and(|switch| switch.is_true()));
        if seconds > 0 {
            let subdomains = if subdomains { "; includeSubDomains" } else { "" };
            let preload = if preload { "; preload" } else { "" };
            let value = format!("max-age={seconds}{subdomains}{preload}");
            edit(route, "response_fields", "strict-transport-security", &value);
        }
        self.cors(config, fields, route);
    }

    fn cors(&mut self, config: &Taken<'y>, fields: &mut Fields<'y>, route: &mut ProductTable) {
        let mut cors = Map::new();
        for (there, here) in [
            ("accessControlAllowOriginList", "origins"),
            ("accessControlAllowMethods", "methods"),
            ("accessControlAllowHeaders", "headers"),
            ("accessControlExposeHeaders", "expose"),
        ] {
            let texts = self.texts(fields, there);
            if !texts.is_empty() {
                cors.insert(here.to_owned(), json!(texts));
            }
        }
        if fields.take("accessControlAllowCredentials").is_some_and(|switch| switch.is_true()) {
            cors.insert("credentials".to_owned(), json!(true));
        }
        if let Some(age) = self.count(fields, "accessControlMaxAge", 0).filter(|age| *age > 0) {
            cors.insert("max_age_seconds".to_owned(), json!(age));
        }
        if cors.contains_key("origins") {
            route.set("cors", Value::Object(cors));
        } else if !cors.is_empty() {
            self.lacks(config, "is not understood here: accessControlAllowOriginList must be there");
        }
    }

    fn forward_auth(&mut self, config: &Taken<'y>, fields: &mut Fields<'y>, route: &mut ProductTable) {
        let address = fields.text("address").and_then(|address| {
            let (scheme, rest) = address.split_once("://")?;
            let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
            (!path.contains('?')).then(|| (format!("{scheme}://{authority}"), path))
        });
        let [send, answer] =
            ["authRequestHeaders", "authResponseHeaders"].map(|name| self.texts(fields, name));
        let Some((server, path)) = address else {
            self.lacks(config, "is not understood here: an address without a query is");
            return;
        };
        if PATH_KEYS.iter().any(|key| !route.value(key).is_null()) || !route.value("auth").is_null() {
            self.lacks(config, "is not understood here behind a change of the path, or another forwardAuth");
            return;
        }
        let upstream = self.asked(&server, config);
        let mut table = json!({ "upstream": upstream, "path": path, "timeout_seconds": 30 });
        if send.is_empty() {
            self.differs(config, "is sent Authorization and Cookie, and not all fields");
        } else {
            table["send"] = json!(send);
        }
        if !answer.is_empty() {
            table["fields"] = json!(answer);
        }
        route.set("auth", "forward");
        route.set("forward_auth", table);
    }

    /// A list of who may pass is a maintenance with exceptions.
    fn ip_allow_list(&mut self, config: &Taken<'y>, fields: &mut Fields<'y>, route: &mut ProductTable) {
        let networks = self.texts(fields, "sourceRange");
        let status = self.count(fields, "rejectStatusCode", 403);
        if networks.is_empty() || !route.value("maintenance").is_null() {
            self.lacks(config, "is not understood here: one list with a sourceRange is");
            return;
        }
        self.differs(config, "is maintenance with allow here: the answer to others has Retry-After");
        route.set("maintenance", json!({ "allow": networks, "status": status }));
    }
}

/// Sets a field of requests or replies; with an empty value, removes it.
fn edit(route: &mut ProductTable, key: &'static str, name: &str, value: &str) {
    let mut edits = route.value(key);
    let name = name.to_ascii_lowercase();
    if value.is_empty() {
        let mut names = edits["remove"].as_array().cloned().unwrap_or_default();
        names.push(json!(name));
        edits["remove"] = Value::Array(names);
        // Fields are removed before others are set.
        if let Some(set) = edits.get_mut("set").and_then(Value::as_object_mut) {
            set.remove(&name);
        }
    } else {
        edits["set"][name] = json!(value);
    }
    route.set(key, edits);
}
