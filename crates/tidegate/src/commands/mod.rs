//! The commands, one file each. A command writes to what it is given and returns an exit code.

mod agents;
pub mod audit;
pub mod certificates;
pub mod check;
pub mod compare;
pub mod config;
pub mod decide;
pub mod doctor;
mod duration;
pub mod edge;
pub mod explain;
mod files;
pub mod gateway;
pub mod groups;
pub mod health;
pub mod import;
pub mod intake;
mod interleave;
pub mod keys;
mod layers;
pub mod load;
pub mod plan;
mod reach;
pub mod reference;
mod request;
pub mod revert;
mod sample;
pub mod saturate;
pub mod serve;
mod server;
mod signals;
pub mod stub;
mod terminal;
pub mod token;
pub mod top;

/// Exit code of a configuration with mistakes.
pub const EXIT_MISTAKES: u8 = 2;
/// Exit code of a request that was refused, with the reason printed.
pub const EXIT_REFUSED: u8 = 1;
/// Exit code when a check found something: a threshold was missed, a figure is worse, an objection was met.
pub const EXIT_FINDING: u8 = 3;
