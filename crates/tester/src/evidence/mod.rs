//! Where evidence comes from: the kernel's files and sockets and the server's own page, around each step.
//!
//! What the figures mean is `tidegate_judge::diagnose`'s to say.

pub mod cgroup;
pub mod collect;
mod files;
pub mod machine;
pub mod network;
pub mod observed;
pub mod process;
pub(crate) mod processes;
pub mod prometheus;
pub mod sock_diag;
