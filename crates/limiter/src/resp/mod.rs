//! The decision service for clients of Redis: `CL.THROTTLE` and `THROTTLE` over RESP2 and RESP3.
//!
//! ```text
//!   accept -> server: bytes, deadlines, drain -> session: who it is -> batch -> AdHoc -> store
//!             one read, one write a pipeline     command by command    a pipeline's decisions together
//!                                                                      -> throttle: numbers, replies
//! ```
//!
//! | bound | default | what the client sees |
//! |---|---|---|
//! | an argument, a command, arguments | 64 KiB, 128 KiB, 64 | an error, and the connection ends |
//! | the same before AUTH | 4 KiB, 6 KiB, 8 | the same |
//! | a command's time from its first byte, the first one's from connecting | 10 s | the connection ends |
//! | time until AUTH, if a password is set | 10 s | the connection ends |
//! | wrong passwords on one connection | 8 | an error, and the connection ends |
//! | commands between MULTI and EXEC | 1,000 | an error, and EXEC runs none |
//! | time between commands | 300 s | the connection ends |
//! | replies that the peer does not read | 64 KiB, 10 s | the connection ends |
//! | bytes held for a connection, beyond 32 KiB; for all of them, `limits.buffered_bytes` | 2 MiB | an error, and the connection ends |
//!
//! RESP has no word for "go elsewhere", so a drain closes a connection where nothing is lost that the
//! protocol could have saved: between two commands. Clients reconnect, as they do when Redis restarts.
//!
//! A client needs a token with the scope `decide`, by AUTH or HELLO ([`tidegate_access::tokens`]). A reload that
//! takes a token away closes its connections to commands at once.
//!
//! MULTI, EXEC and DISCARD are there because clients' pipelines send them by default (redis-py does). The
//! commands run in their order, each atomic by itself; those of other clients may come between.
//!
//! Deliberately absent: data commands, databases other than 0, pub/sub, scripts, WATCH.

mod batch;
mod commands;
mod outcome;
mod server;
mod session;
mod shared;
mod throttle;
mod wait;

pub use commands::TEMPLATES;
pub use server::{RespConfig, Server};
