//! The gateway's documents, checked: what `[[upstream]]` and `[[route]]` of a file end as.
//!
//! Reading is total: any tree of values gives a configuration or the list of everything wrong with it.
//! References are checked here too, so that what comes out of [`GatewayConfig::check`] can be served.

mod action;
mod auth;
mod candidate;
mod certificate;
mod check;
mod fixed;
mod forward_auth;
mod jwt;
mod matches;
mod options;
mod pairs;
mod part;
mod redirect;
mod reference;
mod rewrite;
mod route;
mod route_keys;
mod servers;
mod split;
mod upstream;
mod upstream_keys;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::document::{MAX_MISTAKES, Mistake};

pub use crate::forwarding::fields::FieldEdits;
pub use crate::routes::cors::Cors;
use crate::routes::table::unreachable;
pub use action::{Action, StaticReply};
pub use auth::{Auth, KeyAuth, KeyPlace};
pub use candidate::CandidateConfig;
pub use certificate::CertificateAuth;
pub use check::{CheckConfig, Probe};
pub use forward_auth::{CachedBy, ForwardAuth};
pub(crate) use jwt::TokenPlace;
pub use jwt::{JwtAuth, JwtKeysFrom, JwtKeysUrl};
pub use matches::{HostPattern, PathPattern, Segment};
pub use options::Maintenance;
pub use redirect::{Location, Redirect};
pub use reference::{DocumentKey, Shape, rows, schema};
pub use rewrite::{EncodedSlash, Slashes};
pub use route::RouteConfig;
pub(crate) use route::read as read_route;
pub use route_keys::ROUTE_KEYS;
pub(crate) use servers::Source;
pub use servers::{Protocol, ServerConfig};
#[cfg(test)]
pub(crate) use split::SplitShare;
pub use split::{MirrorConfig, SplitConfig, StickyBy};
pub(crate) use upstream::AdaptiveConfig;
pub(crate) use upstream::read as read_upstream;
pub use upstream::{BalanceKey, RegisteredServers, RetryConfig, UpstreamConfig};
pub use upstream_keys::UPSTREAM_KEYS;

/// Most upstreams of a gateway.
pub const MAX_UPSTREAMS: usize = 10_000;

/// Most routes of a gateway.
pub const MAX_ROUTES: usize = 10_000;

/// What a gateway serves.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayConfig {
    /// Where requests can go, in the order of the file.
    pub upstreams: Vec<Arc<UpstreamConfig>>,
    /// Which requests go where.
    pub routes: Vec<Arc<RouteConfig>>,
    /// Policies that routes list and that are not in force.
    pub missing_policies: HashSet<Arc<str>>,
    /// What is judged beside them.
    pub candidate: Option<Arc<CandidateConfig>>,
}

impl GatewayConfig {
    /// Checks the documents of upstreams and routes. `policies` are the names that a route may list.
    ///
    /// # Errors
    /// Every mistake found, at most [`MAX_MISTAKES`], with pointers that begin with `/upstream/N` and
    /// `/route/N`.
    pub fn check(upstreams: &[Value], routes: &[Value], policies: &[&str]) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        // Upstreams with mistakes count, too: a route to one of them is not wrong for that.
        let named: HashSet<&str> =
            upstreams.iter().filter_map(|upstream| upstream.get("name")?.as_str()).collect();
        let listable: HashSet<&str> = policies.iter().copied().collect();
        let upstreams = each("upstream", upstreams, MAX_UPSTREAMS, &mut mistakes, |value, pointer| {
            upstream::read(value, pointer, Source::File)
        });
        let routes = each("route", routes, MAX_ROUTES, &mut mistakes, |value, pointer| {
            route::read(value, pointer, Source::File)
        });
        unique("upstream", upstreams.iter().map(|(at, it)| (*at, &*it.name)), &mut mistakes);
        unique("route", routes.iter().map(|(at, it)| (*at, &*it.name)), &mut mistakes);
        for (at, route) in &routes {
            let unknown = route.upstreams().filter(|(_, name)| !named.contains(&***name));
            mistakes.extend(unknown.map(|(key, name)| Mistake {
                pointer: format!("/route/{at}/{key}"),
                problem: format!("is {name:?}, which is not the name of an upstream"),
                accepted: some(&named, "the name of an [[upstream]]"),
            }));
            for (index, name) in route.policies.iter().enumerate() {
                if !listable.contains(&**name) {
                    mistakes.push(Mistake {
                        pointer: format!("/route/{at}/policies/{index}"),
                        problem: format!("is {name:?}, which is no policy that a route can list"),
                        accepted: some(&listable, "the name of a policy"),
                    });
                }
            }
        }
        if mistakes.is_empty() {
            let configs: Vec<&RouteConfig> = routes.iter().map(|(_, route)| route).collect();
            mistakes.extend(unreachable(&configs).into_iter().map(|(at, first)| Mistake {
                pointer: format!("/route/{at}"),
                ..never_matches(&configs[first].name)
            }));
        }
        mistakes.truncate(MAX_MISTAKES);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        Ok(Self {
            upstreams: upstreams.into_iter().map(|(_, it)| Arc::new(it)).collect(),
            routes: routes.into_iter().map(|(_, it)| Arc::new(it)).collect(),
            ..Self::default()
        })
    }

    /// One route for everything, to these servers: what a gateway without a file serves. They are checked by connections,
    /// so that the breaker's pause ends a second after a server has come back.
    ///
    /// # Errors
    /// What is wrong with the servers' URLs.
    pub fn reverse_proxy(servers: &[String]) -> Result<Self, Vec<Mistake>> {
        let check = serde_json::json!({"interval_seconds": 1, "rise": 1});
        let upstream = serde_json::json!({"name": "upstream", "servers": servers, "check": check});
        let route = serde_json::json!({"name": "everything", "upstream": "upstream"});
        Self::check(&[upstream], &[route], &[])
    }
}

/// What is wrong with a route behind `first`, which takes the same requests.
pub(crate) fn never_matches(first: &str) -> Mistake {
    Mistake {
        pointer: String::new(),
        problem: format!("can never match: route {first:?} takes the same requests first"),
        accepted: "another host, path, method, header, cookie or query".to_owned(),
    }
}

/// Names that would be right, as many as a line takes; `otherwise` what they would be names of.
fn some(names: &HashSet<&str>, otherwise: &str) -> String {
    const MOST: usize = 20;
    let mut sorted: Vec<&str> = names.iter().copied().collect();
    sorted.sort_unstable();
    let more = sorted.len() > MOST;
    sorted.truncate(MOST);
    match (sorted.is_empty(), more) {
        (true, _) => otherwise.to_owned(),
        (false, true) => format!("{}, ...", sorted.join(", ")),
        (false, false) => sorted.join(", "),
    }
}

fn each<T>(
    list: &str,
    values: &[Value],
    most: usize,
    mistakes: &mut Vec<Mistake>,
    read: impl Fn(&Value, &str) -> Result<T, Vec<Mistake>>,
) -> Vec<(usize, T)> {
    if values.len() > most {
        let problem = format!("is one of {}", values.len());
        mistakes.push(Mistake {
            pointer: format!("/{list}/{most}"),
            problem,
            accepted: format!("at most {most}"),
        });
    }
    let mut good = Vec::new();
    for (index, value) in values.iter().take(most).enumerate() {
        match read(value, &format!("/{list}/{index}")) {
            Ok(read) => good.push((index, read)),
            Err(found) => mistakes.extend(found),
        }
    }
    good
}

fn unique<'n>(list: &str, names: impl Iterator<Item = (usize, &'n str)>, mistakes: &mut Vec<Mistake>) {
    let mut first: HashMap<&str, usize> = HashMap::new();
    for (at, name) in names {
        if let Some(other) = first.insert(name, at) {
            mistakes.push(Mistake {
                pointer: format!("/{list}/{at}/name"),
                problem: format!("is {name:?}, as is {list}[{other}]"),
                accepted: "a name of its own".to_owned(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
