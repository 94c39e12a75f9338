//! Why a request would go where it goes: which route and why not the others, under which limits, to which
//! server. Nothing is charged, sent or moved on. What the route does with it is in `explain/action.rs`.

mod action;

use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Method, Request, Uri};
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use crate::authentication::authenticate::StatedCredential;
use crate::authentication::identity::Identity;
use crate::config::{Auth, GatewayConfig};
use crate::limits::LimitedRequest;
use crate::response::refusal::Refusal;
use crate::routes::client_address::as_attribute;
use crate::routes::host::bare_host;
use crate::routes::route::Route;
use crate::routes::target::{TargetPath, settle};
use crate::service::Gateway;
use action::{ExplainedAction, before_limits, explained_action};

/// Most routes that an explanation names.
const MAX_CONSIDERED: usize = 1_000;

/// A request that somebody asks about.
#[derive(Clone, Debug)]
pub struct Question {
    /// Its method.
    pub method: Method,
    /// Its host, with or without a port.
    pub host: String,
    /// Its path, and its query if it has one.
    pub target: Uri,
    /// Its header fields.
    pub fields: HeaderMap,
    /// The client's address.
    pub client: IpAddr,
}

/// Why there is no answer.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Unanswerable(String);

/// What would become of a request.
#[derive(Debug, Serialize)]
pub struct Explanation {
    host: String,
    /// In normal form: what routes are compared with.
    path: String,
    client: String,
    /// The route that takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<String>,
    /// Every route, in the order in which they are looked at.
    considered: Vec<Considered>,
    /// Routes beyond those.
    #[serde(skip_serializing_if = "is_zero")]
    not_shown: usize,
    /// What is said of its API key or token, if its route asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<ExplainedKey>,
    /// A policy that the route lists and that is not in force, for which it is not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    lacks_policy: Option<String>,
    /// How much the route's requests matter, where some are refused when this process cannot keep up, and how many of a
    /// hundred are now.
    #[serde(skip_serializing_if = "Option::is_none")]
    shedding: Option<ExplainedShedding>,
    /// What the route's limits would say.
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Value>,
    /// What the route does with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<ExplainedAction>,
}

#[derive(Debug, Serialize)]
struct ExplainedShedding {
    priority: &'static str,
    refused_percent: u64,
}

/// The API key or token, or why the request has none that is good.
#[derive(Debug, Default, Serialize)]
struct ExplainedKey {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consumer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A route, and why it takes the request or not.
#[derive(Debug, Serialize)]
struct Considered {
    route: String,
    /// What it is for, as `tidegate check` shows it.
    matches: String,
    taken: bool,
    /// What of the request does not fit, or which route comes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    because_of: Option<String>,
}

impl Gateway {
    /// What would become of a request.
    ///
    /// # Errors
    /// When its path has more than one reading.
    pub async fn explain(&self, question: Question) -> Result<Explanation, Unanswerable> {
        let Question { method, host, target, fields, client } = question;
        let path = TargetPath::read(target.path()).map_err(|error| Unanswerable(error.to_string()))?;
        let host = bare_host(&host);
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = target;
        *request.headers_mut() = fields;
        let (mut parts, ()) = request.into_parts();
        let site = self.site_in_force();
        let found = site.route_for(&host, &path, &parts);
        let found = found.map_err(|refusal| Unanswerable(refusal.to_string()))?;
        let route = found.map(|position| Arc::clone(&site.routes[position]));
        let (considered, not_shown) = considered(&site.routes, &host, &path.normal, &parts, route.as_deref());
        // As a request's: what comes after this phase does not see the key.
        let stated =
            route.as_deref().and_then(|route| Some(route.config.auth.as_ref()?.take(&mut parts, false)));
        let settled = route.as_deref().map_or(Ok(()), |route| settle(&mut parts, &path, &route.config));
        settled.map_err(|refusal| Unanswerable(refusal.to_string()))?;
        let early = route.as_deref().and_then(|route| before_limits(&route.config, &parts, client));
        let asked = route.as_deref().filter(|_| early.is_none());
        let is_preflight = asked.is_some_and(|route| route.config.passes_preflight(&parts));
        let proved = asked.zip(stated);
        let proved = proved.and_then(|(route, stated)| self.explained_key(route, stated, is_preflight));
        let (proved, key) = proved.unzip();
        let identity = proved.as_ref().and_then(Option::as_ref);
        let limits = match asked {
            Some(route) if !route.config.policies.is_empty() => {
                let request = LimitedRequest {
                    route: &route.config.name,
                    method: parts.method.as_str(),
                    host: &host,
                    path: &path.normal,
                    other_path: path.other.as_deref(),
                    query: parts.uri.query().unwrap_or_default(),
                    client,
                    fields: &parts.headers,
                    tls_name: None,
                    identity,
                    is_preflight,
                    wants_verdicts: false,
                };
                Some(self.limits().explain(&route.config.policies, &request).await)
            }
            _ => None,
        };
        let later = asked.map(|route| explained_action(route, &parts, identity, client, self.tick()));
        let action = early.or(later);
        let lacks_policy = route.as_ref().and_then(|route| Some(route.lacks.as_ref()?.to_string()));
        let shedding = route.as_ref().and_then(|route| self.explained_shedding(route));
        let route = route.map(|route| route.config.name.to_string());
        let client = as_attribute(client);
        Ok(Explanation {
            host,
            path: path.normal,
            client,
            route,
            considered,
            not_shown,
            key,
            lacks_policy,
            shedding,
            limits,
            action,
        })
    }

    /// How much of such requests is refused now because the process is late, if it refuses any.
    fn explained_shedding(&self, route: &Route) -> Option<ExplainedShedding> {
        let (shedder, priority) = (self.shedder()?, route.config.priority);
        let refused_percent = (priority.refused(shedder.stats().level) * 100.0).round() as u64;
        Some(ExplainedShedding { priority: priority.word(), refused_percent })
    }

    /// The identity that a request proves on a route with authentication, and its explanation.
    fn explained_key(
        &self,
        route: &Route,
        stated: StatedCredential,
        is_preflight: bool,
    ) -> Option<(Option<Identity>, ExplainedKey)> {
        let auth = route.config.auth.as_ref()?;
        let (outcome, identity) =
            if is_preflight { ("a preflight is not asked", None) } else { self.judged(auth, route, stated) };
        let text = |read: fn(&Identity) -> Option<&str>| identity.as_ref().and_then(read).map(str::to_owned);
        let id = text(Identity::key);
        let subject = text(Identity::client).filter(|_| id.is_none());
        let (consumer, tier) = (text(Identity::consumer), text(Identity::tier));
        Some((identity, ExplainedKey { outcome, id, subject, consumer, tier }))
    }

    /// What is said of what a request proves, as far as that is known without its connection and without another service; and what it
    /// has proved so far.
    fn judged(
        &self,
        auth: &Auth,
        route: &Route,
        mut stated: StatedCredential,
    ) -> (&'static str, Option<Identity>) {
        let unseen = |way: &Auth| match way {
            Auth::Forward(_) => Some("another service is asked"),
            Auth::Certificate(_) => Some("the certificate of its connection is looked at"),
            _ => None,
        };
        let demanded = match auth.demanded(&mut stated) {
            Ok(demanded) => demanded,
            Err(refusal @ Refusal::NoCredential { .. }) => {
                return (auth.ways().iter().find_map(unseen).unwrap_or(refusal.word()), None);
            }
            Err(refusal) => return (refusal.word(), None),
        };
        let mut proved = Vec::new();
        for way in demanded.iter().filter(|way| unseen(way).is_none()) {
            match self.look(way, route, &mut stated) {
                Ok(identity) => proved.push(identity),
                Err(refusal) => return (refusal.word(), None),
            }
        }
        let outcome = demanded.iter().find_map(unseen).unwrap_or("accepted");
        (outcome, if proved.is_empty() { None } else { auth.identity(proved) })
    }
}

/// Every route in the order in which they are looked at, and how many were left out.
fn considered(
    routes: &[Arc<Route>],
    host: &str,
    path: &str,
    request: &Parts,
    taken: Option<&Route>,
) -> (Vec<Considered>, usize) {
    let configs = routes.iter().map(|route| Arc::clone(&route.config)).collect();
    let config = GatewayConfig { routes: configs, ..GatewayConfig::default() };
    let order = config.in_order();
    let is_taken = |name: &str| taken.is_some_and(|taken| *taken.config.name == *name);
    let mut found = false;
    let all = order.iter().map(|ranked| {
        let name = ranked.route.name.to_string();
        let mismatch = ranked.mismatch(host, path, request);
        let takes = !found && mismatch.is_none() && is_taken(&name);
        let because_of = mismatch.or_else(|| {
            let first = taken.filter(|_| found)?;
            Some(format!("route {:?} comes first", first.config.name))
        });
        found |= takes;
        Considered { route: name, matches: ranked.to_string(), taken: takes, because_of }
    });
    let mut all: Vec<Considered> = all.collect();
    let not_shown = all.len().saturating_sub(MAX_CONSIDERED);
    all.truncate(MAX_CONSIDERED);
    (all, not_shown)
}
