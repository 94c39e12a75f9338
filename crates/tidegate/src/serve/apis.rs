//! The HTTP API: the decision API and the admin API behind one guard, on one listener.

use std::sync::Arc;

use tidegate_access::guard::Guard;
use tidegate_access::openapi;
use tidegate_access::origins::TrustedOrigins;
use tidegate_access::routes::{Api, ApiRoutes};
use tidegate_admin::api::Explainers;
use tidegate_admin::{Operator, api as admin};
use tidegate_control::Configuration;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::http::{ApiSettings, Decisions, Service, described};

use super::edges::{EdgeDecisions, ExplainedEdge, ServedEdge};
use super::explain_route::ExplainedRoutes;
use super::limits::EngineLimits;
use super::proxies::ServedGateway;
use super::routes::{FIRST_API_ROUTE, Routes, names};
use super::tokens::ListenerTokens;
use super::whole;
use crate::config::Settings;

/// What HTTP requests are answered with.
pub(super) struct Apis {
    guard: Arc<Guard>,
    decisions: Decisions,
    routes: ApiRoutes,
}

impl Apis {
    pub(super) fn new(
        settings: &Settings,
        engine: &Arc<Engine>,
        configuration: &Configuration,
        (gateway, edge): (&Arc<ServedGateway>, &Arc<ServedEdge>),
        tokens: &ListenerTokens,
    ) -> Self {
        let guard = Arc::new(Guard { tokens: tokens.http.clone(), origins: origins(settings) });
        let decisions = Decisions::new(engine.clone(), guard.clone(), api_settings(settings));
        let limits = Arc::new(EngineLimits(engine.clone()));
        let explainers = Explainers {
            routes: Some(Arc::new(ExplainedRoutes(gateway.clone()))),
            edge: Some(Arc::new(ExplainedEdge(edge.clone()))),
            edge_decisions: Some(Arc::new(EdgeDecisions(edge.clone()))),
        };
        let admin_routes = admin::routes(&guard, configuration.clone(), limits, explainers);
        let [documents, others] = admin::described();
        let document = openapi::document([described(), documents, others]);
        let routes = decisions.routes().with(admin_routes).with(openapi::routes(document, &guard));
        Self { guard, decisions, routes }
    }

    /// The names of the routes, for metrics.
    pub(super) fn names(&self) -> Vec<&'static str> {
        names(&self.routes)
    }

    /// What answers on the listener, with the operator's pages.
    pub(super) fn serve(self, settings: &Settings, operator: Operator) -> Routes {
        let names = self.names();
        let api = Api::new(self.routes, self.guard, FIRST_API_ROUTE, whole(settings.limits.body_bytes));
        Routes::new(Service::new(self.decisions, api), Arc::new(operator), names)
    }
}

fn origins(settings: &Settings) -> TrustedOrigins {
    let http = &settings.http;
    TrustedOrigins {
        hosts: http.allowed_hosts.iter().map(ToString::to_string).collect(),
        cors: http.cors_origins.iter().map(ToString::to_string).collect(),
    }
}

/// What the decision API needs to know beside the engine.
fn api_settings(settings: &Settings) -> ApiSettings {
    let http = &settings.http;
    ApiSettings {
        trusted_hops: usize::try_from(http.trusted_proxy_hops).unwrap_or(usize::MAX),
        proxy_headers: http.proxy_headers.into(),
        legacy_headers: http.legacy_headers,
    }
}
