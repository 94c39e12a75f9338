//! The policy parser: every mistake with its place, what is accepted, and that nothing panics.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod accepted;
mod index;
mod mistakes;
mod totality;
