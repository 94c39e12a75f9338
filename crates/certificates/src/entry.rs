//! The entry of a name, stored as a secret of the control store: its certificate, the order that is under way, and how
//! often orders have failed. Its lease is the moment before which no node begins an order: a node that begins one sets it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_algorithms::random::Random;
use tidegate_net::clock::wall;
use tidegate_net::tls::{NamedPair, NamedPairError};
use tidegate_wire::x509::Validity;

use crate::challenge::Challenge;

/// When a certificate is renewed: after this part of its life, at the earliest, and after [`SPREAD`] of it more at the
/// latest.
const RENEWED_AFTER: f64 = 0.62;
const SPREAD: f64 = 0.05;

/// How long a node has for an order before another one may begin it.
pub const LEASE: Duration = Duration::from_secs(150);

/// Longest that an order may take, so that it is over before the lease.
pub(crate) const ORDER: Duration = Duration::from_secs(120);

pub(crate) fn now() -> u64 {
    wall().0 / 1_000_000_000
}

/// What is stored of a name.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StoredName {
    /// The certificate, if there is one.
    pub(crate) issued: Option<Issued>,
    /// What the authority is shown for the order that is under way.
    pub(crate) challenge: Option<Challenge>,
    /// Orders that failed since the last that did not.
    pub(crate) failures: u32,
    /// Why the last one failed.
    pub(crate) problem: String,
    /// When the next one may begin, in seconds since 1970. While one is under way, that is when its lease ends.
    pub(crate) retry_at: u64,
}

/// A certificate and its key, in PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Issued {
    pub(crate) fn pair(&self) -> Result<NamedPair, NamedPairError> {
        NamedPair::from_pem(&self.certificate, &self.key)
    }
}

/// When the certificate of `name` is renewed: the same moment at all nodes, and another one for each name.
pub(crate) fn renewed_at(name: &str, validity: Validity) -> u64 {
    let life = validity.not_after.saturating_sub(validity.not_before);
    let seed = name.bytes().fold(validity.not_after, |seed, byte| {
        seed.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(byte))
    });
    let part = RENEWED_AFTER + SPREAD * Random::seeded(seed).unit();
    validity.not_before + (life as f64 * part) as u64
}

/// How long after a certificate the next one of its name is ordered at the earliest, in seconds: a thirtieth of its life,
/// also if the clock says that it is over.
pub(crate) fn least_interval(validity: Validity) -> u64 {
    validity.not_after.saturating_sub(validity.not_before) / 30
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_renewed_after_two_thirds_of_their_life_and_not_at_once() {
        const DAY: u64 = 86_400;
        let validity = Validity { not_before: 1_000 * DAY, not_after: 1_090 * DAY };
        let moments: Vec<u64> =
            (0..100).map(|number| renewed_at(&format!("{number}.example"), validity)).collect();
        let (first, last) = (moments.iter().min().unwrap(), moments.iter().max().unwrap());
        assert!(*first >= 1_055 * DAY && *last <= 1_061 * DAY && last - first > 3 * DAY, "{first} {last}");
        assert_eq!(moments[7], renewed_at("7.example", validity), "the same at every node");
    }
}
