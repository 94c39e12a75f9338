//! RESP, the protocol of Redis clients: commands in, replies out, with no socket in sight.
//!
//! ```text
//!   command   bytes in any pieces  ->  Command (arguments that borrow the bytes), or an error value
//!   reply     values  ->  RESP2 or RESP3 bytes in a reused buffer
//! ```
//!
//! A command is an array of bulk strings, or a line of words (inline, for people with telnet). An
//! array within an array is an error, so the depth of what a client sends is 1 by construction;
//! numbers of arguments and bytes have limits, tighter before a client has said who it is (fault 55).
//!
//! Deliberately absent: reading replies (Tidegate is no client here), pub/sub and streamed types.
//! Reference: the Redis serialization protocol specification, versions 2 and 3.

mod command;
mod reply;

pub use command::{Command, CommandError, CommandLimits, Scanner};
pub use reply::{Encoder, Protocol};
