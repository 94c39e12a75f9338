//! The TCP edge: each connection goes to the best backend by its client's place, the backend's place and its load.
//!
//! ```text
//!   accept ─> PROXY header ─> TLS or server name ─> limits ────> place ──────────> connect ─> relay ──> account
//!             (if behind one)  (if configured)      policies of   where is it from?   up to 8    bytes both   counters,
//!                                                   the listener  affinity, score,    backends   ways, half-  log line
//!                                                                 a reserved place               close
//! ```
//!
//! The rules are functions in `algorithms::balance`, and what is known of a backend is in `upstream`; here are the
//! sockets, and what is in force. Backends come from the file, from the control store and by registration.
//!
//! Deliberately absent: HTTP (but for the registration API), UDP, files, and the limiter.

pub mod config;
pub mod decisions;
pub mod dns;
pub mod documents;
pub mod explain;
pub mod geo;
pub mod limits;
pub mod pops;
pub mod registration;
pub mod service;
pub mod stats;

mod accept;
mod affinity;
mod arrival;
mod backend;
mod checks;
mod direction;
mod listener;
mod own;
mod pacing;
mod pool;
mod reach;
mod relay;
mod session;
mod side;
mod site;
mod splice;
mod unsent;
