//! `tidegate import traefik`: the dynamic configuration of Traefik's file provider, v2 and v3, as YAML or TOML.
//!
//! | there | here |
//! |---|---|
//! | `http.routers`: `rule`, `priority` | `[[route]]`, one for each alternative of the rule |
//! | `http.services` | `[[upstream]]`, `split`, `mirror`, `fallback` |
//! | `http.middlewares` | keys of the routes that use them, and `[[policy]]` |
//! | `tls.certificates`, entry points | `[[gateway.listener]]` |
//!
//! Traefik asks the router with the greatest priority first, which by default is the one with the longest rule. Tidegate asks
//! the most exact route first: where that could give a request to a router of less priority, that router is listed. With
//! `--partial` it is answered 503, as is every router that is not understood as a whole. The rule of a router may not be
//! understood: then it is not known which requests it would have kept from the routers behind it, and these are answered 503, too.

mod limits;
mod matching;
mod middleware;
mod rule;
mod service;
mod toml_tree;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_wire::yaml::{Finding, Position, read};

use super::fields::{Fields, Taken};
use super::product::{Product, ProductTable, comment};
use super::{Imported, Located, Refused, bounded};
use matching::RouterMatch;
use service::MadeUpstream;

/// Where the listeners listen until somebody says otherwise: entry points are in Traefik's static configuration.
const LISTEN: &str = "127.0.0.1:8080";
const LISTEN_TLS: &str = "127.0.0.1:8443";

/// A file of a certificate, and that of its key.
type KeyPair = [String; 2];

/// What is made, and what is known of the whole file.
struct TraefikImporter<'y> {
    product: Product,
    services: BTreeMap<&'y str, Taken<'y>>,
    middlewares: BTreeMap<&'y str, Taken<'y>>,
    /// Upstreams by the service, or the address, that they are made of.
    upstreams: BTreeMap<String, MadeUpstream>,
    /// Policies by router and middleware: Traefik counts for each router apart.
    policies: BTreeMap<(String, String), String>,
    /// Services and middlewares that a router uses.
    used: BTreeSet<String>,
    /// What each route of the product takes, and the priority of its router.
    routes: Vec<(RouterMatch, i64)>,
    /// Routers of this priority and less are not opened.
    guarded: Option<i64>,
}

/// A router whose rule is understood.
struct PendingRouter<'y> {
    name: &'y str,
    taken: Taken<'y>,
    priority: i64,
    matches: Vec<RouterMatch>,
    service: Option<&'y str>,
    /// Each middleware of its chain with its kind.
    chain: Vec<(&'y str, Taken<'y>)>,
    is_tls: bool,
    is_whole: bool,
}

/// Imports the file.
pub(super) fn import(path: &Path) -> Result<Imported, Refused> {
    let name: Arc<str> = path.display().to_string().into();
    let bytes = bounded(path).map_err(|error| Refused::Unreadable(name.to_string(), error))?;
    let refused = |finding| Refused::Mistakes(vec![Located { file: Arc::clone(&name), finding }]);
    if let Some(at) = bytes.windows(2).position(|pair| pair == b"{{") {
        let before = &bytes[..at];
        let begin = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let place = Position { line, column: at - begin + 1 };
        let problem = "{{ begins a template of Go, which Traefik fills in".to_owned();
        let accepted = "the file with its templates filled in".to_owned();
        return Err(refused(Finding { place, path: String::new(), problem, accepted }));
    }
    let is_toml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    let root = if is_toml { toml_tree::read(&bytes) } else { read(&bytes) }.map_err(refused)?;
    let mut importer = TraefikImporter {
        product: Product::default(),
        services: BTreeMap::new(),
        middlewares: BTreeMap::new(),
        upstreams: BTreeMap::new(),
        policies: BTreeMap::new(),
        used: BTreeSet::new(),
        routes: Vec::new(),
        guarded: None,
    };
    importer.file(&Taken::root(&root, &name));
    let mut product = importer.product;
    // A middleware is looked at for each route that uses it.
    for list in [&mut product.warnings, &mut product.missing] {
        list.sort();
        list.dedup();
    }
    Ok(product.finish(&format!("# Imported from Traefik's {}.\n", comment(&name))))
}

impl<'y> TraefikImporter<'y> {
    fn lacks(&mut self, taken: &Taken<'_>, problem: impl Into<String>) {
        self.product.lacks(&taken.source, &taken.path, problem);
    }

    fn differs(&mut self, taken: &Taken<'_>, problem: impl Into<String>) {
        self.product.differs(&taken.source, &taken.path, problem);
    }

    /// A number under a name; anything else is listed.
    fn count(&mut self, fields: &mut Fields<'y>, name: &str, default: u64) -> Option<u64> {
        let Some(taken) = fields.take(name) else { return Some(default) };
        let number = taken.number();
        if number.is_none() {
            self.lacks(&taken, "is no whole number");
        }
        number
    }

    fn texts(&mut self, fields: &mut Fields<'y>, name: &str) -> Vec<&'y str> {
        fields.list(name, &mut self.product).iter().filter_map(Taken::text).collect()
    }

    fn file(&mut self, root: &Taken<'y>) {
        let mut fields = root.fields(&mut self.product);
        let (http, tls) = (fields.take("http"), fields.take("tls"));
        fields.end_strictly(&mut self.product);
        let mut tls_listener = ProductTable::new(root.source.clone());
        tls_listener.set("listen", LISTEN_TLS);
        let has_certificate = tls.is_some_and(|tls| self.tls(&tls, &mut tls_listener));
        let mut routers = http.map(|http| self.http(&http)).unwrap_or_default();
        routers.sort_by_key(|router| (Reverse(router.priority), router.name));
        self.listeners(root, &mut routers, has_certificate);
        if has_certificate {
            self.product.listeners.push(tls_listener);
        }
        for router in routers {
            self.router(router);
        }
        let all = self.services.iter().chain(&self.middlewares);
        let unused: Vec<Taken<'y>> = all
            .filter(|(_, taken)| !self.used.contains(&taken.path))
            .map(|(_, taken)| taken.clone())
            .collect();
        for taken in unused {
            self.differs(&taken, "is used by no router, and left out");
        }
    }

    fn http(&mut self, taken: &Taken<'y>) -> Vec<PendingRouter<'y>> {
        let mut http = taken.fields(&mut self.product);
        self.services = self.named(&mut http, "services");
        self.middlewares = self.named(&mut http, "middlewares");
        let routers = self.named(&mut http, "routers");
        http.end_strictly(&mut self.product);
        routers.into_iter().filter_map(|(name, taken)| self.pending(name, taken)).collect()
    }

    /// The members of a map, by their names.
    fn named(&mut self, fields: &mut Fields<'y>, section: &str) -> BTreeMap<&'y str, Taken<'y>> {
        let mut found = BTreeMap::new();
        let Some(mut members) = fields.map(section, &mut self.product) else { return found };
        for (name, taken) in members.rest() {
            if found.contains_key(name) {
                self.lacks(&taken, "is there twice");
            }
            found.entry(name).or_insert(taken);
        }
        found
    }

    /// Reads a router. `None`: its rule is not understood, and it is listed.
    fn pending(&mut self, name: &'y str, taken: Taken<'y>) -> Option<PendingRouter<'y>> {
        let before = self.product.missing.len();
        let mut fields = taken.fields(&mut self.product);
        let rule = fields.take("rule");
        let text = rule.as_ref().and_then(Taken::text).unwrap_or_default();
        let default = i64::try_from(text.len()).unwrap_or(i64::MAX);
        let priority = match fields.take("priority") {
            None => default,
            Some(stated) => match stated.text().and_then(|text| text.parse::<i64>().ok()) {
                Some(0) => default,
                Some(priority) => priority,
                None => {
                    self.lacks(&stated, "is no number");
                    i64::MAX
                }
            },
        };
        if let Some(points) = fields.take("entryPoints") {
            self.differs(&points, "has no effect: routes hold at all listeners");
        }
        let is_tls = fields.take("tls").is_some_and(|tls| self.router_tls(&tls));
        let service = fields.text("service");
        let names = fields.list("middlewares", &mut self.product);
        let chain = self.chain(names);
        fields.end(&["ruleSyntax", "observability"], &mut self.product);
        let mut notes = Vec::new();
        match matching::matches(text, &mut notes) {
            Ok(matches) => {
                for note in notes {
                    self.differs(rule.as_ref().unwrap_or(&taken), note);
                }
                let is_whole = self.product.missing.len() == before;
                Some(PendingRouter { name, taken, priority, matches, service, chain, is_tls, is_whole })
            }
            Err(mistake) => {
                let problem = format!("at character {} of {text:?}: {}", mistake.at, mistake.problem);
                self.lacks(rule.as_ref().unwrap_or(&taken), problem);
                self.guarded = self.guarded.max(Some(priority));
                None
            }
        }
    }

    /// The `tls` of a router: whether clients speak it.
    fn router_tls(&mut self, taken: &Taken<'y>) -> bool {
        let mut fields = taken.fields(&mut self.product);
        self.differs(taken, "routes hold at all listeners, also at one without TLS");
        if let Some(resolver) = fields.take("certResolver") {
            self.differs(
                &resolver,
                "is left out: docs/tls.md says how certificates are ordered ([acme], tls_acme)",
            );
        }
        if let Some(options) = fields.take("options").filter(|options| options.text() != Some("default")) {
            self.lacks(&options, "is not understood here: default is");
        }
        fields.end(&["domains"], &mut self.product);
        true
    }

    /// The listener without TLS, if there is something for it. Routers that lead clients to HTTPS become a key of it and go
    /// from the list.
    fn listeners(&mut self, root: &Taken<'y>, routers: &mut Vec<PendingRouter<'y>>, has_certificate: bool) {
        let redirects = |router: &PendingRouter<'y>| {
            router.chain.iter().find(|(kind, _)| *kind == "redirectScheme").cloned()
        };
        let plain: Vec<&PendingRouter<'y>> = routers.iter().filter(|router| !router.is_tls).collect();
        let redirecting: Vec<Taken<'y>> =
            plain.iter().filter(|it| redirects(it).is_some()).map(|it| it.taken.clone()).collect();
        let is_understood = has_certificate && redirecting.len() == plain.len();
        let (has_plain, first) = (!plain.is_empty(), plain.iter().find_map(|it| redirects(it)));
        let mut listener = ProductTable::new(root.source.clone());
        listener.set("listen", LISTEN);
        if let Some((_, scheme)) = first {
            if is_understood {
                let port = self.https_port(&scheme);
                listener.set("redirect_to_https", port);
            }
            for router in &redirecting {
                if is_understood {
                    let problem = "is redirect_to_https of its listener here: every request is answered 308";
                    self.differs(router, problem);
                } else {
                    let problem = "is not understood here: redirect_to_https is for a whole listener, beside one with \
                        a certificate of tls.certificates, and no router without tls may do anything else";
                    self.lacks(router, problem);
                }
            }
            routers.retain(|router| router.is_tls || redirects(router).is_none());
        }
        let problem = format!(
            "entry points are in the static configuration: listeners are at {LISTEN} and, with a \
            certificate, {LISTEN_TLS} until you change that"
        );
        self.differs(root, problem);
        if has_plain || !has_certificate {
            self.product.listeners.push(listener);
        }
    }

    /// The `tls` of the file: whether there is a certificate, which is the listener's then.
    fn tls(&mut self, taken: &Taken<'y>, listener: &mut ProductTable) -> bool {
        let mut tls = taken.fields(&mut self.product);
        let mut pairs: Vec<KeyPair> = Vec::new();
        if let Some(mut stores) = tls.map("stores", &mut self.product) {
            if let Some(mut store) = stores.map("default", &mut self.product) {
                pairs.extend(store.take("defaultCertificate").and_then(|it| self.pair(&it)));
                store.end_strictly(&mut self.product);
            }
            stores.end_strictly(&mut self.product);
        }
        for certificate in tls.list("certificates", &mut self.product) {
            pairs.extend(self.pair(&certificate));
        }
        let before = self.product.missing.len();
        if let Some(mut options) = tls.map("options", &mut self.product) {
            if let Some(mut default) = options.map("default", &mut self.product) {
                match default.take("minVersion") {
                    Some(least) if least.text() == Some("VersionTLS13") => {
                        listener.set("tls_min_version", "1.3")
                    }
                    Some(least) if least.text() != Some("VersionTLS12") => {
                        self.differs(&least, "has no effect: TLS 1.2 and 1.3 are spoken");
                    }
                    _ => {}
                }
                default.end(&["cipherSuites", "curvePreferences", "alpnProtocols"], &mut self.product);
            }
            options.end_strictly(&mut self.product);
        }
        tls.end_strictly(&mut self.product);
        if self.product.missing.len() > before {
            // It may be what asks clients for certificates.
            self.guarded = Some(i64::MAX);
        }
        let Some(([certificate, key], further)) = pairs.split_first() else { return false };
        listener.set("tls_certificate", certificate.clone());
        listener.set("tls_key", key.clone());
        if !further.is_empty() {
            let pair = |[certificate, key]: &KeyPair| json!({ "certificate": certificate, "key": key });
            listener.set("tls_pairs", further.iter().map(pair).collect::<Vec<Value>>());
        }
        true
    }

    fn pair(&mut self, taken: &Taken<'y>) -> Option<KeyPair> {
        let mut fields = taken.fields(&mut self.product);
        let [certificate, key] = ["certFile", "keyFile"].map(|name| fields.text(name).map(str::to_owned));
        fields.end(&["stores"], &mut self.product);
        let pair = certificate.zip(key).map(|(certificate, key)| [certificate, key]);
        if pair.is_none() {
            self.lacks(taken, "names no certFile and keyFile");
        }
        pair
    }

    /// The routes of a router.
    fn router(&mut self, router: PendingRouter<'y>) {
        let is_guarded = !router.is_whole || self.guarded.is_some_and(|guarded| router.priority <= guarded);
        let attempts = self.attempts(&router.chain);
        let target = router.service.map(|name| self.destination(name, &router.taken, attempts));
        if target.is_none() {
            self.lacks(&router.taken, "has no service");
        }
        let target = target.flatten();
        for found in &router.matches {
            let mut document = ProductTable::new(router.taken.source.clone());
            found.write(&mut document);
            let before = self.product.missing.len();
            if self
                .routes
                .iter()
                .any(|(known, priority)| *priority > router.priority && found.overtakes(known))
            {
                self.lacks(&router.taken, "would be asked before a router of greater priority");
            }
            let closed = document.fields.clone();
            for &(key, ref value) in target.iter().flatten() {
                document.set(key, value.clone());
            }
            for (kind, config) in &router.chain {
                self.middleware(router.name, kind, config, found, &mut document);
            }
            if is_guarded || target.is_none() || self.product.missing.len() > before {
                // What is not understood may keep somebody out: it is not opened by leaving it out.
                document.fields = closed;
                document.set("respond", json!({ "status": 503, "body": "not imported" }));
            }
            self.route(&router, found, document);
        }
    }

    /// Adds a route, unless another takes all that it would take.
    fn route(&mut self, router: &PendingRouter<'y>, found: &RouterMatch, mut document: ProductTable) {
        if let Some(known) = self.routes.iter().position(|(known, _)| known == found) {
            // The first field is the name.
            if self.product.routes[known].fields[1..] == document.fields[..] {
                self.differs(&router.taken, "says what another router says, and is left out");
            } else {
                self.lacks(&router.taken, "gets no request: a router with the same rule comes before it");
            }
            return;
        }
        let name = self.product.name(&[router.name, &found.words()]);
        document.fields.insert(0, ("name", json!(name)));
        self.product.routes.push(document);
        self.routes.push((found.clone(), router.priority));
    }
}
