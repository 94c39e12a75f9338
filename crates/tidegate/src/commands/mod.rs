//! The commands, one file each. A command writes to what it is given and returns an exit code.

pub mod check;
pub mod config;
pub mod decide;
pub mod serve;

/// Exit code of a configuration with mistakes.
pub const EXIT_MISTAKES: u8 = 2;
