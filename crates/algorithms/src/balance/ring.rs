//! Consistent hashing with bounded load: a key goes to the same backend as long as it can.
//!
//! ```text
//!   0 ──a3──b1──────a1──c2──b2──a2──c1── 2^64     points of the backends, by hash
//!            ^ key          the first point from the key on whose backend has room
//! ```
//!
//! A backend has points in proportion to its weight, so removing one moves only its own keys. A
//! backend whose load is above `bound` times its fair share is passed over, which keeps a hot key
//! from drowning one backend and moves no more than the overflow.
//!
//! References: D. Karger and others, "Consistent hashing and random trees", 1997; V. Mirrokni, M.
//! Thorup and M. Zadimoghaddam, "Consistent hashing with bounded loads", 2016.

/// Points of a backend of average weight.
const POINTS: f64 = 160.0;

/// Most points in all: 4 MiB.
const MAX_POINTS: f64 = 262_144.0;

/// The load above its fair share at which a backend is passed over, unless stated otherwise.
pub const BOUND: f64 = 1.25;

/// Points on a circle of hashes, each a backend's.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    points: Vec<(u64, u32)>,
}

impl Ring {
    /// A ring of `backends`: a hash of each one's name, and its weight (0: it has no point).
    #[must_use]
    pub fn new(backends: &[(u64, u32)]) -> Self {
        let total: f64 = backends.iter().map(|(_, weight)| f64::from(*weight)).sum();
        let used = backends.iter().filter(|(_, weight)| *weight > 0).count() as f64;
        let all = (POINTS * used).min(MAX_POINTS);
        let mut points = Vec::new();
        for (backend, (name, weight)) in (0u32..).zip(backends) {
            if *weight == 0 {
                continue;
            }
            let share = (all * f64::from(*weight) / total).ceil().max(1.0) as u64;
            points.extend((0..share).map(|point| (mixed(name.wrapping_add(mixed(point + 1))), backend)));
        }
        points.sort_unstable();
        Self { points }
    }

    /// The backend for a key's hash: the first from there on that `has_room`; if none has, the first that
    /// `is_eligible`. `None`: none is eligible.
    pub fn pick(
        &self,
        hash: u64,
        is_eligible: impl Fn(usize) -> bool,
        has_room: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let start = self.points.partition_point(|(point, _)| *point < hash);
        let mut eligible = None;
        for step in 0..self.points.len() {
            let (_, backend) = self.points[(start + step) % self.points.len()];
            let backend = backend as usize;
            if !is_eligible(backend) {
                continue;
            }
            if has_room(backend) {
                return Some(backend);
            }
            eligible.get_or_insert(backend);
        }
        eligible
    }
}

/// Whether one more request keeps a backend within `bound` times its share of `total` requests in
/// flight, where its weight is `weight` of `weights`.
#[must_use]
pub fn is_within_bound(in_flight: u32, total: u64, weight: f64, weights: f64, bound: f64) -> bool {
    let share = (total as f64 + 1.0) * weight / weights;
    f64::from(in_flight) + 1.0 <= (share * bound).ceil()
}

/// The finaliser of MurmurHash3 (A. Appleby), which spreads every bit over all.
fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let value = (value ^ (value >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ (value >> 33)
}
