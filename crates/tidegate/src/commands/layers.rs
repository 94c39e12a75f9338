//! The layers of policies as a server would put them on one another here, for commands that only look.

use std::sync::Arc;

use tidegate_control::{Control, Origin, Place, SetAside, Snapshot};
use tidegate_edge::documents::EdgeSet;
use tidegate_gateway::config::RouteConfig;
use tidegate_gateway::documents::Routing;
use tidegate_limiter::policy_set::PolicySet;
use tidegate_limiter::tally::Tallies;

use crate::config::{Config, Settings};

/// The policies of the file and of the control store together.
pub(super) struct Layers {
    /// The set that would be in force.
    pub(super) set: PolicySet,
    /// Why it lacks what is stored.
    pub(super) unknown: Option<String>,
    /// The routes and upstreams that would be.
    routing: Routing,
    /// The backends and places of the edge that would be.
    edge: EdgeSet,
}

impl Layers {
    /// Looks at what is stored, and owns nothing of it: a server may be at work there.
    pub(super) fn of(config: &Config) -> Self {
        let (stored, unknown) = match stored(&config.settings) {
            Ok(stored) => (stored, None),
            Err(error) => (Snapshot::default(), Some(error)),
        };
        let routing = Routing::assemble(Arc::new(config.gateway.clone()), &stored);
        let edge = EdgeSet::assemble(Arc::new(config.edge.clone()), &stored);
        let set = PolicySet::assemble(Arc::new(config.layer.clone()), stored, &Tallies::default());
        Self { set, unknown, routing, edge }
    }

    /// The routes that would be in force.
    pub(super) fn routes(&self) -> Vec<Arc<RouteConfig>> {
        self.routing.config().routes
    }

    /// What of the configuration would not be in force, a line each.
    pub(super) fn warnings(&self) -> Vec<String> {
        let unknown = self.unknown.iter().map(|error| format!("what is stored is not known: {error}"));
        let aside = self.set.set_aside().map(|document| {
            let mistakes: Vec<_> = document.mistakes.iter().map(ToString::to_string).collect();
            let (kind, name) = (document.kind, document.name);
            format!("the stored {kind} {name:?} is set aside: {}", mistakes.join("; "))
        });
        let said = |document: &SetAside| {
            let mistakes: Vec<_> = document.mistakes.iter().map(ToString::to_string).collect();
            let whose = if document.revision.is_some() { "stored" } else { "file's" };
            let (kind, name) = (document.kind, &document.name);
            format!("the {whose} {kind} {name:?} is set aside: {}", mistakes.join("; "))
        };
        let routing = self.routing.set_aside().iter().chain(self.edge.set_aside()).map(said);
        let lacking = self.routing.config().routes.into_iter().filter_map(|route| {
            let policy = route.policies.iter().find(|policy| self.set.policy(policy).is_none())?;
            Some(format!(
                "route {:?} lists policy {policy:?}, which is not there: it is served as gateway.on_missing_policy says",
                route.name
            ))
        });
        let hidden = self.set.hidden().map(|(policy, revision)| {
            let name = &policy.name;
            format!(
                "policy {name:?} of the file has no effect: the one stored at revision {revision} is in force"
            )
        });
        unknown.chain(aside).chain(routing).chain(lacking).chain(hidden).collect()
    }

    /// Name, numbers and layer of each policy in force.
    pub(super) fn rows(&self) -> Vec<[String; 3]> {
        let hidden: Vec<_> = self.set.hidden().map(|(policy, _)| policy.name.clone()).collect();
        let row = |in_force: &tidegate_limiter::policy_set::InForce| {
            let policy = &in_force.policy;
            let numbers = serde_json::to_string(&policy.quota.spec).unwrap_or_default();
            let layer = match in_force.origin {
                Origin::BuiltIn => "built in".to_owned(),
                Origin::File => "file".to_owned(),
                Origin::Stored(revision) if hidden.contains(&policy.name) => {
                    format!("stored at revision {revision}, hides the file's")
                }
                Origin::Stored(revision) => format!("stored at revision {revision}"),
            };
            [policy.name.to_string(), numbers, layer]
        };
        self.set.policies().iter().map(row).collect()
    }
}

fn stored(settings: &Settings) -> Result<Snapshot, String> {
    let Some(url) = settings.control_url() else {
        return Control::look(&settings.data_dir).map_err(|error| error.to_string());
    };
    let place = Place::parse(url.expose()).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(Control::look_at(&place)).map_err(|error| error.to_string())
}
