//! The Redis store against real servers: exactness, and faults really produced.

mod exactness;
mod failover;
mod faults;
mod leases;
mod node;
mod security;
