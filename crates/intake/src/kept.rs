//! What is known of a batch once its lines are in the log.

use tidegate_log::Durability;

/// A batch that was kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// How many lines.
    pub(crate) lines: usize,
    /// How safe they are.
    pub(crate) durability: Durability,
    /// [`tidegate_log::Log::losses`] before they were kept.
    pub(crate) losses: u64,
}
