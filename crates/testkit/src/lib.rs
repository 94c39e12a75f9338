//! Real servers for tests: started on free ports in scratch folders, broken on purpose, killed on
//! drop. Only ever a dev-dependency.
//!
//! A failure to start is a panic that names the program: a test that needs Redis does not pass
//! without Redis.

pub mod certificates;
pub mod countries;
pub mod kafka;
pub mod nginx;
pub mod pebble;
mod ports;
pub mod postgres;
mod process;
mod proxy;
pub mod redis;
mod resp;
pub mod series;

pub use ports::{free_port, free_ports};
pub use process::{Server, freeze_all, thaw_all};
pub use proxy::SlowProxy;
pub use rustix::process::Signal;

/// Says that a test cannot be run on this machine, past the harness, which hides what passes. `cargo xtask test` shows it in
/// its last lines, and fails where `CI` is set.
///
/// # Panics
/// If standard error is closed.
pub fn not_tested(test: &str, why: &str) {
    use std::io::Write;

    let line = format!("\nNOT TESTED {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
}
