//! The facts of the machine that generated the load. Without them a figure cannot be compared.

use serde::{Deserialize, Serialize};

/// One machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Operating system and kernel.
    pub system: String,
    /// Processor model.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Open files that this process may have.
    pub descriptor_limit: u64,
    /// Local ports, lowest and highest.
    pub port_range: String,
}
