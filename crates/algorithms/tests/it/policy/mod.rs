//! The policy parser: every mistake with its place, what is accepted, and that nothing panics.

mod accepted;
mod index;
mod mistakes;
mod totality;
