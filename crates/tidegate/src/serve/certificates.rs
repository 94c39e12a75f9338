//! The certificates that this node shows, for who asks the admin API: its listeners' to clients, of files and of orders, and the gateway's
//! to servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_access::keys::shown_time;
use tidegate_admin::api::ShownCertificates;
use tidegate_algorithms::time::{SECOND, Wall};
use tidegate_certificates::{Acme, CertificateStatus};
use tidegate_gateway::service::Gateway;
use tidegate_net::clock::wall;
use tidegate_net::tls::FileCertificate;
use tidegate_upstream::client_pair::ClientCertificate;

use super::listeners::SecuredListeners;

/// The listeners that have TLS, what orders certificates for some of them, and the gateway whose upstreams may have some.
#[derive(Debug)]
pub(super) struct NodeCertificates {
    secured: SecuredListeners,
    acme: Option<Arc<Acme>>,
    gateway: Arc<Gateway>,
}

impl NodeCertificates {
    pub(super) fn new(secured: &SecuredListeners, acme: Option<&Arc<Acme>>, gateway: &Arc<Gateway>) -> Self {
        Self { secured: secured.clone(), acme: acme.cloned(), gateway: Arc::clone(gateway) }
    }

    /// Those of files, each once with all listeners that show it. A file that is read again may be in force at one listener before
    /// another: then it is there twice.
    fn of_files(&self) -> Vec<(u64, Value)> {
        let mut listeners: BTreeMap<FileCertificate, Vec<String>> = BTreeMap::new();
        for it in self.secured.now() {
            for certificate in it.tls.of_files() {
                let shown_by = listeners.entry(certificate).or_default();
                if shown_by.last() != Some(&it.listener.label()) {
                    shown_by.push(it.listener.label());
                }
            }
        }
        let shown = listeners.into_iter().map(|(FileCertificate { file, names, not_after }, listeners)| {
            let file = file.display().to_string();
            let mut shown = json!({ "names": names, "listeners": listeners, "origin": "file", "file": file });
            end(&mut shown, not_after);
            (not_after, shown)
        });
        shown.collect()
    }

    /// Those of orders; names without a certificate come first.
    fn of_orders(&self) -> Vec<(u64, Value)> {
        let Some(acme) = &self.acme else { return Vec::new() };
        let secured = self.secured.now();
        let showing = secured.iter().filter(|it| it.tls.shows_ordered());
        let listeners: Vec<String> = showing.map(|it| it.listener.label()).collect();
        let shown =
            acme.status().into_iter().map(|CertificateStatus { name, not_after, trouble, .. }| {
                let mut shown = json!({
                    "names": [name],
                    "listeners": listeners,
                    "origin": "acme",
                    "directory": acme.directory(),
                });
                if let Some(not_after) = not_after {
                    end(&mut shown, not_after);
                }
                if let Some(trouble) = trouble {
                    shown["trouble"] = trouble.into();
                }
                (not_after.unwrap_or(0), shown)
            });
        shown.collect()
    }

    /// Those that servers are shown, each once with all upstreams that have it.
    fn of_upstreams(&self) -> Vec<(u64, Value)> {
        let mut upstreams: BTreeMap<ClientCertificate, Vec<Arc<str>>> = BTreeMap::new();
        let mut refused = BTreeSet::new();
        for it in self.gateway.certificates() {
            if it.is_refused {
                refused.insert(it.certificate.file.clone());
            }
            upstreams.entry(it.certificate).or_default().push(it.upstream);
        }
        let shown = upstreams.into_iter().map(|(ClientCertificate { file, names, validity }, upstreams)| {
            let not_after = validity.not_after;
            let is_refused = refused.contains(&file);
            let upstreams: Vec<&str> = upstreams.iter().map(|name| &**name).collect();
            let file = file.display().to_string();
            let mut shown = json!({
                "names": names,
                "listeners": [],
                "upstreams": upstreams,
                "origin": "upstream",
                "file": file,
            });
            end(&mut shown, not_after);
            if is_refused {
                shown["trouble"] = "its files as they are now were refused: the log says why".into();
            }
            (not_after, shown)
        });
        shown.collect()
    }
}

impl ShownCertificates for NodeCertificates {
    fn shown(&self) -> Value {
        let mut all = [self.of_files(), self.of_orders(), self.of_upstreams()].concat();
        all.sort_by_key(|(not_after, _)| *not_after);
        json!({ "certificates": all.into_iter().map(|(_, shown)| shown).collect::<Vec<_>>() })
    }
}

/// Says when a certificate ends, in seconds since 1970, and how long that is.
fn end(shown: &mut Value, not_after: u64) {
    shown["not_after"] = shown_time(Wall(not_after.saturating_mul(SECOND))).into();
    shown["seconds_left"] = not_after.saturating_sub(wall().0 / SECOND).into();
}
