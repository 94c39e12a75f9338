//! The settings that are URLs of places outside, which are sent something. A URL may hold a password or a token, so
//! one that was refused is not repeated where it may.

use serde_json::{Value as Json, json};
use tidegate_upstream::endpoint::EndpointUrl;

use super::value::{TomlType, Value};

/// Whether a URL that was refused may hold a password or a token.
fn may_hold_a_secret(url: &str) -> bool {
    url.contains(['@', '?'])
}

/// An endpoint that the intake sends to.
impl Value for Option<EndpointUrl> {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];

    fn is_secret(text: &str) -> bool {
        may_hold_a_secret(text)
    }

    fn parse(text: &str, (): &()) -> Option<Self> {
        if text.is_empty() { Some(None) } else { EndpointUrl::parse(text).map(Some) }
    }

    fn accepted((): &()) -> String {
        EndpointUrl::ACCEPTED.to_owned()
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string" })
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "(none)".to_owned(), ToString::to_string)
    }
}

/// Where a collector is, beneath which its signals have paths of their own. It has no query, which would have no use
/// there, and which might hold a secret that is shown with the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl(pub EndpointUrl);

impl Value for Option<CollectorUrl> {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];

    fn is_secret(text: &str) -> bool {
        may_hold_a_secret(text)
    }

    fn parse(text: &str, (): &()) -> Option<Self> {
        if text.is_empty() {
            return Some(None);
        }
        EndpointUrl::parse(text).filter(|url| !url.has_query()).map(|url| Some(CollectorUrl(url)))
    }

    fn accepted((): &()) -> String {
        "a URL without a user, password and query: http://host:port or https://host/path; secrets belong in telemetry.headers".to_owned()
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string" })
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "(none)".to_owned(), |CollectorUrl(url)| url.to_string())
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Flags, load};

    #[test]
    fn fault_52_a_url_that_may_hold_a_secret_is_refused_and_not_repeated() {
        let refused = |variable: &str, text: &str| {
            let environment = [(variable, text)].into_iter().collect();
            load(None, &environment, &Flags::default()).unwrap_err().to_string()
        };
        let endpoint = "TIDEGATE_TELEMETRY_ENDPOINT";
        for text in ["http://a:4318/?token=canary", "https://u:canary@a", "http://a:canary?", "canary@"] {
            for variable in [endpoint, "OTEL_EXPORTER_OTLP_ENDPOINT"] {
                let said = refused(variable, text);
                assert!(!said.contains("canary") && said.contains("telemetry.headers"), "{said}");
            }
        }
        assert!(refused(endpoint, "http://a:4318/?").contains("is not acceptable (15 characters)"));
        assert!(refused(endpoint, "here").contains("here"));
        assert!(!refused("TIDEGATE_INTAKE_ALERT_WEBHOOK", "http://u:canary@a").contains("canary"));
    }
}
