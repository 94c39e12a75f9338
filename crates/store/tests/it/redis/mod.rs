//! The Redis store against real servers: exactness, and faults really produced.

mod blind;
mod damaged;
mod exactness;
mod failover;
mod faults;
mod leases;
mod node;
mod outage;
mod security;
