//! W3C trace context: the `traceparent` field, so that one request can be followed through others.
//!
//! Follows <https://www.w3.org/TR/trace-context-2/>. A field that is malformed is treated as if it
//! were absent: the request gets a trace of its own. A higher version than 00 is read as far as 00
//! defines it, and what we write is version 00. The random numbers are arguments.
//!
//! Deliberately absent: `tracestate`, which only vendors' tools read. A proxy passes it on as it is with the trace
//! that it came with, and removes it where a new trace begins.

use std::fmt::{self, Write};

/// Bytes of a version 00 field.
const LENGTH: usize = 55;
/// Flag bits: the caller records this trace; the last seven bytes of its identifier are random (level 2).
const SAMPLED: u8 = 1;
const RANDOM: u8 = 2;

/// Where a request stands in a trace. Neither identifier is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace: u128,
    span: u64,
    sampled: bool,
    random: bool,
}

impl TraceContext {
    /// A trace that begins here, from random numbers, which its field says. Zero, which means "no trace", becomes one.
    #[must_use]
    pub fn root(trace: u128, span: u64) -> Self {
        Self { trace: trace.max(1), span: span.max(1), sampled: false, random: true }
    }

    /// Reads a field's value. `None` if it is not one.
    #[must_use]
    pub fn parse(field: &[u8]) -> Option<Self> {
        let known = field.get(..LENGTH)?;
        let version = hex::<2>(&known[..2])?;
        let rest_is_good = match (version, field.get(LENGTH)) {
            (0xff, _) => false,
            (_, None) => true,
            (0, Some(_)) => false,
            (_, Some(next)) => *next == b'-',
        };
        let dashes = known[2] == b'-' && known[35] == b'-' && known[52] == b'-';
        let trace = hex::<32>(&known[3..35])?;
        let span = u64::try_from(hex::<16>(&known[36..52])?).ok()?;
        let flags = u8::try_from(hex::<2>(&known[53..])?).ok()?;
        let good = rest_is_good && dashes && trace != 0 && span != 0;
        let (sampled, random) = (flags & SAMPLED != 0, flags & RANDOM != 0);
        good.then_some(Self { trace, span, sampled, random })
    }

    /// The same trace at our own span, which the random `span` names.
    #[must_use]
    pub fn child(self, span: u64) -> Self {
        Self { span: span.max(1), ..self }
    }

    /// The same, with whether it is recorded.
    #[must_use]
    pub fn with_sampled(self, sampled: bool) -> Self {
        Self { sampled, ..self }
    }

    /// Whether whoever sent it records the trace.
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.sampled
    }

    /// The span's identifier, which is not zero.
    #[must_use]
    pub fn span_id(self) -> u64 {
        self.span
    }

    /// The field's value, in ASCII.
    #[must_use]
    pub fn field(self) -> [u8; LENGTH] {
        let mut field = *b"00-00000000000000000000000000000000-0000000000000000-00";
        put_hex(&mut field[3..35], self.trace);
        put_hex(&mut field[36..52], self.span.into());
        let flags = (u8::from(self.sampled) * SAMPLED) | (u8::from(self.random) * RANDOM);
        put_hex(&mut field[53..], flags.into());
        field
    }

    /// The trace's identifier, for logs and replies; it prints as 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(self) -> TraceId {
        TraceId(self.trace)
    }
}

impl TraceId {
    /// Its number, which is not zero.
    #[must_use]
    pub fn number(self) -> u128 {
        self.0
    }

    /// Whether a trace that begins here is one of the `ratio` that are recorded: by its last seven bytes, which are
    /// random (W3C trace context, level 2), and from above, as OpenTelemetry does, so that all who go by them decide the same.
    #[must_use]
    pub fn is_among(self, ratio: f64) -> bool {
        const ALL: u128 = 1 << 56;
        ((self.0 % ALL) as f64) >= (1.0 - ratio) * ALL as f64
    }
}

/// Writes the field's value.
impl fmt::Display for TraceContext {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.field().iter().try_for_each(|byte| out.write_char(char::from(*byte)))
    }
}

/// A trace's identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(u128);

impl TraceId {
    /// Its 32 digits, in ASCII.
    #[must_use]
    pub fn digits(self) -> [u8; 32] {
        let mut digits = [0; 32];
        put_hex(&mut digits, self.0);
        digits
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.digits().iter().try_for_each(|byte| out.write_char(char::from(*byte)))
    }
}

/// Fills `digits` with the last digits of `number`. Some times as fast as formatting it, and each proxied request has
/// two of these.
fn put_hex(digits: &mut [u8], mut number: u128) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

/// Exactly `N` lower-case hexadecimal digits, at most 32.
fn hex<const N: usize>(digits: &[u8]) -> Option<u128> {
    let digits: &[u8; N] = digits.try_into().ok()?;
    digits.iter().try_fold(0, |value: u128, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EXAMPLE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_recommendations_example_is_read_and_continued() {
        let caller = TraceContext::parse(EXAMPLE.as_bytes()).unwrap();
        assert_eq!(caller.to_string(), EXAMPLE);
        assert_eq!(caller.trace_id().to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert!(caller.sampled);
        assert_eq!(caller.child(1).to_string(), "00-0af7651916cd43dd8448eb211c80319c-0000000000000001-01");
    }

    #[test]
    fn whether_the_identifier_is_random_goes_on_with_the_trace_and_other_flags_do_not() {
        for (came, goes) in [("00", "00"), ("01", "01"), ("02", "02"), ("03", "03"), ("ff", "03")] {
            let caller = TraceContext::parse(EXAMPLE.replace("-01", &format!("-{came}")).as_bytes()).unwrap();
            assert_eq!(&caller.child(1).to_string()[53..], goes);
        }
        let root = TraceContext::root(1, 1);
        assert_eq!((&root.to_string()[53..], &root.with_sampled(true).to_string()[53..]), ("02", "03"));
    }

    #[test]
    fn what_is_malformed_is_no_trace() {
        let cases = [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
            "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01x",
        ];
        for case in cases {
            assert_eq!(TraceContext::parse(case.as_bytes()), None, "{case}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let later = format!("cc{}-what-comes-later", &EXAMPLE[2..]);
        assert_eq!(TraceContext::parse(later.as_bytes()), TraceContext::parse(EXAMPLE.as_bytes()));
        assert_eq!(TraceContext::root(0, 0).to_string(), TraceContext::root(1, 1).to_string());
    }

    #[test]
    fn a_ratio_of_all_is_all_and_what_a_small_one_records_a_larger_one_records_too() {
        // Multiples of the golden ratio are spread evenly.
        let traces = || (0..10_000_u128).map(|n| TraceContext::root(n * 0x9e37_79b9_7f4a_7c15, 1).trace_id());
        let many = |ratio| traces().filter(|trace| trace.is_among(ratio)).count();
        assert_eq!((many(0.0), many(1.0)), (0, 10_000));
        assert!((2_450..=2_550).contains(&many(0.25)), "{}", many(0.25));
        assert!(traces().all(|trace| !trace.is_among(0.1) || trace.is_among(0.2)));
        assert_eq!(TraceContext::root(u128::MAX, 1).trace_id().number(), u128::MAX);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(trace: u128, span: u64) {
            let context = TraceContext::root(trace, span);
            prop_assert_eq!(TraceContext::parse(context.to_string().as_bytes()), Some(context));
        }

        #[test]
        fn any_bytes_give_a_context_that_is_written_alike_or_none(field: Vec<u8>) {
            if let Some(context) = TraceContext::parse(&field) {
                prop_assert_eq!(TraceContext::parse(context.to_string().as_bytes()), Some(context));
            }
        }
    }
}
