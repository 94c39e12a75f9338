//! The types of the intake's settings.

use std::fmt;

use serde_json::{Value as Json, json};
use tidegate_settings::choice;
use tidegate_settings::list::Item;
use tidegate_settings::telemetry::FRAMING_FIELDS;
use tidegate_settings::value::{TomlType, Value};

choice! {
    /// How safe a batch is when it is acknowledged.
    Acknowledge {
        /// In the queue to the disk.
        Memory = "memory",
        /// Given to the operating system.
        Written = "written",
        /// On the disk.
        Fsync = "fsync",
    }
}

choice! {
    /// What a batch costs under the intake's policies.
    IntakeCost {
        /// 1.
        Batches = "batches",
        /// 1 for each metric.
        Metrics = "metrics",
    }
}

choice! {
    /// What lines have in common that are in one partition.
    PartitionBy {
        /// Their client.
        Client = "client",
        /// Their name and tags.
        Series = "series",
    }
}

impl From<PartitionBy> for tidegate_intake::PartitionBy {
    fn from(by: PartitionBy) -> Self {
        match by {
            PartitionBy::Client => Self::Client,
            PartitionBy::Series => Self::Series,
        }
    }
}

impl From<Acknowledge> for tidegate_log::Durability {
    fn from(acknowledge: Acknowledge) -> Self {
        match acknowledge {
            Acknowledge::Memory => Self::Memory,
            Acknowledge::Written => Self::Written,
            Acknowledge::Fsync => Self::Fsync,
        }
    }
}

/// The name of a header field, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldName(http::HeaderName);

impl FieldName {
    /// The name as requests have it.
    #[must_use]
    pub fn name(&self) -> &http::HeaderName {
        &self.0
    }
}

/// Fields that say who somebody is and prove it: they are no names.
const SECRET_FIELDS: [http::HeaderName; 3] =
    [http::header::AUTHORIZATION, http::header::PROXY_AUTHORIZATION, http::header::COOKIE];

impl Value for FieldName {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];

    fn parse(text: &str, (): &()) -> Option<Self> {
        let name: http::HeaderName = text.parse().ok()?;
        let is_free = !SECRET_FIELDS.contains(&name) && !FRAMING_FIELDS.contains(&name);
        is_free.then(|| Self(name))
    }

    fn accepted((): &()) -> String {
        "the name of a header field, as in \"x-client\", that holds no secret and frames no message"
            .to_owned()
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string" })
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// The name of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyName(String);

impl fmt::Display for PolicyName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl Item for PolicyName {
    const ACCEPTED: &'static str = "names of policies, as in \"per-client\"";

    fn parse(text: &str) -> Option<Self> {
        Some(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_52_a_field_with_a_secret_names_no_client() {
        let parse = |text| <Option<FieldName> as Value>::parse(text, &());
        assert_eq!(parse("X-Client").map(|name| name.show()).as_deref(), Some("x-client"));
        for other in ["authorization", "Cookie", "transfer-encoding", "a b", "\u{e9}"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
