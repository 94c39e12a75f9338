//! A directive's scope: what it inherits from the blocks around it.

use super::files::Node;

/// The blocks around a place, from the outermost to the innermost.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope<'n> {
    levels: Vec<&'n [Node]>,
}

impl<'n> Scope<'n> {
    /// This scope with one more block.
    pub(super) fn within(&self, nodes: &'n [Node]) -> Self {
        Self { levels: self.levels.iter().copied().chain([nodes]).collect() }
    }

    /// Directives of this name: those of the innermost block that has one, as nginx inherits lists.
    pub(super) fn all(&self, name: &str) -> Vec<&'n Node> {
        let of = |nodes: &'n [Node]| nodes.iter().filter(|node| node.name == name).collect::<Vec<_>>();
        self.levels.iter().rev().map(|nodes| of(nodes)).find(|found| !found.is_empty()).unwrap_or_default()
    }

    /// The directive of this name that is in force.
    pub(super) fn one(&self, name: &str) -> Option<&'n Node> {
        self.all(name).first().copied()
    }

    /// Whether a flag is on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.one(name).is_some_and(|node| node.argument() == Some("on"))
    }

    /// The innermost block.
    pub(super) fn innermost(&self) -> &'n [Node] {
        self.levels.last().copied().unwrap_or_default()
    }
}
