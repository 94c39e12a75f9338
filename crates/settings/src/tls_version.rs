//! A version of TLS as a setting.

use serde_json::{Value as Json, json};
use tidegate_wire::tls_version::TlsVersion;

use crate::value::{TomlType, Value};

impl Value for TlsVersion {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];

    fn parse(text: &str, (): &()) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.name() == text)
    }

    fn accepted((): &()) -> String {
        Self::ACCEPTED.to_owned()
    }

    fn schema((): &()) -> Json {
        json!({ "enum": Self::ALL.map(Self::name) })
    }

    fn show(&self) -> String {
        self.name().to_owned()
    }
}
