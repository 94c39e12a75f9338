//! The engine of the configuration: it reads a file, the environment and flags into checked values, and names every mistake
//! with its place.
//!
//! ```text
//!   flags ──────────────┐
//!   environment ────────┤   Resolver             each value, and the layer that it came from
//!   file ──▶ Document ──┼──▶ (highest layer ──▶          and
//!     (tree with places)│     wins, all           Found: every mistake, with its place and what is accepted
//!   default of the row ─┘     are checked)
//! ```
//!
//! A [`setting::Setting`] is a row of the program's table. A [`value::Value`] is a type that a setting may have: it reads a
//! text, says what it accepts in words and as a JSON schema, and shows itself. A type of another crate is a setting by a type around
//! it, for which the program implements [`value::Value`] or [`list::Item`].
//!
//! Every input gives values or mistakes, and all of it is bounded: the file's size and nesting, the length of texts and lists,
//! the number of mistakes. A fuzz target needs no other crate of ours above it.
//!
//! Deliberately absent: the table itself, services and their listeners, the disk, the clock, a runtime.

pub mod document;
pub mod list;
pub mod mistake;
pub mod reference;
pub mod resolve;
pub mod secret;
pub mod setting;
pub mod table;
pub mod telemetry;
mod tls_version;
pub mod unknown;
pub mod value;
