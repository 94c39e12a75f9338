//! Rate against time, as straight pieces, and the inverse of its integral.
//!
//! The integral of the rate up to `t` is the number of requests due by then (the *mass*), and its
//! inverse says when the k-th is due. On one piece the rate is linear, so the mass is a parabola and
//! the inverse a square root, written as `2m / (r + sqrt(r^2 + 2am))` so that a flat piece (a = 0)
//! is not a special case and no digits cancel.

use thiserror::Error;

/// Highest rate that a profile may ask for, in requests per second.
pub const MAX_RATE: f64 = 10_000_000.0;
/// Most pieces in one profile.
pub(crate) const MAX_SEGMENTS: usize = 1_000;

/// One straight piece of a profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Rate at its beginning, in requests per second, 0 to [`MAX_RATE`].
    pub from: f64,
    /// Rate at its end, in requests per second, 0 to [`MAX_RATE`].
    pub to: f64,
    /// Length in seconds, above 0.
    pub seconds: f64,
}

/// Why a profile is refused.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum ProfileError {
    /// A rate is negative, not a number, or above [`MAX_RATE`].
    #[error("rate {0} is outside 0..={MAX_RATE} requests per second")]
    Rate(f64),
    /// A length is not above 0.
    #[error("length {0} s must be above 0 and finite")]
    Length(f64),
    /// No piece, or too many.
    #[error("{0} pieces: a profile has 1 to {MAX_SEGMENTS}")]
    Count(usize),
}

/// A rate that changes over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    segments: Vec<Segment>,
}

impl Profile {
    /// A profile of pieces, one after the other.
    ///
    /// # Errors
    /// When a rate or a length is out of range, or the number of pieces is.
    pub fn new(segments: Vec<Segment>) -> Result<Self, ProfileError> {
        if segments.is_empty() || segments.len() > MAX_SEGMENTS {
            return Err(ProfileError::Count(segments.len()));
        }
        for segment in &segments {
            for rate in [segment.from, segment.to] {
                if !(0.0..=MAX_RATE).contains(&rate) {
                    return Err(ProfileError::Rate(rate));
                }
            }
            if !(segment.seconds > 0.0 && segment.seconds.is_finite()) {
                return Err(ProfileError::Length(segment.seconds));
            }
        }
        Ok(Self { segments })
    }

    /// One rate throughout.
    ///
    /// # Errors
    /// As [`Profile::new`].
    pub fn constant(rate: f64, seconds: f64) -> Result<Self, ProfileError> {
        Self::ramp(rate, rate, seconds)
    }

    /// A straight line from one rate to another.
    ///
    /// # Errors
    /// As [`Profile::new`].
    pub fn ramp(from: f64, to: f64, seconds: f64) -> Result<Self, ProfileError> {
        Self::new(vec![Segment { from, to, seconds }])
    }

    /// One rate after the other: `(requests per second, seconds)`.
    ///
    /// # Errors
    /// As [`Profile::new`].
    pub fn steps(steps: &[(f64, f64)]) -> Result<Self, ProfileError> {
        Self::new(steps.iter().map(|&(rate, seconds)| Segment { from: rate, to: rate, seconds }).collect())
    }

    /// A base rate, a sudden peak, and the base rate again; each length in seconds.
    ///
    /// # Errors
    /// As [`Profile::new`].
    pub fn spike(base: f64, peak: f64, [before, during, after]: [f64; 3]) -> Result<Self, ProfileError> {
        Self::steps(&[(base, before), (peak, during), (base, after)])
    }

    /// Length in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.segments.iter().map(|segment| segment.seconds).sum()
    }

    /// Requests due in all.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.segments.iter().map(Segment::mass).sum()
    }

    /// Requests due in the first `seconds`: what the schedules are checked against.
    #[cfg(test)]
    pub(super) fn mass_at(&self, seconds: f64) -> f64 {
        let mut left = seconds.max(0.0);
        let mut mass = 0.0;
        for segment in &self.segments {
            let part = left.min(segment.seconds);
            mass += segment.mass_at(part);
            left -= part;
        }
        mass
    }

    /// The pieces.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }
}

impl Segment {
    /// Requests due in the whole piece.
    pub(super) fn mass(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.seconds
    }

    #[cfg(test)]
    fn mass_at(&self, seconds: f64) -> f64 {
        let slope = (self.to - self.from) / self.seconds;
        (self.from + slope * seconds / 2.0) * seconds
    }

    /// Seconds into this piece at which `mass` requests are due; `mass` is at most the piece's own.
    pub(super) fn seconds_at(&self, mass: f64) -> f64 {
        if mass <= 0.0 {
            return 0.0;
        }
        let slope = (self.to - self.from) / self.seconds;
        let root = (self.from * self.from + 2.0 * slope * mass).max(0.0).sqrt();
        (2.0 * mass / (self.from + root)).min(self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_bad_profile_is_refused_with_its_reason() {
        assert_eq!(Profile::constant(-1.0, 1.0), Err(ProfileError::Rate(-1.0)));
        assert!(matches!(Profile::constant(f64::NAN, 1.0), Err(ProfileError::Rate(_))));
        assert_eq!(Profile::constant(1.0, 0.0), Err(ProfileError::Length(0.0)));
        assert_eq!(Profile::new(Vec::new()), Err(ProfileError::Count(0)));
    }

    #[test]
    fn a_spike_holds_its_three_parts() {
        let spike = Profile::spike(100.0, 1_000.0, [1.0, 0.5, 2.0]).unwrap();
        assert_eq!(spike.total(), 800.0);
        assert_eq!(spike.mass_at(1.25), 350.0);
        assert_eq!(spike.seconds(), 3.5);
    }

    proptest! {
        #[test]
        fn the_inverse_undoes_the_integral(from in 0.0f64..1e5, to in 0.0f64..1e5, seconds in 0.01f64..1e3, part in 0.0f64..1.0) {
            prop_assume!(from + to > 1e-3);
            let segment = Segment { from, to, seconds };
            let mass = segment.mass() * part;
            let back = segment.mass_at(segment.seconds_at(mass));
            prop_assert!((back - mass).abs() <= 1e-6 * segment.mass().max(1.0), "{mass} became {back}");
        }
    }
}
