//! The settings of the gateway's access log.

use std::path::PathBuf;

use serde_json::{Value as Json, json};
use tidegate_gateway::access_log::{AccessLogSettings, Destination, LineFormat as Format, SampleRule};

use super::list::Item;
use super::settings::AccessLog;
use super::value::{TomlType, Value, choice};

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

impl Item for SampleRule {
    const ACCEPTED: &'static str =
        "rules, as in \"health/2xx=0\", \"*/5xx=100\" or \"*/*=0.1\", in steps of 0.001 percent";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl AccessLog {
    /// The log that these ask for, if they do.
    pub(crate) fn wanted(&self) -> Option<AccessLogSettings> {
        let destination = match &self.to {
            LogPlace::Off => return None,
            LogPlace::Stdout => Destination::Stdout,
            LogPlace::File(path) => {
                Destination::File { path: path.clone(), max_bytes: self.max_bytes.0, keep: self.keep }
            }
        };
        let format = match self.format {
            LineFormat::Json => Format::Json,
            LineFormat::Combined => Format::Combined,
        };
        Some(AccessLogSettings { destination, format, rules: self.sample.clone() })
    }
}
