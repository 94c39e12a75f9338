//! The edge's part of the file: what it declares, with its documents as they were written.

use std::sync::Arc;

use serde_json::Value;
use tidegate_algorithms::document::Mistake;
use tidegate_control::{Kind, LayeredDocument};

use super::{BACKEND, PLACE};
use crate::config::{self, BackendConfig, EdgeConfig, PlaceConfig};

/// What the file declares.
#[derive(Clone, Debug, Default)]
pub struct EdgeLayer {
    /// What its settings and lists end as.
    pub config: EdgeConfig,
    pub(super) backends: Vec<LayeredDocument<BackendConfig>>,
    pub(super) places: Vec<LayeredDocument<PlaceConfig>>,
}

impl EdgeLayer {
    /// What it declares: kind, name and document.
    #[must_use]
    pub fn documents(&self) -> Vec<(Kind, String, Value)> {
        let backend =
            |it: &LayeredDocument<BackendConfig>| (BACKEND, it.name.to_string(), (*it.document).clone());
        let place = |it: &LayeredDocument<PlaceConfig>| (PLACE, it.name.to_string(), (*it.document).clone());
        self.backends.iter().map(backend).chain(self.places.iter().map(place)).collect()
    }

    /// Checks what a file has under `[[edge.backend]]` and `[[edge.place]]`. A place has no name in the file: the API
    /// calls it by where it stands, which is no name that a stored one can have.
    ///
    /// # Errors
    /// As [`config::check`].
    pub fn check(backends: &[Value], places: &[Value]) -> Result<Self, Vec<Mistake>> {
        // The check keeps the order of the lists, and one mistake refuses all: so each document pairs with its checked form.
        let (checked_backends, checked_places) = config::check(backends, places)?;
        let backend = |(config, document): (&Arc<BackendConfig>, &Value)| {
            LayeredDocument::of_file(Arc::clone(&config.name), Arc::clone(config), document.clone())
        };
        let place = |(index, (config, document)): (usize, (&Arc<PlaceConfig>, &Value))| {
            let name = format!("file:{index}");
            let mut document = document.clone();
            document["name"] = name.clone().into();
            LayeredDocument::of_file(name.into(), Arc::clone(config), document)
        };
        Ok(Self {
            backends: checked_backends.iter().zip(backends).map(backend).collect(),
            places: checked_places.iter().zip(places).enumerate().map(place).collect(),
            config: EdgeConfig {
                backends: checked_backends,
                places: checked_places.into(),
                ..EdgeConfig::default()
            },
        })
    }
}
