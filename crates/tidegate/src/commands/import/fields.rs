//! A map of the file whose keys are taken one by one; keys that were not taken are listed.

use std::sync::Arc;

use tidegate_wire::yaml::{Node, Position, Value};

use super::product::{Product, SourceLocation};

/// A map, and what of it is still to be taken.
pub(super) struct Fields<'y> {
    file: Arc<str>,
    place: Position,
    path: String,
    left: Vec<(&'y str, Position, &'y Node)>,
}

/// A value that was taken, and where it stands.
#[derive(Clone)]
pub(super) struct Taken<'y> {
    pub(super) node: &'y Node,
    pub(super) source: SourceLocation,
    pub(super) path: String,
}

impl<'y> Taken<'y> {
    /// The whole file.
    pub(super) fn root(node: &'y Node, file: &Arc<str>) -> Self {
        Self {
            node,
            source: SourceLocation { file: Arc::clone(file), place: node.place },
            path: String::new(),
        }
    }

    /// As a map; anything else is one without keys, and is listed.
    pub(super) fn fields(&self, product: &mut Product) -> Fields<'y> {
        let left = match &self.node.value {
            Value::Map(entries) => {
                entries.iter().map(|(name, place, node)| (name.as_str(), *place, node)).collect()
            }
            Value::Null => Vec::new(),
            Value::Text(_) | Value::List(_) => {
                product.lacks(&self.source, &self.path, "is no map");
                Vec::new()
            }
        };
        Fields {
            file: Arc::clone(&self.source.file),
            place: self.source.place,
            path: self.path.clone(),
            left,
        }
    }

    /// Its members; anything but a list has none, and is listed.
    pub(super) fn members(&self, product: &mut Product) -> Vec<Self> {
        let Value::List(nodes) = &self.node.value else {
            product.lacks(&self.source, &self.path, "is no list");
            return Vec::new();
        };
        let member = |(index, node): (usize, &'y Node)| Self {
            node,
            source: SourceLocation { place: node.place, ..self.source.clone() },
            path: format!("{}[{index}]", self.path),
        };
        nodes.iter().enumerate().map(member).collect()
    }

    pub(super) fn text(&self) -> Option<&'y str> {
        match &self.node.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.text()?.parse().ok()
    }

    pub(super) fn is_true(&self) -> bool {
        self.text() == Some("true")
    }

    /// `15s`, `0.25s`, as seconds.
    pub(super) fn seconds(&self) -> Option<serde_json::Value> {
        let text = self.text()?.strip_suffix('s')?;
        match text.parse::<u64>() {
            Ok(whole) => Some(whole.into()),
            Err(_) => text.parse::<f64>().ok().filter(|seconds| seconds.is_finite()).map(Into::into),
        }
    }
}

impl<'y> Fields<'y> {
    pub(super) fn source(&self) -> SourceLocation {
        SourceLocation { file: Arc::clone(&self.file), place: self.place }
    }

    /// Whether everything was taken.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Taken<'y>> {
        let index = self.left.iter().position(|(known, ..)| *known == name)?;
        let (_, place, node) = self.left.remove(index);
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Some(Taken { node, source: SourceLocation { file: Arc::clone(&self.file), place }, path })
    }

    pub(super) fn text(&mut self, name: &str) -> Option<&'y str> {
        self.take(name)?.text()
    }

    /// A list under a name, or nothing.
    pub(super) fn list(&mut self, name: &str, product: &mut Product) -> Vec<Taken<'y>> {
        self.take(name).map(|taken| taken.members(product)).unwrap_or_default()
    }

    /// A map under a name.
    pub(super) fn map(&mut self, name: &str, product: &mut Product) -> Option<Self> {
        self.take(name).map(|taken| taken.fields(product))
    }

    /// A time under a name, in seconds.
    pub(super) fn seconds(&mut self, name: &str, product: &mut Product) -> Option<serde_json::Value> {
        let taken = self.take(name)?;
        let seconds = taken.seconds();
        if seconds.is_none() {
            product.lacks(&taken.source, &taken.path, "is no time as in 15s");
        }
        seconds
    }

    /// All that was not taken, by its names.
    pub(super) fn rest(&mut self) -> Vec<(&'y str, Taken<'y>)> {
        let names: Vec<&'y str> = self.left.iter().map(|(name, ..)| *name).collect();
        names.into_iter().filter_map(|name| Some((name, self.take(name)?))).collect()
    }

    /// Lists the keys that were not taken: as without effect if they are in `ignored`.
    pub(super) fn end(mut self, ignored: &[&str], product: &mut Product) {
        for (name, taken) in self.rest() {
            if ignored.contains(&name) {
                product.differs(&taken.source, &taken.path, "has no counterpart, and is left out");
            } else {
                product.lacks(&taken.source, &taken.path, "is not understood here");
            }
        }
    }

    /// Lists the keys that were not taken as not understood.
    pub(super) fn end_strictly(self, product: &mut Product) {
        self.end(&[], product);
    }
}
