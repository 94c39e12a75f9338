//! Seeded random numbers: the same seed always gives the same run.
//!
//! SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): 64
//! bits of state, passes BigCrush, a nanosecond a draw. It is not for secrets. Load generation and
//! resampling need speed and repeatability, and a dependency would give neither more of.
//!
//! [`Zipf`] draws by rejection-inversion (Hörmann and Derflinger, 1996): constant memory and time
//! for any number of items, where a table of cumulative weights would cost 8 bytes an item.

/// A SplitMix64 generator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// A generator that is a function of `seed` alone.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..n`, 0 when `n` is 0. The bias is below `n` / 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// An index below `length`, 0 when `length` is 0.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Uniform in [0, 1) with 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with mean 1: the gap between arrivals of a Poisson process of rate 1.
    pub fn exponential(&mut self) -> f64 {
        // 1 - unit() lies in (0, 1], so that the logarithm is finite.
        -(1.0 - self.unit()).ln()
    }

    /// Standard normal, by the polar method.
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * square.ln() / square).sqrt();
            }
        }
    }
}

/// Ranks 1 to `n`, rank k with weight k^-s: a few keys take most of the traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Zipf {
    n: f64,
    s: f64,
    h_first: f64,
    h_last: f64,
    squeeze: f64,
}

impl Zipf {
    /// `n` items (at least 1) with exponent `s` (0 = uniform; clamped to 0..=10).
    #[must_use]
    pub fn new(n: u64, s: f64) -> Self {
        let mut zipf = Self {
            n: n.max(1) as f64,
            s: if s.is_finite() { s.clamp(0.0, 10.0) } else { 1.0 },
            h_first: 0.0,
            h_last: 0.0,
            squeeze: 0.0,
        };
        zipf.h_first = zipf.h(1.5) - 1.0;
        zipf.h_last = zipf.h(zipf.n + 0.5);
        zipf.squeeze = 2.0 - zipf.h_inverse(zipf.h(2.5) - zipf.weight(2.0));
        zipf
    }

    /// A rank from 1 to `n`.
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.h_last + random.unit() * (self.h_first - self.h_last);
            let x = self.h_inverse(u);
            let k = x.round().clamp(1.0, self.n);
            if k - x <= self.squeeze || u >= self.h(k + 0.5) - self.weight(k) {
                return k as u64;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.s * x.ln()).exp()
    }

    /// The integral of `weight`, up to a constant.
    fn h(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_over((1.0 - self.s) * log) * log
    }

    fn h_inverse(&self, x: f64) -> f64 {
        let t = (x * (1.0 - self.s)).max(-1.0);
        (ln1p_over(t) * x).exp()
    }
}

/// (e^x - 1) / x, continuous at 0.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// ln(1 + x) / x, continuous at 0.
fn ln1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn first_outputs_are_those_of_the_reference_implementation() {
        let mut random = Random::seeded(1_234_567);
        let found: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        // Published test vector of splitmix64.c for seed 1234567.
        assert_eq!(found, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn normal_draws_have_mean_zero_and_deviation_one() {
        let mut random = Random::seeded(7);
        let draws: Vec<f64> = (0..200_000).map(|_| random.normal()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let square = draws.iter().map(|x| x * x).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.01 && (square - 1.0).abs() < 0.02, "{mean} {square}");
        assert!((0..1_000).all(|_| random.index(7) < 7));
    }

    #[test]
    fn exponential_gaps_have_mean_and_deviation_one() {
        let mut random = Random::seeded(1);
        let draws: Vec<f64> = (0..200_000).map(|_| random.exponential()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!((mean - 1.0).abs() < 0.01, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.03, "variance {variance}");
    }

    #[test]
    fn zipf_follows_its_weights() {
        for s in [0.0, 0.8, 1.0, 1.3] {
            let (zipf, mut random) = (Zipf::new(10, s), Random::seeded(7));
            let mut seen = [0u32; 10];
            for _ in 0..200_000 {
                seen[zipf.draw(&mut random) as usize - 1] += 1;
            }
            let total: f64 = (1..=10).map(|k| f64::from(k).powf(-s)).sum();
            for (index, &count) in seen.iter().enumerate() {
                let expected = 200_000.0 * (index as f64 + 1.0).powf(-s) / total;
                assert!(
                    (f64::from(count) - expected).abs() < 5.0 * expected.sqrt() + 1.0,
                    "s {s} rank {} drawn {count}, expected {expected}",
                    index + 1
                );
            }
        }
    }

    proptest! {
        #[test]
        fn draws_stay_in_range(seed: u64, n in 1u64..1_000_000_000, s in 0.0f64..4.0) {
            let mut random = Random::seeded(seed);
            let zipf = Zipf::new(n, s);
            for _ in 0..20 {
                prop_assert!((1..=n).contains(&zipf.draw(&mut random)));
                prop_assert!(random.below(n) < n);
                let unit = random.unit();
                prop_assert!((0.0..1.0).contains(&unit));
                prop_assert!(random.exponential().is_finite());
            }
        }
    }
}
