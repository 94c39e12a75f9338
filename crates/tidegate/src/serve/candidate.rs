//! The gateway's candidate, as the admin API puts, shows and promotes it.

use std::sync::Arc;

use serde_json::Value;
use tidegate_admin::api::{Candidates, StoredCandidate};
use tidegate_algorithms::document::Mistake;
use tidegate_control::{Change, ChangeError, Parts};
use tidegate_gateway::documents::candidate::{self, ShownCandidate};

use super::proxies::ServedGateway;

/// The gateway, which judges it.
#[derive(Debug)]
pub(super) struct GatewayCandidate(pub(super) Arc<ServedGateway>);

impl Candidates for GatewayCandidate {
    fn read_toml(&self, file: &[u8]) -> Result<Value, Mistake> {
        let wrong = |problem: String| Mistake {
            pointer: String::new(),
            problem,
            accepted: "TOML with [[upstream]], [[route]] and [remove]".to_owned(),
        };
        let text = std::str::from_utf8(file).map_err(|_| wrong("is not text in UTF-8".to_owned()))?;
        toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            wrong(format!("is wrong in line {line}: {}", error.message()))
        })
    }

    fn proposed(&self, parts: &Parts, document: &Value) -> Result<Change, ChangeError> {
        candidate::proposed(parts, document)
    }

    fn promoted(&self, parts: &Parts) -> Result<Vec<Change>, ChangeError> {
        candidate::promoted(parts)
    }

    fn stored(&self, parts: &Parts) -> Option<StoredCandidate> {
        let ShownCandidate { revision, document, mistakes } = candidate::shown(parts)?;
        // A change that is being put in force may be here and not yet there.
        let judged = self.0.candidate().filter(|stats| stats.revision == revision.0);
        let judged = judged.map(|stats| stats.to_json());
        Some(StoredCandidate { revision, document, mistakes, judged })
    }
}
