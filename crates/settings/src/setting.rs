//! One row of the table of all settings, which the program writes down.

use serde_json::Value as Json;

use crate::value::TomlType;

/// What the table knows of one setting.
#[derive(Debug)]
pub struct Setting {
    /// Its place in the file: `http.listen`.
    pub path: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// The default, as it would be written in the environment. Empty: none.
    pub default: &'static str,
    /// Whether it has a flag. Secrets have none, because flags show in `ps`.
    pub flag: bool,
    /// The types of TOML it may be written in.
    pub types: &'static [TomlType],
    /// What is accepted, in words.
    pub accepted: fn() -> String,
    /// What is accepted, as a JSON schema.
    pub schema: fn() -> Json,
}

impl Setting {
    /// The name of its environment variable.
    #[must_use]
    pub fn environment_name(&self) -> String {
        format!("TIDEGATE_{}", self.path.replace('.', "_").to_uppercase())
    }

    /// The variable of OpenTelemetry's that stands for the same.
    pub(crate) fn standard_variable(&self) -> Option<&'static str> {
        crate::telemetry::standard_variable(self.path)
    }

    /// The name of its flag, without the dashes; none for what must not show in `ps`.
    #[must_use]
    pub fn flag_name(&self) -> Option<String> {
        self.flag.then(|| self.path.replace(['.', '_'], "-"))
    }
}
