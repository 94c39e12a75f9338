//! A connection's life, once for everything that is spoken on one.
//!
//! ```text
//!   listeners ─> accept ─> TLS, if there is ─> ServeConnection ────────────> end
//!     serve      permit    handshake, ALPN     waits end by a LazyTimer      half_close: the last word
//!                                              a drain's Sweep ends idle     arrives, or time is up
//! ```
//!
//! What a wait is for, and how long it may take, is the protocol's. A connection holds its permit and its place
//! in the drain's count in [`crate::accept::Held`], until its protocol drops that.

mod linger;
mod serve;
mod sweep;
mod tasks;
mod timer;

pub(crate) use linger::Linger;
pub use linger::half_close;
pub use serve::{Peer, ServeConnection, serve};
pub use sweep::Sweep;
pub use tasks::Tasks;
pub use timer::LazyTimer;
