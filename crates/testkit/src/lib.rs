//! Real servers for tests: started on free ports in scratch folders, broken on purpose, killed on
//! drop. Only ever a dev-dependency.
//!
//! A failure to start is a panic that names the program: a test that needs Redis does not pass
//! without Redis.

pub mod certificates;
pub mod countries;
pub mod kafka;
pub mod pebble;
pub mod postgres;
mod process;
mod proxy;
pub mod redis;
pub mod series;

pub use process::{Server, free_port, freeze_all, thaw_all};
pub use proxy::SlowProxy;
pub use rustix::process::Signal;
