//! Too much work: how much an upstream can take at once, and what a process refuses when it cannot keep up itself.

pub mod gradient;
pub mod shedding;
