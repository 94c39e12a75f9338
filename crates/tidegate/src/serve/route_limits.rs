//! The limits of the gateway's routes, decided by the engine of the decision service.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate_algorithms::policy::{Mode, TIER};
use tidegate_gateway::limits::{
    Denial, Identity, LimitPermit, LimitedRequest, Limits, LimitsAnswer, PolicyVerdict, Ruling,
};
use tidegate_limiter::answers::Door;
use tidegate_limiter::decision::Decision;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::error::AskError;
use tidegate_limiter::http::quota_fields;
use tidegate_limiter::routed::{Proved, RoutedError, RoutedRequest};

use super::denials::denial;

/// The engine, as the gateway's limiter.
#[derive(Debug)]
pub(super) struct RouteLimits {
    pub(super) engine: Arc<Engine>,
    /// Whether replies also carry the fields that older clients read.
    pub(super) legacy_fields: bool,
}

impl<'r> Limits<LimitedRequest<'r>> for RouteLimits {
    fn charge<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        request: &'a LimitedRequest<'r>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(self.ruling(policies, request))
    }

    fn pass(&self, request: &LimitedRequest<'r>) {
        self.engine.answers().count_unlimited(Door::Gateway);
        // A candidate may list policies for its route.
        if self.engine.is_judged() && !request.is_preflight {
            self.engine.judge_unlimited(&routed(request, &attributes(request)));
        }
    }

    fn explain<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        request: &'a LimitedRequest<'r>,
    ) -> LimitsAnswer<'a, Value> {
        Box::pin(self.explanation(policies, request))
    }
}

impl RouteLimits {
    async fn ruling(&self, policies: &[Arc<str>], request: &LimitedRequest<'_>) -> Ruling {
        let attributes = attributes(request);
        let policies = self.about(policies, request);
        if policies.is_empty() {
            self.pass(request);
            return Ruling::default();
        }
        let denial = match self.engine.decide_routed(&policies, &routed(request, &attributes)).await {
            Ok((decision, hold)) => {
                let fields = quota_fields(&decision, self.legacy_fields);
                let verdicts = if request.wants_verdicts { verdicts(&decision) } else { Vec::new() };
                return Ruling {
                    denial: denial(&decision),
                    fields,
                    verdicts,
                    held: hold.map(LimitPermit::new),
                };
            }
            Err(RoutedError::Ask(AskError::Store(error))) => Denial::NoAnswer(error.to_string()),
            Err(error) => Denial::Invalid(error.to_string()),
        };
        Ruling { denial: Some(denial), ..Ruling::default() }
    }

    async fn explanation(&self, policies: &[Arc<str>], request: &LimitedRequest<'_>) -> Value {
        let attributes = attributes(request);
        let policies = self.about(policies, request);
        if policies.is_empty() {
            return Value::Null;
        }
        let explained = self.engine.explain_routed(&policies, &routed(request, &attributes)).await;
        explained.unwrap_or_else(|error| json!({ "error": error.to_string() }))
    }

    /// The policies of a route that a request is charged under. A preflight has no credentials and none of the application's
    /// fields, so that it is charged under those that need neither.
    fn about<'p>(&self, policies: &'p [Arc<str>], request: &LimitedRequest<'_>) -> Cow<'p, [Arc<str>]> {
        if request.is_preflight {
            Cow::Owned(self.engine.of_anyone(policies))
        } else {
            Cow::Borrowed(policies)
        }
    }
}

/// What a request has proved. A preflight has no tier, whatever it states.
fn attributes<'a>(request: &LimitedRequest<'a>) -> Vec<(&'a str, Option<&'a str>)> {
    match request.identity {
        Some(identity) => identity.attributes(),
        None if request.is_preflight => vec![(TIER, None)],
        None => Vec::new(),
    }
}

fn routed<'a>(
    request: &LimitedRequest<'a>,
    attributes: &'a [(&'a str, Option<&'a str>)],
) -> RoutedRequest<'a> {
    let &LimitedRequest {
        route,
        method,
        host,
        path,
        other_path,
        query,
        client,
        fields,
        tls_name,
        identity,
        is_preflight: _,
        wants_verdicts: _,
    } = request;
    let proved = Proved { client: identity.and_then(Identity::client), attributes };
    RoutedRequest { route, method, host, path, other_path, query, client, fields, tls_name, proved }
}

fn verdicts(decision: &Decision) -> Vec<PolicyVerdict> {
    let verdict = |part: &tidegate_limiter::decision::Part| PolicyVerdict {
        policy: Arc::clone(&part.policy),
        allowed: part.verdict.allowed,
        is_shadow: part.mode == Mode::Shadow,
        remaining: part.verdict.remaining,
    };
    decision.parts.iter().map(verdict).collect()
}
