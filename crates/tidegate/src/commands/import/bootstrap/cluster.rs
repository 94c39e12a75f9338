//! Clusters: upstreams, made when a route uses them for the first time.
//!
//! Envoy says with the route how often a request is tried, Tidegate with the upstream: routes to one cluster that say
//! different things of that are listed.

use serde_json::{Map, Value, json};

use super::super::fields::{Fields, Taken};
use super::super::product::{Product, ProductTable, SourceLocation};
use super::BootstrapImporter;

/// Keys without effect on replies.
const IGNORED: [&str; 9] = [
    "alt_stat_name",
    "stat_name",
    "dns_lookup_family",
    "dns_refresh_rate",
    "respect_dns_ttl",
    "per_connection_buffer_limit_bytes",
    "close_connections_on_host_health_failure",
    "upstream_connection_options",
    "common_lb_config",
];

impl<'y> BootstrapImporter<'y> {
    /// The upstream of a cluster, which is tried `attempts` times. `None`: it is listed.
    pub(super) fn upstream(
        &mut self,
        name: &str,
        attempts: u64,
        by: &SourceLocation,
        path: &str,
    ) -> Option<String> {
        if let Some((upstream, known)) = self.used.get(name) {
            if *known == attempts {
                return Some(upstream.clone());
            }
            let problem =
                format!("is tried {attempts} times, while another route to {name} is tried {known} times");
            self.product.lacks(by, path, problem);
            return None;
        }
        let Some(taken) = self.clusters.get(name).cloned() else {
            self.product.lacks(by, path, format!("there is no cluster {name}"));
            return None;
        };
        let upstream = self.product.name(&[name]);
        let mut document = ProductTable::new(taken.source.clone());
        document.set("name", upstream.clone());
        cluster(&taken, &mut document, &mut self.product);
        document.set("retries", json!({ "attempts": attempts }));
        self.product.upstreams.push(document);
        self.used.insert(name.to_owned(), (upstream.clone(), attempts));
        Some(upstream)
    }
}

fn cluster(taken: &Taken<'_>, document: &mut ProductTable, product: &mut Product) {
    let mut fields = taken.fields(product);
    drop(fields.take("name"));
    let kind = fields.take("type");
    if let Some(kind) = kind.filter(|it| !matches!(it.text(), Some("STATIC" | "STRICT_DNS" | "LOGICAL_DNS")))
    {
        product.lacks(
            &kind.source,
            &kind.path,
            "is not understood here: STATIC, STRICT_DNS and LOGICAL_DNS are",
        );
    }
    let tls = fields.take("transport_socket").map(|socket| client_tls(&socket, product));
    let scheme = if tls.is_some() { "https" } else { "http" };
    let servers = servers(&mut fields, scheme, product);
    document.set("servers", servers);
    if let Some(tls) = tls.filter(|tls| !tls.is_empty()) {
        document.set("tls", Value::Object(tls));
    }
    balance(&mut fields, document, product);
    if speaks_http2(&mut fields, product) {
        document.set("protocol", "http2");
    }
    let connect = fields.seconds("connect_timeout", product).unwrap_or(json!(5));
    document.set("connect_timeout_seconds", connect);
    checks(&mut fields, document, product);
    outliers(&mut fields, document, product);
    if let Some(limits) = fields.take("circuit_breakers") {
        let problem =
            "is left out: max_requests of an upstream holds for each server, and retries have a budget";
        product.differs(&limits.source, &limits.path, problem);
    }
    fields.end(&IGNORED, product);
}

fn servers(fields: &mut Fields<'_>, scheme: &str, product: &mut Product) -> Vec<Value> {
    let mut servers = Vec::new();
    let Some(mut assignment) = fields.map("load_assignment", product) else {
        product.lacks(&fields.source(), "load_assignment", "is missing");
        return servers;
    };
    drop(assignment.take("cluster_name"));
    for group in assignment.list("endpoints", product) {
        let mut group = group.fields(product);
        for endpoint in group.list("lb_endpoints", product) {
            let mut endpoint = endpoint.fields(product);
            let weight = endpoint.take("load_balancing_weight").and_then(|weight| weight.number());
            let inner = endpoint.map("endpoint", product);
            if let Some(mut inner) = inner {
                if let Some(address) = inner.take("address").and_then(|it| address(&it, product)) {
                    let url = format!("{scheme}://{address}");
                    servers.push(weight.map_or(json!(url), |weight| json!({ "url": url, "weight": weight })));
                }
                inner.end(&["hostname"], product);
            }
            endpoint.end_strictly(product);
        }
        group.end(&["locality"], product);
    }
    assignment.end_strictly(product);
    servers
}

/// `host:port` of a `socket_address`.
pub(super) fn address(taken: &Taken<'_>, product: &mut Product) -> Option<String> {
    let mut fields = taken.fields(product);
    let socket = fields.map("socket_address", product);
    fields.end_strictly(product);
    let mut socket = socket?;
    let host = socket.text("address")?;
    let port = socket.take("port_value").and_then(|port| port.number())?;
    socket.end(&["protocol"], product);
    Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

fn balance(fields: &mut Fields<'_>, document: &mut ProductTable, product: &mut Product) {
    let policy = fields.take("lb_policy");
    let balance = match policy.as_ref().and_then(Taken::text) {
        None | Some("ROUND_ROBIN") => "round_robin",
        Some("LEAST_REQUEST") => "least_requests",
        Some("RING_HASH") => "ring_hash",
        Some(other) => {
            if let Some(policy) = &policy {
                let problem =
                    format!("{other} is not understood here: ROUND_ROBIN, LEAST_REQUEST and RING_HASH are");
                product.lacks(&policy.source, &policy.path, problem);
            }
            return;
        }
    };
    document.set("balance", balance);
    for name in ["least_request_lb_config", "ring_hash_lb_config"] {
        if let Some(taken) = fields.take(name) {
            product.differs(&taken.source, &taken.path, "has no counterpart, and is left out");
        }
    }
}

/// Whether HTTP/2 is what its protocol options ask for.
fn speaks_http2(fields: &mut Fields<'_>, product: &mut Product) -> bool {
    const OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let Some(mut extensions) = fields.map("typed_extension_protocol_options", product) else { return false };
    let options = extensions.map(OPTIONS, product);
    extensions.end_strictly(product);
    let Some(mut options) = options else { return false };
    drop(options.take("@type"));
    let explicit = options.map("explicit_http_config", product);
    options.end(&["common_http_protocol_options"], product);
    let Some(mut explicit) = explicit else { return false };
    let is_http2 = explicit.take("http2_protocol_options").is_some();
    drop(explicit.take("http_protocol_options"));
    explicit.end_strictly(product);
    is_http2
}

/// How the servers of a cluster are known.
fn client_tls(socket: &Taken<'_>, product: &mut Product) -> Map<String, Value> {
    let mut tls = Map::new();
    let mut fields = socket.fields(product);
    drop(fields.take("name"));
    let config = fields.map("typed_config", product);
    fields.end_strictly(product);
    let Some(mut config) = config else { return tls };
    drop(config.take("@type"));
    if let Some(name) = config.text("sni") {
        tls.insert("server_name".to_owned(), json!(name));
    }
    let mut verifies = false;
    if let Some(mut common) = config.map("common_tls_context", product) {
        if let Some(mut validation) = common.map("validation_context", product) {
            verifies = true;
            if let Some(file) = validation.map("trusted_ca", product).and_then(|mut ca| ca.text("filename")) {
                tls.insert("ca_file".to_owned(), json!(file));
            }
            validation.end_strictly(product);
        }
        if let [Some(certificate), Some(key)] = pair(&mut common, product) {
            tls.insert("certificate_file".to_owned(), json!(certificate));
            tls.insert("key_file".to_owned(), json!(key));
        }
        if takes_tls_1_3_alone(&mut common, product) {
            tls.insert("min_version".to_owned(), json!("1.3"));
        }
        common.end(&["alpn_protocols"], product);
    }
    config.end_strictly(product);
    if !verifies {
        let problem = "the certificates of its servers are verified here, which is not asked for there";
        product.differs(&socket.source, &socket.path, problem);
    }
    tls
}

/// Whether the `tls_params` of a `common_tls_context` take nothing older than TLS 1.3. Nothing older than 1.2 is spoken here in any case.
pub(super) fn takes_tls_1_3_alone(common: &mut Fields<'_>, product: &mut Product) -> bool {
    let Some(mut params) = common.map("tls_params", product) else { return false };
    let least = params.take("tls_minimum_protocol_version");
    params.end(
        &["tls_maximum_protocol_version", "cipher_suites", "ecdh_curves", "signature_algorithms"],
        product,
    );
    let Some(least) = least else { return false };
    match least.text() {
        // By its name or, as in any enumeration of protobuf, by its number.
        Some("TLSv1_3" | "4") => return true,
        Some("TLSv1_2" | "3" | "TLS_AUTO" | "0") => {}
        _ => product.differs(&least.source, &least.path, "has no effect: TLS 1.2 and 1.3 are spoken"),
    }
    false
}

/// The files of the one certificate of a `common_tls_context` and of its key. What of them is missing is listed, if there is a
/// certificate at all.
pub(super) fn pair<'y>(common: &mut Fields<'y>, product: &mut Product) -> [Option<&'y str>; 2] {
    let certificates = common.list("tls_certificates", product);
    for further in certificates.iter().skip(1) {
        product.lacks(&further.source, &further.path, "is a second certificate, where there is one here");
    }
    let Some(first) = certificates.first() else { return [None, None] };
    let mut certificate = first.fields(product);
    let files = ["certificate_chain", "private_key"].map(|there| {
        let file = certificate.map(there, product).and_then(|mut it| it.text("filename"));
        if file.is_none() {
            product.lacks(&first.source, &first.path, format!("{there} names no file"));
        }
        file
    });
    certificate.end_strictly(product);
    files
}

fn checks(fields: &mut Fields<'_>, document: &mut ProductTable, product: &mut Product) {
    let checks = fields.list("health_checks", product);
    for further in checks.iter().skip(1) {
        product.lacks(&further.source, &further.path, "is a second check, where there is one here");
    }
    let Some(first) = checks.first() else { return };
    let mut check = first.fields(product);
    let mut table = Map::new();
    for (there, here) in [("interval", "interval_seconds"), ("timeout", "timeout_seconds")] {
        if let Some(time) = check.seconds(there, product) {
            table.insert(here.to_owned(), time);
        }
    }
    for (there, here) in [("healthy_threshold", "rise"), ("unhealthy_threshold", "fall")] {
        if let Some(number) = check.take(there).and_then(|it| it.number()) {
            table.insert(here.to_owned(), json!(number));
        }
    }
    if let Some(mut http) = check.map("http_health_check", product) {
        if let Some(path) = http.text("path") {
            table.insert("path".to_owned(), json!(path));
        }
        http.end_strictly(product);
    }
    drop(check.take("tcp_health_check"));
    check.end(&["no_traffic_interval", "interval_jitter", "reuse_connection"], product);
    document.set("check", Value::Object(table));
}

fn outliers(fields: &mut Fields<'_>, document: &mut ProductTable, product: &mut Product) {
    let Some(mut outliers) = fields.map("outlier_detection", product) else { return };
    if let Some(number) = outliers.take("consecutive_5xx").and_then(|it| it.number()) {
        document.set("eject_after", number);
    }
    if let Some(time) = outliers.seconds("base_ejection_time", product) {
        document.set("eject_seconds", time);
    }
    let ignored = ["interval", "max_ejection_percent", "enforcing_consecutive_5xx", "max_ejection_time"];
    outliers.end(&ignored, product);
}
