//! Certificates that are ordered by ACME (RFC 8555), for the listeners of gateway and edge.
//!
//! ```text
//!   acme.names --due?--> lease --order--> challenge --> certificate ----> in force at this node's listeners
//!                          |                 |              |
//!                          '------- control's secrets ------'
//!                                            |  looked at every second by the other nodes
//!                                            '--> their answers to the authority, their listeners
//! ```
//!
//! Only names of the configuration are ordered, each for itself; what clients ask for never is. One node orders a name
//! at a time: it takes a lease, and the others show the authority what it has to be shown, since a load balancer may
//! send the authority to any of them.
//!
//! A certificate is renewed after about two thirds of its life, a little earlier or later at random. What fails is tried
//! again later and later; the certificate that is there is shown meanwhile, for as long as it lasts. How often it has
//! failed, and when it is tried again, is stored too, so that a process that restarts again and again does not use up
//! what the authority allows.
//!
//! Private keys and accounts are secrets of the control store: in no document, no reply of an API, no audit row, no log.
//!
//! Bounds: [`LEASE`] for an order, one order at a time at a node, what a directory may say (`directory.rs`).
//!
//! Deliberately absent: DNS-01, and with it wildcards; names that clients ask for; revocation; ARI (RFC 9773).

mod acme;
mod challenge;
mod directory;
mod entry;
mod error;
mod known;
mod order;

pub use acme::{Acme, AcmeConfig, CertificateStatus, OrderCounts};
pub use challenge::{ChallengeKind, HttpChallenges};
pub use entry::LEASE;
