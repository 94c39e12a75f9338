//! Virtual hosts and their routes.

use serde_json::{Map, Value, json};

use super::super::fields::{Fields, Taken};
use super::super::product::ProductTable;
use super::BootstrapImporter;
use super::matching::Match;

/// Keys that change fields of requests and replies, at a route, a host, or the whole table.
const EDITS: [&str; 4] = [
    "request_headers_to_add",
    "request_headers_to_remove",
    "response_headers_to_add",
    "response_headers_to_remove",
];

/// Most upstreams of a split.
const MOST_CLUSTERS: usize = 20;

/// What the blocks around a route do to fields.
#[derive(Clone, Default)]
struct Edits {
    /// Of requests, of replies: `remove`, `set`, `add`.
    both: [[Map<String, Value>; 2]; 2],
    remove: [Vec<Value>; 2],
}

impl<'y> BootstrapImporter<'y> {
    /// A `route_config`.
    pub(super) fn routes(&mut self, taken: &Taken<'y>, is_guarded: bool) {
        let mut fields = taken.fields(&mut self.product);
        self.is_guarded = is_guarded;
        let edits = self.edits(&mut fields, &Edits::default());
        for host in fields.list("virtual_hosts", &mut self.product) {
            self.host(&host, &edits);
        }
        fields.end(&["name", "validate_clusters"], &mut self.product);
    }

    fn host(&mut self, taken: &Taken<'y>, outer: &Edits) {
        let mut fields = taken.fields(&mut self.product);
        let name = fields.text("name").unwrap_or("all");
        let edits = self.edits(&mut fields, outer);
        let mut hosts = Vec::new();
        for domain in fields.list("domains", &mut self.product) {
            let text = domain.text().unwrap_or_default().to_ascii_lowercase();
            let is_plain =
                |it: &str| it.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
            let is_known =
                text == "*" || is_plain(text.strip_prefix("*.").unwrap_or(&text)) && !text.is_empty();
            if !is_known {
                let problem = format!("{text} is not understood here: a name, *.name and * are");
                self.product.lacks(&domain.source, &domain.path, problem);
            } else if !self.hosts.insert(text.clone()) {
                let problem = format!("{text} has routes already, and routes are for all listeners");
                self.product.lacks(&domain.source, &domain.path, problem);
            } else {
                hosts.push(text);
            }
        }
        let routes = fields.list("routes", &mut self.product);
        let before = self.product.missing.len();
        fields.end_strictly(&mut self.product);
        let outer_is_guarded = self.is_guarded;
        self.is_guarded |= self.product.missing.len() > before;
        if hosts.is_empty() {
            self.is_guarded = outer_is_guarded;
            return;
        }
        // All hosts is what a route without any is for; the names beside it are among them.
        let hosts = if hosts.iter().any(|host| host == "*") { Vec::new() } else { hosts };
        let mut known: Vec<Match<'y>> = Vec::new();
        for route in routes {
            self.route(name, &hosts, &route, &edits, &mut known);
        }
        if !known.iter().any(Match::takes_all) {
            let mut rest = self.document(name, "rest", &hosts, taken);
            rest.set("respond", json!({ "status": 404 }));
            self.product.routes.push(rest);
        }
        self.is_guarded = outer_is_guarded;
    }

    fn document(&mut self, host: &str, words: &str, hosts: &[String], taken: &Taken<'y>) -> ProductTable {
        let mut document = ProductTable::new(taken.source.clone());
        let name = self.product.name(&[host, words.trim_matches('/')]);
        document.set("name", name);
        if !hosts.is_empty() {
            document.set("host", hosts.to_vec());
        }
        document
    }

    fn route(
        &mut self,
        host: &str,
        hosts: &[String],
        taken: &Taken<'y>,
        outer: &Edits,
        known: &mut Vec<Match<'y>>,
    ) {
        let mut fields = taken.fields(&mut self.product);
        let name = fields.text("name");
        let found = fields.take("match").and_then(|it| Match::of(&it, &mut self.product));
        let edits = self.edits(&mut fields, outer);
        let Some(found) = found else {
            self.product.lacks(
                &taken.source,
                &taken.path,
                "is not imported, since its match is not understood",
            );
            return;
        };
        if known.iter().any(|earlier| found.overtakes(earlier)) {
            let problem = "would be asked before a route that stands before it";
            self.product.lacks(&taken.source, &taken.path, problem);
            return;
        }
        let pattern = found.pattern.path();
        let mut document = self.document(host, name.unwrap_or(pattern.trim_end_matches("/*")), hosts, taken);
        found.write(&mut document);
        let closed = document.fields.clone();
        let before = self.product.missing.len();
        let mut done = None;
        if let Some(action) = fields.take("route") {
            done = self.forward(&action, &found, &mut document);
        } else if let Some(redirect) = fields.take("redirect") {
            done = self.redirect(&redirect, &mut document);
        } else if let Some(reply) = fields.take("direct_response") {
            done = self.direct(&reply, &mut document);
        }
        fields.end(&["metadata", "decorator", "stat_prefix"], &mut self.product);
        if self.is_guarded || done.is_none() || self.product.missing.len() > before {
            // What is not understood may keep somebody out: it is not opened by leaving it out.
            document.fields = closed;
            document.set("respond", json!({ "status": 503, "body": "not imported" }));
            if done.is_none() && self.product.missing.len() == before {
                self.product.lacks(&taken.source, &taken.path, "has no action that is understood here");
            }
        } else {
            edits.write(&mut document);
        }
        self.product.routes.push(document);
        known.push(found);
    }

    /// A `route` action: to a cluster, or to two by weight.
    fn forward(&mut self, taken: &Taken<'y>, found: &Match<'y>, route: &mut ProductTable) -> Option<()> {
        let mut action = taken.fields(&mut self.product);
        let attempts = self.retries(&mut action, route);
        let cluster = action.take("cluster");
        match cluster.as_ref().and_then(Taken::text) {
            Some(name) => {
                let upstream = self.upstream(name, attempts, &taken.source, &taken.path)?;
                route.set("upstream", upstream);
            }
            None => self.weighted(&mut action, attempts, taken, route)?,
        }
        let timeout = action.seconds("timeout", &mut self.product).unwrap_or(json!(15));
        if timeout.as_f64().is_some_and(|seconds| seconds > 0.0) {
            route.set("timeout_seconds", timeout.clone());
            route.set("reply_timeout_seconds", timeout);
        }
        if let Some(idle) = action.seconds("idle_timeout", &mut self.product) {
            route.set("idle_timeout_seconds", idle);
        }
        if let Some(rewrite) = action.take("prefix_rewrite") {
            self.rewrite(&rewrite, found, route)?;
        }
        if let Some(host) = action.text("host_rewrite_literal") {
            route.set("request_fields", json!({ "set": { "host": host } }));
        }
        action.end(&["priority", "max_grpc_timeout"], &mut self.product);
        Some(())
    }

    /// How often a request is tried at most.
    fn retries(&mut self, action: &mut Fields<'y>, route: &mut ProductTable) -> u64 {
        let Some(taken) = action.take("retry_policy") else { return 1 };
        let mut policy = taken.fields(&mut self.product);
        let retries = policy.take("num_retries").and_then(|it| it.number()).unwrap_or(1);
        if let Some(time) = policy.seconds("per_try_timeout", &mut self.product) {
            route.set("first_byte_timeout_seconds", time);
        }
        if let Some(on) = policy.take("retry_on") {
            let problem = "has no effect: docs/gateway-requests.md says which requests are tried again";
            self.product.differs(&on.source, &on.path, problem);
        }
        policy.end(&["retry_back_off", "host_selection_retry_max_attempts"], &mut self.product);
        retries + 1
    }

    /// Several clusters: of two, the second is a canary; more are a split.
    fn weighted(
        &mut self,
        action: &mut Fields<'y>,
        attempts: u64,
        taken: &Taken<'y>,
        route: &mut ProductTable,
    ) -> Option<()> {
        let mut clusters = action.map("weighted_clusters", &mut self.product)?;
        let mut weights: Vec<(&str, u64)> = Vec::new();
        for cluster in clusters.list("clusters", &mut self.product) {
            let mut fields = cluster.fields(&mut self.product);
            let (name, weight) = (fields.text("name"), fields.take("weight").and_then(|it| it.number()));
            fields.end_strictly(&mut self.product);
            weights.extend(name.zip(weight));
        }
        clusters.end(&["total_weight", "runtime_key_prefix"], &mut self.product);
        if !(2..=MOST_CLUSTERS).contains(&weights.len()) {
            let problem =
                format!("is not understood here: one cluster is, or 2 to {MOST_CLUSTERS} by weight");
            self.product.lacks(&taken.source, &taken.path, problem);
            return None;
        }
        let numbers: Vec<u64> = weights.iter().map(|(_, weight)| *weight).collect();
        let Some(percentages) = percentages(&numbers) else {
            self.product.lacks(&taken.source, &taken.path, "has weights that are no tenths of a percent");
            return None;
        };
        let mut shares: Vec<Value> = Vec::new();
        for ((cluster, _), percent) in weights.iter().zip(percentages) {
            let upstream = self.upstream(cluster, attempts, &taken.source, &taken.path)?;
            let share = json!({ "upstream": upstream, "percent": percent });
            if shares.iter().any(|known| known["upstream"] == share["upstream"]) {
                self.product.lacks(&taken.source, &taken.path, format!("names {cluster} twice"));
                return None;
            }
            shares.push(share);
        }
        let problem = match &shares[..] {
            [main, canary] => {
                route.set("upstream", main["upstream"].clone());
                route.set("canary", canary.clone());
                "a share of the clients goes to the second cluster and stays there, not of the requests"
            }
            _ => {
                route.set("split", shares);
                "each cluster gets a share of the clients, who stay there, not of the requests"
            }
        };
        self.product.differs(&taken.source, &taken.path, problem);
        Some(())
    }

    fn rewrite(&mut self, taken: &Taken<'y>, found: &Match<'y>, route: &mut ProductTable) -> Option<()> {
        let text = taken.text().filter(|text| text.starts_with('/'));
        match text {
            Some(text) if found.is_exact => route.set("replace_path", text),
            // Letters are replaced there, whole parts here.
            Some(text) if !found.text.is_empty() && found.text.ends_with('/') == text.ends_with('/') => {
                let prefix = found.pattern.prefix();
                for (key, value) in
                    [("strip_prefix", prefix.as_str()), ("add_prefix", text.trim_end_matches('/'))]
                {
                    if !value.is_empty() {
                        route.set(key, value);
                    }
                }
            }
            _ => {
                let problem = "is not understood here: it replaces letters and not whole parts; \
                    end it and the prefix with a slash, or neither";
                self.product.lacks(&taken.source, &taken.path, problem);
                return None;
            }
        }
        Some(())
    }

    fn redirect(&mut self, taken: &Taken<'y>, route: &mut ProductTable) -> Option<()> {
        let mut redirect = taken.fields(&mut self.product);
        let status = match redirect.text("response_code") {
            None | Some("MOVED_PERMANENTLY") => 301,
            Some("FOUND") => 302,
            Some("SEE_OTHER") => 303,
            Some("TEMPORARY_REDIRECT") => 307,
            Some("PERMANENT_REDIRECT") => 308,
            Some(_) => 0,
        };
        let scheme =
            if redirect.take("https_redirect").is_some_and(|it| it.is_true()) { "https" } else { "http" };
        let (host, path) = (redirect.text("host_redirect"), redirect.text("path_redirect"));
        redirect.end_strictly(&mut self.product);
        let (Some(host), Some(path)) = (host, path) else {
            let problem = "is not understood here: one with host_redirect and path_redirect is";
            self.product.lacks(&taken.source, &taken.path, problem);
            return None;
        };
        route.set("redirect", json!({ "status": status, "location": format!("{scheme}://{host}{path}") }));
        Some(())
    }

    fn direct(&mut self, taken: &Taken<'y>, route: &mut ProductTable) -> Option<()> {
        let mut reply = taken.fields(&mut self.product);
        let status = reply.take("status").and_then(|it| it.number());
        let body = reply.map("body", &mut self.product);
        reply.end_strictly(&mut self.product);
        let text = body.and_then(|mut body| {
            let text = body.text("inline_string");
            body.end_strictly(&mut self.product);
            text
        });
        let mut respond = json!({ "status": status? });
        if let Some(text) = text {
            respond["body"] = json!(text);
            respond["content_type"] = json!("text/plain");
        }
        route.set("respond", respond);
        Some(())
    }

    /// The edits of a block, on top of those around it.
    fn edits(&mut self, fields: &mut Fields<'y>, outer: &Edits) -> Edits {
        let mut edits = outer.clone();
        for (index, name) in EDITS.iter().enumerate() {
            let (side, is_removal) = (index / 2, index % 2 == 1);
            for taken in fields.list(name, &mut self.product) {
                match taken.text().filter(|_| is_removal) {
                    Some(name) => edits.remove[side].push(json!(name.to_ascii_lowercase())),
                    None => self.added(&taken, &mut edits.both[side]),
                }
            }
        }
        edits
    }

    /// A field that is set, or added.
    fn added(&mut self, taken: &Taken<'y>, [set, add]: &mut [Map<String, Value>; 2]) {
        let mut option = taken.fields(&mut self.product);
        let header = option.map("header", &mut self.product);
        let append = option.take("append").is_none_or(|it| it.is_true());
        let action = option.text("append_action");
        option.end_strictly(&mut self.product);
        let mut header = header;
        let name = header.as_mut().and_then(|header| header.text("key")).map(str::to_ascii_lowercase);
        let value = header.as_mut().and_then(|header| header.text("value"));
        let pairs = match action {
            None | Some("APPEND_IF_EXISTS_OR_ADD") if append => Some(add),
            None | Some("OVERWRITE_IF_EXISTS_OR_ADD") => Some(set),
            Some(_) => None,
        };
        match (name, value.filter(|value| !value.contains('%')), pairs) {
            (Some(name), Some(value), Some(pairs)) if !pairs.contains_key(&name) => {
                pairs.insert(name, json!(value));
            }
            _ => {
                let problem =
                    "is not understood here: one value without % for a name, added or overwritten, is";
                self.product.lacks(&taken.source, &taken.path, problem);
            }
        }
    }
}

/// The shares that weights say, if each is one of tenths of a percent.
pub(in crate::commands::import) fn percentages(weights: &[u64]) -> Option<Vec<Value>> {
    let whole: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let shares = weights.iter().map(|weight| {
        let thousandfold = u128::from(*weight) * 1_000;
        let tenths = (whole > 0 && thousandfold.is_multiple_of(whole)).then(|| thousandfold / whole)?;
        let tenths = u32::try_from(tenths).ok()?;
        Some(if tenths.is_multiple_of(10) { json!(tenths / 10) } else { json!(f64::from(tenths) / 10.0) })
    });
    shares.collect()
}

impl Edits {
    fn write(self, route: &mut ProductTable) {
        let known =
            route.fields.iter().find(|(name, _)| *name == "request_fields").map(|(_, value)| value.clone());
        let host = known.and_then(|fields| fields.get("set")?.get("host").cloned());
        let keys = ["request_fields", "response_fields"];
        for ((key, [mut set, add]), remove) in keys.into_iter().zip(self.both).zip(self.remove) {
            if let Some(host) = host.clone().filter(|_| key == "request_fields") {
                set.insert("host".to_owned(), host);
            }
            let mut edits = Map::new();
            if !remove.is_empty() {
                edits.insert("remove".to_owned(), Value::Array(remove));
            }
            for (how, pairs) in [("set", set), ("add", add)] {
                if !pairs.is_empty() {
                    edits.insert(how.to_owned(), Value::Object(pairs));
                }
            }
            if !edits.is_empty() {
                route.set(key, Value::Object(edits));
            }
        }
    }
}
