//! The decision service, as the admin API shows and changes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use tidegate_admin::api::{Answer, Denied, Limits, Near, OwnLimits, Pairs, Resettable, Usage};
use tidegate_algorithms::policy::Attributes;
use tidegate_control::{Edit, Revision};
use tidegate_limiter::documents::Policies;
use tidegate_limiter::engine::Engine;
use tidegate_limiter::http::{DecidedAttributes, Stated, problem_of};
use tidegate_limiter::policy_set::OVERRIDE;
use tidegate_limiter::simple;
use tidegate_wire::bodies::{ConfigureBody, LimitsBody};

/// The engine, as an operator sees it.
#[derive(Debug)]
pub(super) struct EngineLimits(pub(super) Arc<Engine>);

impl Limits for EngineLimits {
    fn clients(&self, after: &str, limit: usize) -> Vec<OwnLimits> {
        let set = self.0.set();
        let mut page: BTreeMap<&str, OwnLimits> = BTreeMap::new();
        let own =
            |client: &str| OwnLimits { client_id: client.to_owned(), limits: Map::new(), stored_at: None };
        for (client, policy, numbers) in set.file().overrides.iter().filter(|(client, ..)| **client > *after)
        {
            let entry = page.entry(client).or_insert_with(|| own(client));
            entry.limits.insert(policy.clone(), numbers.clone());
        }
        for document in set.documents().after(OVERRIDE, after).take(limit) {
            let entry = page.entry(&document.name).or_insert_with(|| own(&document.name));
            // Invariant: only documents that parse are stored.
            let stored: Map<String, Value> = serde_json::from_str(&document.body).unwrap_or_default();
            entry.limits.extend(stored);
            entry.stored_at = Some(document.revision);
        }
        page.into_values().take(limit).collect()
    }

    fn denied_clients(&self) -> Vec<Denied> {
        let now = self.0.clock().tick();
        let denied = self.0.denied_clients().list(now).into_iter().map(|denied| Denied {
            client_id: text(&denied.client),
            denied: denied.denied,
            error: denied.error,
            policy: denied.policy,
            attributes: denied.attributes,
            seen_ms_ago: now.since(denied.seen) / 1_000_000,
            last_minute: denied.last_minute.map(|count| (count.allowed, count.denied)),
        });
        denied.collect()
    }

    fn nearest_clients(&self) -> Vec<Near> {
        let now = self.0.clock().tick();
        let near = self.0.nearest_clients().list(now).into_iter().map(|near| Near {
            client_id: text(&near.client),
            policy: near.policy,
            mode: near.mode,
            limit: near.limit,
            remaining: near.remaining,
            seen_ms_ago: now.since(near.seen) / 1_000_000,
        });
        near.collect()
    }

    fn hidden_policies(&self) -> Vec<(Arc<str>, Revision)> {
        let set = self.0.set();
        set.hidden().map(|(policy, revision)| (policy.name.clone(), revision)).collect()
    }

    fn explain<'a>(
        &'a self,
        attributes: Pairs<'a>,
        cost: u64,
        listed: usize,
        limits: Option<&'a LimitsBody>,
    ) -> Answer<'a, Value> {
        Box::pin(async move {
            let read = DecidedAttributes::new(&self.0.set(), &Attributes::new(attributes), limits.is_some());
            let pairs = read.pairs();
            let attributes = Attributes::new(&pairs);
            let explained = match limits {
                Some(limits) => self.0.explain_with(attributes, cost, listed, limits).await?,
                None => {
                    let explained = self.0.explain(attributes, cost, listed).await;
                    explained.map_err(|error| problem_of(&error, Stated::Flat))?
                }
            };
            // Invariant: plain structs with string keys always serialise.
            Ok(serde_json::to_value(explained).unwrap_or_default())
        })
    }

    fn reset<'a>(&'a self, usage: &'a Usage<'a>) -> (Resettable, Answer<'a, ()>) {
        // One set reads the attributes, finds the counters and resets them: the next one may look at the path for the first time.
        let set = self.0.set();
        let read = DecidedAttributes::new(&set, &Attributes::new(usage.attributes), false);
        let found = self.0.resettable(&set, &Attributes::new(&read.pairs()), usage.policy);
        let resetting: Answer<'a, ()> = Box::pin(async move {
            let pairs = read.pairs();
            let reset = self.0.reset(&set, &Attributes::new(&pairs), usage.policy).await;
            reset.map(drop).map_err(|error| problem_of(&error, Stated::Body))
        });
        (Resettable { reset: found.reset, not_reset: found.not_reset }, resetting)
    }

    fn client_config(&self, client_id: &str) -> Option<(ConfigureBody, bool)> {
        simple::client_config(&self.0.set(), client_id)
    }

    fn configure(&self, numbers: ConfigureBody) -> Edit {
        Box::new(move |parts| Ok(Some(simple::configure(parts.of::<Policies>(), numbers))))
    }

    fn configure_client(&self, client_id: &str, numbers: ConfigureBody) -> Edit {
        let client = client_id.to_owned();
        Box::new(move |parts| Ok(Some(simple::configure_client(parts.of::<Policies>(), &client, numbers))))
    }

    fn delete_client_config(&self, client_id: &str) -> Edit {
        let client = client_id.to_owned();
        Box::new(move |parts| Ok(simple::delete_client_config(parts.of::<Policies>(), &client)))
    }
}

fn text(client: &[u8]) -> String {
    String::from_utf8_lossy(client).into_owned()
}
