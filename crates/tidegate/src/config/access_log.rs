//! The settings of the gateway's access log.

use std::fmt;
use std::path::PathBuf;

use serde_json::{Value as Json, json};
use tidegate_gateway::access_log::SampleRule;
use tidegate_settings::choice;
use tidegate_settings::list::Item;
use tidegate_settings::value::{TomlType, Value};

choice! {
    /// How lines of the access log look.
    LineFormat {
        /// One JSON object per line.
        Json = "json",
        /// Apache's combined format, with one more text.
        Combined = "combined",
    }
}

/// Where lines of the access log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPlace {
    /// Nowhere.
    Off,
    /// To standard output.
    Stdout,
    /// To a file.
    File(PathBuf),
}

impl Value for LogPlace {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];

    fn parse(text: &str, (): &()) -> Option<Self> {
        match text {
            "off" => Some(Self::Off),
            "stdout" => Some(Self::Stdout),
            path => PathBuf::parse(path, &()).map(Self::File),
        }
    }

    fn accepted((): &()) -> String {
        format!("\"off\", \"stdout\", or {}", PathBuf::accepted(&()))
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string", "minLength": 1 })
    }

    fn show(&self) -> String {
        match self {
            Self::Off => "off".to_owned(),
            Self::Stdout => "stdout".to_owned(),
            Self::File(path) => path.show(),
        }
    }
}

/// A rule of which share of some requests is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedShare(pub SampleRule);

impl fmt::Display for LoggedShare {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl Item for LoggedShare {
    const ACCEPTED: &'static str =
        "rules, as in \"health/2xx=0\", \"*/5xx=100\" or \"*/*=0.1\", in steps of 0.001 percent";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }
}
