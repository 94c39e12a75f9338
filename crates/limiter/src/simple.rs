//! The simple API's configuration as policies: `configure` puts the policy `default`, `configure-client` an override of it.
//! Its two numbers name no algorithm, so this file chooses one.

use serde_json::{Map, Value, json};
use tidegate_algorithms::limit::sliding_log::MAX_ENTRIES;
use tidegate_algorithms::policy::{Algorithm, Policy};
use tidegate_control::Change;
use tidegate_wire::bodies::ConfigureBody;

use crate::policy_set::{DEFAULT_POLICY, OVERRIDE, POLICY, PolicySet};

/// Gives the policy `default` these numbers.
#[must_use]
pub fn configure(set: &PolicySet, numbers: ConfigureBody) -> Change {
    Change::put(POLICY, DEFAULT_POLICY, configured(set, numbers).to_string())
}

/// The policy `default` with these numbers.
fn configured(set: &PolicySet, numbers: ConfigureBody) -> Value {
    let ConfigureBody { request_per_window: limit, window_seconds } = numbers;
    let policy = set.policy(DEFAULT_POLICY).map_or_else(Policy::default_per_client, |it| it.policy.clone());
    let mut document = policy.document();
    if let Some(fields) = document.as_object_mut() {
        // A burst that was the whole limit stays the whole limit.
        if fields.get("burst") == fields.get("limit") {
            fields.remove("burst");
        }
        fields.insert("limit".to_owned(), Value::from(limit));
        fields.insert("window_seconds".to_owned(), Value::from(window_seconds));
        let declared = set.file().policies.iter().find(|policy| *policy.name == *DEFAULT_POLICY);
        let declared = declared.map_or(Algorithm::SlidingLog, |policy| policy.quota.spec.algorithm);
        // The log keeps every request, so it has a bound; above it, the counter does. Back below it, what
        // the file says.
        let algorithm = match policy.quota.spec.algorithm {
            Algorithm::SlidingLog if limit > MAX_ENTRIES => "sliding_counter",
            Algorithm::SlidingCounter if declared == Algorithm::SlidingLog && limit <= MAX_ENTRIES => {
                "sliding_log"
            }
            _ => return document,
        };
        fields.insert("algorithm".to_owned(), Value::from(algorithm));
    }
    document
}

/// Gives a client these numbers of its own under the policy `default`.
#[must_use]
pub fn configure_client(set: &PolicySet, client: &str, numbers: ConfigureBody) -> Change {
    let ConfigureBody { request_per_window: limit, window_seconds } = numbers;
    let mut own = json!({"limit": limit, "window_seconds": window_seconds});
    let general = set.policy(DEFAULT_POLICY).map(|in_force| in_force.policy.quota.spec.algorithm);
    if limit > MAX_ENTRIES && matches!(general, Some(Algorithm::SlidingLog | Algorithm::SlidingCounter)) {
        own["algorithm"] = Value::from("sliding_counter");
    }
    let mut document = stored_limits(set, client);
    document.insert(DEFAULT_POLICY.to_owned(), own);
    Change::put(OVERRIDE, client, Value::Object(document).to_string())
}

/// Takes a client's own numbers under the policy `default` away; `None`: the client has no numbers of its own there.
#[must_use]
pub fn delete_client_config(set: &PolicySet, client: &str) -> Option<Change> {
    let mut document = stored_limits(set, client);
    document.remove(DEFAULT_POLICY).map(|_| match document.is_empty() {
        true => Change::delete(OVERRIDE, client),
        false => Change::put(OVERRIDE, client, Value::Object(document).to_string()),
    })
}

/// A client's numbers under the policy `default`, and whether they are its own.
#[must_use]
pub fn client_config(set: &PolicySet, client: &str) -> Option<(ConfigureBody, bool)> {
    let (quota, is_own) = set.client_quota(client, DEFAULT_POLICY)?;
    let (request_per_window, window_seconds) = (quota.spec.limit, quota.spec.stated_window_seconds());
    Some((ConfigureBody { window_seconds, request_per_window }, is_own))
}

/// A client's own limits by policy, empty if it has none.
fn stored_limits(set: &PolicySet, client: &str) -> Map<String, Value> {
    let stored = set.documents().get(OVERRIDE, client);
    stored.and_then(|document| serde_json::from_str(&document.body).ok()).unwrap_or_default()
}
