//! The declarations of a configuration file, as one value that may be kept and compared: settings as they are shown, without secrets,
//! and the documents of all services.
//!
//! Not in it: tokens, listeners, and the lists of the intake. That they changed is known from the digest of the file's bytes.

use serde_json::{Map, Value};

use super::{Loaded, Origin};

impl Loaded {
    /// The file's name and the digest of its bytes; `None` without a file.
    #[must_use]
    pub fn read_from(&self) -> Option<(&str, String)> {
        let hex = self.digest?.iter().map(|byte| format!("{byte:02x}")).collect();
        Some((self.file.as_deref()?, hex))
    }

    /// Each setting and document that the file declares: `{"setting": {path: value}, "policy": {name: document}, ...}`.
    #[must_use]
    pub fn declared(&self) -> Value {
        let mut declared = Map::new();
        let mut add = |kind: &str, name: &str, value: Value| {
            let of_kind = declared.entry(kind).or_insert_with(|| Value::Object(Map::new()));
            of_kind[name] = value;
        };
        for (path, value) in self.config.settings.show() {
            if matches!(self.origin(path), Origin::File(..)) {
                add("setting", path, value.into());
            }
        }
        let documents = self.config.layer.documents().into_iter();
        let documents = documents.chain(self.config.gateway.documents()).chain(self.config.edge.documents());
        for (kind, name, document) in documents {
            add(kind.as_str(), &name, document);
        }
        Value::Object(declared)
    }
}
