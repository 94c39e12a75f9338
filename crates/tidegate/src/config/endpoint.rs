//! The settings that are URLs of places outside, which are sent something. A URL may hold a password or a token, so
//! one that was refused is not repeated where it may.

use serde_json::{Value as Json, json};
use tidegate_settings::value::{TomlType, Value};
use tidegate_upstream::endpoint::EndpointUrl;

/// Whether a URL that was refused may hold a password or a token.
fn may_hold_a_secret(url: &str) -> bool {
    url.contains(['@', '?'])
}

/// An endpoint that the intake sends to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookUrl(pub EndpointUrl);

impl Value for WebhookUrl {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];

    fn is_secret(text: &str) -> bool {
        may_hold_a_secret(text)
    }

    fn parse(text: &str, (): &()) -> Option<Self> {
        EndpointUrl::parse(text).map(Self)
    }

    fn accepted((): &()) -> String {
        EndpointUrl::ACCEPTED.to_owned()
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string" })
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// Where a collector is, beneath which its signals have paths of their own. It has no query, which would have no use
/// there, and which might hold a secret that is shown with the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl(pub EndpointUrl);

impl Value for CollectorUrl {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];

    fn is_secret(text: &str) -> bool {
        may_hold_a_secret(text)
    }

    fn parse(text: &str, (): &()) -> Option<Self> {
        EndpointUrl::parse(text).filter(|url| !url.has_query()).map(Self)
    }

    fn accepted((): &()) -> String {
        "a URL without a user, password and query: http://host:port or https://host/path; secrets belong in telemetry.headers".to_owned()
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string" })
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{File, Flags, load};

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

    #[test]
    fn a_variable_of_ours_comes_before_opentelemetrys_and_both_before_the_file() {
        let file = File {
            name: "t.toml",
            bytes: b"telemetry.endpoint = 'http://file:1'\ntelemetry.sample_ratio = 0.5",
        };
        let endpoint = |pairs: &[(&str, &str)]| {
            let environment = pairs.iter().copied().collect();
            let loaded = load(Some(file), &environment, &Flags::default()).unwrap();
            let telemetry = loaded.config.settings.telemetry;
            assert_eq!(telemetry.sample_ratio.value(), 0.5);
            telemetry.endpoint.unwrap().0.to_string()
        };
        let standard = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://standard:1");
        assert_eq!(endpoint(&[]), "http://file:1/");
        assert_eq!(endpoint(&[standard]), "http://standard:1/");
        assert_eq!(endpoint(&[standard, ("TIDEGATE_TELEMETRY_ENDPOINT", "http://ours:1")]), "http://ours:1/");
        let wrong = [("OTEL_TRACES_SAMPLER", "always_on")].into_iter().collect();
        let refused = load(None, &wrong, &Flags::default()).unwrap_err().to_string();
        assert!(
            refused.contains("OTEL_TRACES_SAMPLER") && refused.contains("a number from 0 to 1"),
            "{refused}"
        );
        for variable in ["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"] {
            let wrong = [(variable, "prometheus")].into_iter().collect();
            let refused = load(None, &wrong, &Flags::default()).unwrap_err().to_string();
            assert!(refused.contains("otlp, none") && !refused.contains("true"), "{refused}");
        }
        let unknown = [("OTEL_LOGS_EXPORTER", "otlp")].into_iter().collect();
        assert!(load(None, &unknown, &Flags::default()).unwrap().warnings.is_empty());
    }
}
