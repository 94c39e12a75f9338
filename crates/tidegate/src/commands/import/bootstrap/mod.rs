//! `tidegate import envoy` for a static bootstrap: listeners with routes, and clusters.
//!
//! | there | here |
//! |---|---|
//! | `listeners` with one filter chain and an HTTP connection manager | `[[gateway.listener]]` |
//! | `virtual_hosts`, `domains` | `host` of routes |
//! | `routes`: `prefix`, `path`, `path_separated_prefix`, `safe_regex`, `headers`, `query_parameters` | `[[route]]` |
//! | `route`, `redirect`, `direct_response` | `upstream`, `redirect`, `respond` |
//! | `clusters` | `[[upstream]]`, those that a route uses |
//!
//! Envoy asks the routes of a host in their order, Tidegate the most exact one first: where that could give a request to
//! another route, the later one is listed and not imported. So is every key that is not understood.

mod cluster;
mod matching;
mod route;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidegate_wire::yaml::{Node, Value, read};

use super::Imported;
use super::fields::{Fields, Taken};
use super::product::{Product, ProductTable, comment};
use cluster::{address, pair, takes_tls_1_3_alone};
pub(super) use route::percentages;

/// What is made, and what is known of the whole file.
struct BootstrapImporter<'y> {
    product: Product,
    clusters: BTreeMap<&'y str, Taken<'y>>,
    /// Upstreams of clusters, and how often they are tried.
    used: BTreeMap<String, (String, u64)>,
    /// Hosts that have routes; `*` is all.
    hosts: BTreeSet<String>,
    /// Something around the routes that are looked at is not understood, and may keep somebody out.
    is_guarded: bool,
}

/// The file, if it is a bootstrap.
pub(super) fn root(bytes: &[u8]) -> Option<Node> {
    let root = read(bytes).ok()?;
    let Value::Map(entries) = &root.value else { return None };
    entries.iter().any(|(name, ..)| name == "static_resources").then_some(root)
}

/// Imports a bootstrap.
pub(super) fn import(root: &Node, name: &Arc<str>) -> Imported {
    let mut importer = BootstrapImporter {
        product: Product::default(),
        clusters: BTreeMap::new(),
        used: BTreeMap::new(),
        hosts: BTreeSet::new(),
        is_guarded: false,
    };
    let mut fields = Taken::root(root, name).fields(&mut importer.product);
    if let Some(resources) = fields.map("static_resources", &mut importer.product) {
        importer.resources(resources);
    }
    let process = ["admin", "node", "stats_config", "stats_sinks", "overload_manager", "layered_runtime"];
    fields.end(&process, &mut importer.product);
    importer.product.finish(&format!("# Imported from Envoy's {}.\n", comment(name)))
}

impl<'y> BootstrapImporter<'y> {
    fn resources(&mut self, mut resources: Fields<'y>) {
        for taken in resources.list("clusters", &mut self.product) {
            match taken.fields(&mut self.product).text("name") {
                Some(name) => drop(self.clusters.insert(name, taken)),
                None => self.product.lacks(&taken.source, &taken.path, "has no name"),
            }
        }
        for listener in resources.list("listeners", &mut self.product) {
            self.listener(&listener);
        }
        resources.end_strictly(&mut self.product);
        let unused: Vec<Taken<'y>> = self
            .clusters
            .iter()
            .filter(|(name, _)| !self.used.contains_key(**name))
            .map(|(_, taken)| taken.clone())
            .collect();
        for taken in unused {
            self.product.differs(&taken.source, &taken.path, "is used by no route, and left out");
        }
    }

    fn listener(&mut self, taken: &Taken<'y>) {
        let mut fields = taken.fields(&mut self.product);
        drop(fields.take("name"));
        let listen = fields.take("address").and_then(|it| address(&it, &mut self.product));
        let Some(listen) = listen else {
            self.product.lacks(&taken.source, &taken.path, "has no socket_address");
            return;
        };
        let mut document = ProductTable::new(taken.source.clone());
        document.set("listen", listen);
        let before = self.product.missing.len();
        let chains = fields.list("filter_chains", &mut self.product);
        let ignored =
            ["per_connection_buffer_limit_bytes", "enable_reuse_port", "stat_prefix", "traffic_direction"];
        fields.end(&ignored, &mut self.product);
        for further in chains.iter().skip(1) {
            self.product.lacks(&further.source, &further.path, "is a second chain, where there is one here");
        }
        if let Some(chain) = chains.first() {
            self.chain(chain, &mut document, before);
        }
        self.product.listeners.push(document);
    }

    /// `before`: how much was not understood before this listener. If anything of it is not, it may be what keeps
    /// somebody out, and its routes are closed.
    fn chain(&mut self, taken: &Taken<'y>, listener: &mut ProductTable, before: usize) {
        let mut chain = taken.fields(&mut self.product);
        if let Some(socket) = chain.take("transport_socket") {
            server_tls(&socket, listener, &mut self.product);
        }
        let filters = chain.list("filters", &mut self.product);
        chain.end(&["name"], &mut self.product);
        let mut managers = Vec::new();
        for filter in filters {
            let mut fields = filter.fields(&mut self.product);
            let name = fields.text("name").unwrap_or_default();
            let config = fields.map("typed_config", &mut self.product);
            fields.end_strictly(&mut self.product);
            match config {
                Some(config) if name == "envoy.filters.network.http_connection_manager" => {
                    managers.push(config)
                }
                _ => self.product.lacks(&filter.source, &filter.path, "is not understood here"),
            }
        }
        for manager in managers {
            self.manager(manager, before);
        }
    }

    /// An HTTP connection manager.
    fn manager(&mut self, mut manager: Fields<'y>, before: usize) {
        drop(manager.take("@type"));
        for filter in manager.list("http_filters", &mut self.product) {
            match filter.fields(&mut self.product).text("name") {
                Some("envoy.filters.http.router") => {}
                Some(name) => {
                    self.product.lacks(
                        &filter.source,
                        &filter.path,
                        format!("{name} is not understood here"),
                    );
                }
                None => self.product.lacks(&filter.source, &filter.path, "has no name"),
            }
        }
        let routes = manager.take("route_config");
        let source = manager.source();
        for upgrade in manager.list("upgrade_configs", &mut self.product) {
            if upgrade.fields(&mut self.product).text("upgrade_type") != Some("websocket") {
                self.product.lacks(&upgrade.source, &upgrade.path, "is not understood here: websocket is");
            }
        }
        let ignored = [
            "stat_prefix",
            "codec_type",
            "access_log",
            "generate_request_id",
            "http_protocol_options",
            "http2_protocol_options",
            "common_http_protocol_options",
            "stream_idle_timeout",
            "request_timeout",
            "normalize_path",
            "merge_slashes",
            "server_name",
            "tracing",
        ];
        manager.end(&ignored, &mut self.product);
        match routes {
            Some(routes) => self.routes(&routes, self.product.missing.len() > before),
            None => self.product.lacks(&source, "route_config", "is missing: its routes are elsewhere"),
        }
    }
}

/// The certificate of a listener.
fn server_tls(socket: &Taken<'_>, listener: &mut ProductTable, product: &mut Product) {
    let mut fields = socket.fields(product);
    drop(fields.take("name"));
    let config = fields.map("typed_config", product);
    fields.end_strictly(product);
    let Some(mut config) = config else { return };
    drop(config.take("@type"));
    if let Some(mut common) = config.map("common_tls_context", product) {
        for (here, file) in ["tls_certificate", "tls_key"].into_iter().zip(pair(&mut common, product)) {
            if let Some(file) = file {
                listener.set(here, file);
            }
        }
        if takes_tls_1_3_alone(&mut common, product) {
            listener.set("tls_min_version", "1.3");
        }
        common.end(&["alpn_protocols"], product);
    }
    config.end_strictly(product);
}
