//! The candidate, as the admin API puts, shows and promotes it: the gateway keeps it and judges its routes, the decision service
//! its policies.

use std::sync::Arc;

use serde_json::Value;
use tidegate_admin::api::{Candidates, StoredCandidate};
use tidegate_algorithms::document::Mistake;
use tidegate_control::{Change, ChangeError, Parts};
use tidegate_gateway::documents::candidate::{self, ShownCandidate};
use tidegate_gateway::service::Gateway;
use tidegate_limiter::candidate::CandidateLimits;
use tidegate_limiter::documents::Policies;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::policy_set::with_candidate;

/// The gateway and the engine, which judge it.
#[derive(Debug)]
pub(super) struct GatewayCandidate {
    pub(super) gateway: Arc<Gateway>,
    pub(super) engine: Arc<Engine>,
}

impl Candidates for GatewayCandidate {
    fn read_toml(&self, file: &[u8]) -> Result<Value, Mistake> {
        let wrong = |problem: String| Mistake {
            pointer: String::new(),
            problem,
            accepted: "TOML with [[policy]], [[upstream]], [[route]] and [remove]".to_owned(),
        };
        let text = std::str::from_utf8(file).map_err(|_| wrong("is not text in UTF-8".to_owned()))?;
        toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            wrong(format!("is wrong in line {line}: {}", error.message()))
        })
    }

    fn proposed(&self, parts: &Parts, document: &Value) -> Result<Change, ChangeError> {
        let policies = with_candidate(parts.of::<Policies>(), document).map_err(ChangeError::Mistakes);
        match policies {
            Ok(policies) => candidate::proposed(parts, document, |name| policies.policy(name).is_some()),
            // What the gateway says of the form is said first: it knows all keys.
            Err(mistakes) => candidate::proposed(parts, document, |_| true).and(Err(mistakes)),
        }
    }

    fn promoted(&self, parts: &Parts) -> Result<Vec<Change>, ChangeError> {
        candidate::promoted(parts)
    }

    fn stored(&self, parts: &Parts) -> Option<StoredCandidate> {
        let ShownCandidate { revision, document, mistakes } = candidate::shown(parts)?;
        // A change that is being put in force may be here and not yet there.
        let judged = self.gateway.candidate().filter(|stats| stats.revision == revision.0);
        let judged = judged.map(|stats| stats.to_json());
        let limits = self.engine.candidate_limits().filter(|limits| limits.revision == revision.0);
        let limits = limits.as_ref().map(CandidateLimits::to_json);
        let policies = parts.of::<Policies>().candidate_mistakes();
        let new = policies.iter().filter(|mistake| !mistakes.contains(mistake)).cloned();
        let mistakes = mistakes.iter().cloned().chain(new).collect();
        Some(StoredCandidate { revision, document, mistakes, judged, limits })
    }
}
