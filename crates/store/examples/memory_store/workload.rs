//! Keys, their popularity, and what is read from the operating system.

use rustix::time::{ClockId, clock_gettime};
use tidegate_algorithms::limit::{Bucket, Limit, SlidingLog};
use tidegate_algorithms::time::SECOND;

/// Start of the timeline.
pub(crate) const START: u64 = 1_767_225_600 * SECOND;

/// 1,000 per minute: a unit is back after 60 ms, the burst after a minute.
pub(crate) fn token_bucket() -> Limit {
    Limit::TokenBucket(Bucket::new(1_000, 1_000, 60 * SECOND))
}

/// The default policy's limit.
pub(crate) fn sliding_log() -> Limit {
    Limit::SlidingLog(SlidingLog { limit: 100, window: 60 * SECOND })
}

/// The key of client `number`, as `policy::key_of` would lay one out.
pub(crate) fn key(number: u64) -> [u8; 24] {
    let mut key = *b"\0\x07default\0\x0d\0client-.....";
    key[16..24].copy_from_slice(&number.to_le_bytes());
    key
}

/// A small generator with a stated seed (xorshift64*, Marsaglia and Vigna).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).expect("below the bound")
    }
}

/// `count` clients out of `clients`, each as likely as another.
pub(crate) fn uniform(clients: u64, count: usize, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    (0..count).map(|_| u32::try_from(random.below(clients)).expect("few clients")).collect()
}

/// `count` clients out of `clients`, the n-th most popular with a weight of 1/n.
#[expect(clippy::cast_precision_loss, reason = "weights need no more precision")]
pub(crate) fn zipf(clients: u64, count: usize, seed: u64) -> Vec<u32> {
    let mut total = 0.0;
    let sums: Vec<f64> = (1..=clients)
        .map(|rank| {
            total += 1.0 / rank as f64;
            total
        })
        .collect();
    let mut random = Random::new(seed);
    let mut draw = || {
        let point = random.below(1 << 53) as f64 / (1_u64 << 53) as f64 * total;
        u32::try_from(sums.partition_point(|sum| *sum < point)).expect("few clients")
    };
    (0..count).map(|_| draw()).collect()
}

/// What is read before and after.
#[derive(Clone, Copy)]
pub(crate) enum Clock {
    /// The time of day goes on while other programs run.
    Elapsed,
    /// This thread's time on a processor does not. Reading it is a system call.
    Processor,
}

impl Clock {
    /// What follows a figure's name.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Elapsed => "",
            Self::Processor => ", processor time",
        }
    }

    fn read(self) -> u64 {
        let time = clock_gettime(match self {
            Self::Elapsed => ClockId::Monotonic,
            Self::Processor => ClockId::ThreadCPUTime,
        });
        u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("after the start")
    }
}

/// Nanoseconds that `act` took.
pub(crate) fn nanos(clock: Clock, act: impl FnOnce()) -> u64 {
    let start = clock.read();
    act();
    clock.read() - start
}

/// Nanoseconds that this thread has been on a processor: unlike elapsed time, not those that other
/// programs took.
pub(crate) fn on_processor() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|first| first.parse().ok()).expect("a number of nanoseconds")
}

/// Resident bytes of this process.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number of kB");
    kib * 1_024
}
