//! Listeners, the clock, timers and drain: everything that touches the operating system's network.

pub mod clock;
