//! `reverse_proxy` and `forward_auth`: upstreams, one for all directives that say the same.

use serde_json::{Map, Value, json};
use tidegate_wire::caddyfile::CaddyDirective;

use super::super::nginx::units::seconds;
use super::super::product::ProductTable;
use super::CaddyImporter;
use super::change::CaddyChange;

/// Numbers and times: the name there, whether it is about the check, the name here, whether it is a time.
const NUMBERS: [(&str, bool, &str, bool); 7] = [
    ("health_interval", true, "interval_seconds", true),
    ("health_timeout", true, "timeout_seconds", true),
    ("health_status", true, "status", false),
    ("health_passes", true, "rise", false),
    ("health_fails", true, "fall", false),
    ("fail_duration", false, "eject_seconds", true),
    ("max_fails", false, "eject_after", false),
];

/// Lines without a counterpart on which replies do not depend.
const WITHOUT_COUNTERPART: [&str; 21] = [
    "flush_interval",
    "buffer_requests",
    "buffer_responses",
    "max_buffer_size",
    "request_buffers",
    "response_buffers",
    "stream_timeout",
    "stream_close_delay",
    "lb_try_interval",
    "read_buffer",
    "write_buffer",
    "max_response_header",
    "dial_fallback_delay",
    "expect_continue_timeout",
    "tls_timeout",
    "keepalive",
    "keepalive_interval",
    "keepalive_idle_conns",
    "keepalive_idle_conns_per_host",
    "max_conns_per_host",
    "compression",
];

/// Fields that servers are told whatever the route says, with the placeholders that say the same.
const TOLD: [(&str, &[&str]); 4] = [
    ("host", &["{host}", "{hostport}"]),
    ("x-forwarded-for", &["{remote_host}", "{remote.host}", "{client_ip}"]),
    ("x-forwarded-proto", &["{scheme}"]),
    ("x-forwarded-host", &["{host}", "{hostport}"]),
];

/// Where requests go, and what is changed on the way.
pub(super) struct CaddyProxy {
    pub(super) upstream: String,
    pub(super) changes: Vec<CaddyChange>,
}

/// An upstream that is being read.
struct CaddyUpstream {
    /// As they are written.
    servers: Vec<String>,
    table: ProductTable,
    check: Map<String, Value>,
    tls: Map<String, Value>,
    is_tls: bool,
    changes: Vec<CaddyChange>,
}

impl CaddyImporter {
    /// The upstream that a directive goes to, and the lines of its block that are not about that.
    pub(super) fn proxy<'n>(
        &mut self,
        node: &'n CaddyDirective,
        arguments: &[&str],
    ) -> (CaddyProxy, Vec<&'n CaddyDirective>) {
        let mut upstream = CaddyUpstream {
            servers: arguments.iter().map(|text| (*text).to_owned()).collect(),
            table: ProductTable::new(self.source(node)),
            check: Map::new(),
            tls: Map::new(),
            is_tls: false,
            changes: Vec::new(),
        };
        upstream.table.set("balance", "round_robin");
        let (mut others, mut fields) = (Vec::new(), Vec::new());
        for line in node.lines() {
            match line.name() {
                "header_up" | "header_down" => fields.push(line),
                "to" => upstream.servers.extend(line.words.iter().skip(1).cloned()),
                "transport" if line.arguments() == ["http"] => {
                    for setting in line.lines() {
                        self.transport(setting, &mut upstream);
                    }
                }
                _ if self.setting(line, &mut upstream) => {}
                _ => others.push(line),
            }
        }
        let authority = self.servers(node, &mut upstream);
        for line in fields {
            let change = self.passed(line, authority.as_deref());
            upstream.changes.extend(change);
        }
        let changes = std::mem::take(&mut upstream.changes);
        (CaddyProxy { upstream: self.finished(upstream), changes }, others)
    }

    /// A line about the upstream. False: it is not understood.
    fn setting(&mut self, line: &CaddyDirective, upstream: &mut CaddyUpstream) -> bool {
        let name = line.name();
        let arguments = line.arguments();
        if line.block.is_some() {
            return false;
        }
        if let Some((_, of_check, key, is_time)) = NUMBERS.into_iter().find(|(known, ..)| *known == name) {
            let value = match arguments[..] {
                ["2xx"] if name == "health_status" => return true,
                [text] if is_time => seconds(text),
                [text] => text.parse::<u64>().ok().map(Value::from),
                _ => None,
            };
            match value {
                Some(value) if of_check => drop(upstream.check.insert(key.to_owned(), value)),
                Some(value) => upstream.table.set(key, value),
                None => self.lacks(line, "is not understood here: one number or time is"),
            }
            return true;
        }
        match (name, &arguments[..]) {
            ("health_uri", [path]) => drop(upstream.check.insert("path".to_owned(), json!(path))),
            ("lb_policy", _) => self.balance(line, upstream),
            ("lb_retries", [count]) if count.parse::<u64>().is_ok_and(|count| count < 10) => {
                let count: u64 = count.parse().unwrap_or_default();
                upstream.table.set("retries", json!({ "attempts": count + 1 }));
            }
            ("lb_try_duration", _) => {
                self.differs(
                    line,
                    "has no effect: docs/gateway-requests.md says which requests are tried again",
                );
            }
            (name, _) if WITHOUT_COUNTERPART.contains(&name) => {
                self.differs(line, "has no counterpart, and needs none")
            }
            _ => return false,
        }
        true
    }

    fn balance(&mut self, line: &CaddyDirective, upstream: &mut CaddyUpstream) {
        let balance = match line.arguments()[..] {
            ["round_robin"] => "round_robin",
            ["random"] => {
                self.differs(line, "is each server in turn");
                "round_robin"
            }
            ["least_conn"] => "least_requests",
            ["random_choose", ..] => {
                self.differs(line, "is the server with the fewest requests");
                "least_requests"
            }
            ["ip_hash" | "client_ip_hash"] => "ring_hash",
            ["header", name] => {
                upstream.table.set("hash_by", format!("header:{}", name.to_ascii_lowercase()));
                "ring_hash"
            }
            _ => {
                let problem =
                    "is not understood here: random, round_robin, least_conn, ip_hash and header are";
                return self.lacks(line, problem);
            }
        };
        upstream.table.set("balance", balance);
    }

    /// A line of `transport http`.
    fn transport(&mut self, line: &CaddyDirective, upstream: &mut CaddyUpstream) {
        let arguments = line.arguments();
        if line.block.is_some() {
            return self.lacks(line, "is not understood here");
        }
        let mut tls = |key: &str, value: &str| drop(upstream.tls.insert(key.to_owned(), json!(value)));
        match (line.name(), &arguments[..]) {
            ("tls", []) => {}
            ("tls_insecure_skip_verify", []) => {
                self.differs(line, "has no effect: the certificates of servers are always verified");
            }
            ("tls_server_name", [name]) => tls("server_name", name),
            ("tls_trusted_ca_certs", [file]) | ("tls_trust_pool", ["file", file]) => {
                tls("ca_file", file);
            }
            ("tls_client_auth", [certificate, key]) => {
                tls("certificate_file", certificate);
                tls("key_file", key);
            }
            ("dial_timeout" | "response_header_timeout", [time]) => match seconds(time) {
                Some(time) if line.name() == "dial_timeout" => {
                    upstream.table.set("connect_timeout_seconds", time)
                }
                Some(time) => upstream.changes.push(CaddyChange::Key("first_byte_timeout_seconds", time)),
                None => self.lacks(line, "is no time"),
            },
            ("versions", ["h2c"] | ["2"] | ["h2c", "2"]) => upstream.table.set("protocol", "http2"),
            ("versions", ["1.1", "2"]) => upstream.table.set("protocol", "auto"),
            ("versions", ["1.1"]) => {}
            (name, _) if WITHOUT_COUNTERPART.contains(&name) => {
                self.differs(line, "has no counterpart, and needs none")
            }
            _ => self.lacks(line, "is not understood here"),
        }
        upstream.is_tls |= line.name().starts_with("tls");
    }

    /// Completes the servers. The authority of the only one.
    fn servers(&mut self, node: &CaddyDirective, upstream: &mut CaddyUpstream) -> Option<String> {
        let mut authorities = Vec::new();
        for text in std::mem::take(&mut upstream.servers) {
            let Some((scheme, authority)) = server(&text) else {
                self.lacks(node, &format!("{text} is not understood here: a host with a port is, with http://, https:// or h2c://"));
                continue;
            };
            upstream.is_tls |= scheme == "https";
            if scheme == "h2c" {
                upstream.table.set("protocol", "http2");
            }
            authorities.push(authority);
        }
        if authorities.is_empty() {
            self.lacks(node, "has no servers that are understood here");
        }
        let scheme = if upstream.is_tls { "https" } else { "http" };
        let urls: Vec<String> = authorities.iter().map(|it| format!("{scheme}://{it}")).collect();
        upstream.table.set("servers", urls);
        authorities.pop().filter(|_| authorities.is_empty())
    }

    /// The name of the upstream: of another one that says the same, or of a new one.
    fn finished(&mut self, upstream: CaddyUpstream) -> String {
        let CaddyUpstream { mut table, mut check, tls, .. } = upstream;
        let has_servers = table.fields.iter().any(|(key, urls)| *key == "servers" && urls[0].is_string());
        if !has_servers {
            // Its routes are closed.
            return String::new();
        }
        if check.contains_key("path") {
            for (key, default) in [("interval_seconds", 30), ("rise", 1), ("fall", 1)] {
                check.entry(key).or_insert(json!(default));
            }
            table.set("check", Value::Object(check));
        }
        if !tls.is_empty() {
            table.set("tls", Value::Object(tls));
        }
        let has = |key: &str| table.fields.iter().any(|(known, _)| *known == key);
        // Without fail_duration Caddy forgets failures at once.
        match (has("eject_seconds"), has("eject_after")) {
            (true, false) => table.set("eject_after", 1),
            (false, true) => table.fields.retain(|(known, _)| *known != "eject_after"),
            _ => {}
        }
        if let Some((_, name)) = self.upstreams.iter().find(|(fields, _)| *fields == table.fields) {
            return name.clone();
        }
        let url =
            table.fields.iter().find(|(known, _)| *known == "servers").and_then(|(_, urls)| urls[0].as_str());
        let name = self.product.name(&[url.and_then(|url| url.split("://").nth(1)).unwrap_or("none")]);
        self.upstreams.push((table.fields.clone(), name.clone()));
        let mut document = ProductTable::new(table.source);
        document.set("name", name.clone());
        document.fields.extend(table.fields);
        self.product.upstreams.push(document);
        name
    }

    /// `header_up` or `header_down`.
    fn passed(&mut self, line: &CaddyDirective, authority: Option<&str>) -> Option<CaddyChange> {
        let arguments = line.arguments();
        let (name, values) = arguments.split_first().unwrap_or((&"", &[][..]));
        if line.name() == "header_down" {
            return self.field(line, name, values, "response_fields", "set");
        }
        let field = name.to_ascii_lowercase();
        let value = values.first().map(|value| value.replace("{http.request.", "{")).unwrap_or_default();
        if TOLD.iter().any(|(told, placeholders)| *told == field && placeholders.contains(&&*value)) {
            return None;
        }
        match (field.as_str(), value.as_str(), authority) {
            ("host", "{upstream_hostport}" | "{http.reverse_proxy.upstream.hostport}", Some(authority)) => {
                self.field(line, "host", &[authority], "request_fields", "set")
            }
            ("x-real-ip", "{remote_host}" | "{remote.host}" | "{client_ip}", _) => {
                self.differs(line, "is not sent: X-Forwarded-For ends with the same address");
                None
            }
            _ => self.field(line, name, values, "request_fields", "set"),
        }
    }

    /// Another service says whether a request goes on.
    pub(super) fn forward_auth(&mut self, node: &CaddyDirective, arguments: &[&str]) -> Vec<CaddyChange> {
        let (proxy, others) = self.proxy(node, arguments);
        let (mut path, mut fields) = ("/", Vec::new());
        for line in others {
            let words = line.arguments();
            match line.name() {
                "uri" if words.len() == 1 && line.block.is_none() => path = words[0],
                "copy_headers" => {
                    fields.extend(words.iter().map(|name| (*name).to_owned()));
                    fields.extend(line.lines().iter().flat_map(|it| it.words.clone()));
                }
                _ => self.lacks(line, "is not understood here"),
            }
        }
        if !proxy.changes.is_empty() || fields.iter().any(|name| name.contains(['>', '{', '*'])) {
            self.lacks(node, "changes fields or gives them other names, which is not understood here");
        }
        self.differs(
            node,
            "sends Authorization and Cookie, not all fields (forward_auth.send), and no query; a 5xx of the service is 503",
        );
        // The longest that a route may wait for such a service. Caddy waits without end.
        let mut asks = json!({ "upstream": proxy.upstream, "path": path, "timeout_seconds": 60 });
        if !fields.is_empty() {
            let fields: Vec<String> = fields.iter().map(|name| name.to_ascii_lowercase()).collect();
            asks["fields"] = json!(fields);
        }
        vec![CaddyChange::Key("auth", json!("forward")), CaddyChange::Key("forward_auth", asks)]
    }
}

/// The scheme and the authority of a server. `None`: it is not understood.
fn server(text: &str) -> Option<(&str, String)> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    let port = rest.rsplit_once(':').map_or("", |(_, port)| port);
    let is_known = matches!(scheme, "http" | "https" | "h2c")
        && !rest.is_empty()
        && !rest.contains(['/', '{', '?', '@', '*', '+'])
        && (rest.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit()));
    // Without a host it is this machine.
    let host = if rest.starts_with(':') { "127.0.0.1" } else { "" };
    is_known.then(|| (scheme, format!("{host}{rest}")))
}
