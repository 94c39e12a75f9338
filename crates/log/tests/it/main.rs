//! The log on the real disk and on one that fails.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod appending;
mod crashes;
mod damage;
mod disk;
mod failing;
mod fsync;
mod groups;
mod kill;
mod packing;
mod parts;
mod power;
mod retention;
mod slow;
mod support;
