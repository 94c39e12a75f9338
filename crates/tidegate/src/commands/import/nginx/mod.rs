//! `tidegate import nginx`: servers, locations, upstreams and limits of nginx as routes, upstreams and policies.
//!
//! | there | here |
//! |---|---|
//! | `listen`, `ssl_certificate` | `[[gateway.listener]]` (`server.rs`) |
//! | `server`, `server_name`, `location` | `[[route]]` with `host` and `path` (`server.rs`, `location.rs`) |
//! | `upstream`, `proxy_pass` | `[[upstream]]`, `strip_prefix`, `add_prefix` (`upstream.rs`, `forward.rs`) |
//! | `proxy_set_header`, `add_header`, `auth_request` | fields and `forward_auth` of the route (`fields.rs`, `auth.rs`) |
//! | `limit_req`, `limit_conn` | `[[policy]]` (`limits.rs`) |
//!
//! A directive has one of four fates: it is said in Tidegate's words; it has no effect on replies or none here, and
//! is a warning (`known.rs`); it means something else here, and is a warning that says what; or it is listed as not
//! understood. What a directive inherits from the blocks around it is looked up as nginx does (`scope.rs`).

mod auth;
mod fields;
mod files;
mod forward;
mod known;
mod limits;
mod location;
mod reply;
mod scope;
mod server;
pub(super) mod units;
mod upstream;

use std::collections::BTreeMap;
use std::path::Path;

use super::product::{Product, comment};
use super::{Imported, Refused};
use files::Node;
use known::Context;
use limits::Zones;
use scope::Scope;
use upstream::Upstreams;

/// What is made, and what is known of the whole file while its parts are looked at.
struct Importer<'n> {
    product: Product,
    upstreams: Upstreams<'n>,
    zones: Zones,
}

/// Imports the file at `path`, and what it includes.
pub(super) fn import(path: &Path) -> Result<Imported, Refused> {
    let nodes = files::load(path)?;
    let mut importer =
        Importer { product: Product::default(), upstreams: Upstreams::default(), zones: Zones::default() };
    importer.file(&nodes);
    let header = format!("# Imported from nginx's {}.\n", comment(&path.display().to_string()));
    Ok(importer.product.finish(&header))
}

impl<'n> Importer<'n> {
    /// A whole file, or one that nginx would include in its block `http`.
    fn file(&mut self, nodes: &'n [Node]) {
        let is_whole = nodes.iter().any(|node| node.name == "http");
        if !is_whole {
            return self.http(nodes);
        }
        self.survey(nodes, Context::Main);
        for block in nodes.iter().filter(|node| node.name == "http").filter_map(|node| node.block.as_deref())
        {
            self.http(block);
        }
    }

    fn http(&mut self, nodes: &'n [Node]) {
        self.survey(nodes, Context::Http);
        self.read_zones(nodes);
        self.declare_upstreams(nodes);
        let outer = Scope::default().within(nodes);
        self.servers(nodes, &outer);
        self.unused_upstreams();
    }

    /// Lists what of a block is not looked at by anything here.
    fn survey(&mut self, nodes: &[Node], context: Context) {
        let mut seen: BTreeMap<&str, ()> = BTreeMap::new();
        for node in nodes {
            let source = node.source();
            match known::fate(node, context) {
                known::Fate::Read => {}
                known::Fate::Ignored(why) => {
                    // One warning for each name and block: a list of twenty headers is one matter.
                    if seen.insert(&node.name, ()).is_none() {
                        self.product.differs(&source, &node.name, why);
                    }
                }
                known::Fate::Unknown => self.product.lacks(&source, &node.name, "is not understood here"),
            }
        }
    }
}
