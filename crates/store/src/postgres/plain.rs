//! The operations of a batch that are decided set-wise, as `bucket.sql` and `windows.sql` take them.
//!
//! Such an operation has one limit, and that is a bucket, a window or a counter. All operations of the batch on its key
//! are equal. Under a bucket it costs at least one unit and at most the capacity. Every other operation goes through
//! `tidegate.decide`, and so does one of these whose stored state is of another algorithm. A key is in one part only, so
//! the parts may run in any order.
//!
//! ```text
//!   statement: of n equal operations, how many fit above what is found; adds these; says what it found
//!   here:      n x check and charge of the pure functions, over that --> the verdicts
//! ```
//!
//! Both count the same, or a verdict would promise what was not charged (`tests/it/postgres/plain.rs`).

use tidegate_algorithms::limit::PermitId;
use tidegate_algorithms::time::Now;
use tidegate_postgres::types::ToSql;
use tidegate_postgres::{Error, Row};

use super::{index, natural, signed};
use crate::batch::{Kind, Operation, Reply, WireLimit};

/// Limits that one statement knows. Buckets have their own, because most limits are buckets, and what
/// a statement takes goes by the number of its expressions more than by what they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitFamily {
    Buckets,
    Windows,
}

/// Counters and what is asked of each, in ascending order of their keys.
#[derive(Debug)]
pub(super) struct Plain<'o> {
    pub(super) family: LimitFamily,
    counters: Vec<PlainCounter<'o>>,
}

/// A counter, and the equal operations on it.
#[derive(Clone, Debug)]
struct PlainCounter<'o> {
    key: &'o [u8],
    question: CounterQuestion<'o>,
    /// Places of the operations in the batch.
    places: Vec<usize>,
}

/// What an operation asks of its only counter.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CounterQuestion<'o> {
    limit: &'o WireLimit,
    cost: u32,
    spends: bool,
}

/// A parameter of a statement.
pub(super) type Parameter<'o> = Box<dyn ToSql + Sync + Send + 'o>;

/// What a statement said.
#[derive(Debug)]
pub(super) struct FoundRows<'o> {
    /// Places of operations, with their replies.
    pub(super) decided: Vec<(usize, Reply)>,
    /// Places of operations that are for the function; nothing was charged there.
    pub(super) strange: Vec<usize>,
    /// Counters that have no row yet, or a bucket's of another algorithm, interval or burst; nothing was charged
    /// there.
    pub(super) missing: Plain<'o>,
}

impl LimitFamily {
    pub(super) fn sql(self) -> &'static str {
        match self {
            Self::Buckets => include_str!("bucket.sql"),
            Self::Windows => include_str!("windows.sql"),
        }
    }
}

impl<'o> Plain<'o> {
    /// The plain parts of a batch, and the places of all other operations.
    pub(super) fn split(operations: &'o [Operation]) -> ([Self; 2], Vec<usize>) {
        let [mut buckets, mut windows] = [LimitFamily::Buckets, LimitFamily::Windows].map(Self::new);
        let mut others = Vec::new();
        let mut touched: Vec<(&[u8], usize)> = Vec::with_capacity(operations.len());
        for (place, operation) in operations.iter().enumerate() {
            touched.extend(operation.charges.iter().map(|charge| (&*charge.key, place)));
        }
        touched.sort_unstable();
        for same_key in touched.chunk_by(|one, next| one.0 == next.0) {
            let (key, first) = same_key[0];
            let places: Vec<usize> = same_key.iter().map(|(_, place)| *place).collect();
            match question(&operations[first]) {
                Some(asked) if places.iter().all(|place| question(&operations[*place]) == Some(asked)) => {
                    let part = if asked.limit.is_bucket() { &mut buckets } else { &mut windows };
                    part.counters.push(PlainCounter { key, question: asked, places });
                }
                _ => others.extend(places),
            }
        }
        others.sort_unstable();
        others.dedup();
        ([buckets, windows], others)
    }

    fn new(family: LimitFamily) -> Self {
        Self { family, counters: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counters.is_empty()
    }

    /// Places of its operations in the batch.
    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        self.counters.iter().flat_map(|counter| counter.places.iter().copied())
    }

    pub(super) fn keys(&self) -> Vec<&'o [u8]> {
        self.counters.iter().map(|counter| counter.key).collect()
    }

    fn column<T: ToSql + Sync + Send + 'o>(&self, of: impl Fn(&PlainCounter<'o>) -> T) -> Parameter<'o> {
        Box::new(self.counters.iter().map(of).collect::<Vec<_>>())
    }

    /// As the statement takes it, with the caller's times, if these decide.
    pub(super) fn parameters(&self, at: Option<Now>) -> Vec<Parameter<'o>> {
        let number = |place: usize| self.column(|counter| signed(counter.question.limit.numbers[place]));
        let keys = self.column(|counter| counter.key);
        let prices = self.column(|counter| signed(counter.question.price()));
        let counts = self.column(|counter| index(counter.spending()));
        let tick = Box::new(at.map(|now| signed(now.tick.0)));
        let wall = Box::new(at.map(|now| signed(now.wall.0)));
        match self.family {
            LimitFamily::Buckets => {
                let capacities = self.column(|counter| signed(counter.question.limit.capacity()));
                vec![keys, number(0), capacities, prices, counts, tick]
            }
            LimitFamily::Windows => {
                let kinds = self.column(|counter| i32::from(counter.question.limit.kind));
                let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(number);
                vec![keys, kinds, a, b, c, d, e, prices, counts, tick, wall]
            }
        }
    }

    /// Reads the statement's rows, one per counter that has a row that it takes.
    ///
    /// # Errors
    /// A column that is not as the statement has it.
    pub(super) fn read(&self, rows: &[Row], operations: &[Operation]) -> Result<FoundRows<'o>, Error> {
        let mut said =
            FoundRows { decided: Vec::new(), strange: Vec::new(), missing: Self::new(self.family) };
        let mut found = rows.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
        found.sort_unstable();
        let mut found = found.into_iter().peekable();
        for (ordinal, counter) in (1..).zip(&self.counters) {
            match found.next_if(|(place, _)| *place == ordinal) {
                None => said.missing.counters.push(counter.clone()),
                Some((_, None)) => said.strange.extend(&counter.places),
                Some((_, Some(numbers))) => said.decided.extend(counter.replies(numbers, operations)),
            }
        }
        Ok(said)
    }
}

impl CounterQuestion<'_> {
    /// What one operation adds to the used quantity, at least 1.
    fn price(&self) -> u64 {
        let unit = if self.limit.is_bucket() { self.limit.numbers[0] } else { 1 };
        u64::from(self.cost).saturating_mul(unit).max(1)
    }
}

impl PlainCounter<'_> {
    /// How many of its operations spend: all or none, since they are equal.
    fn spending(&self) -> usize {
        if self.question.spends { self.places.len() } else { 0 }
    }

    /// Decides its operations in turn, over what the statement found.
    fn replies(&self, found: [u64; 3], operations: &[Operation]) -> impl Iterator<Item = (usize, Reply)> {
        let CounterQuestion { limit, cost, spends } = self.question;
        let (limit, mut state, now) = limit.recall(found);
        self.places.iter().map(move |place| {
            let verdict = limit.check(&mut state, now, cost.into());
            if verdict.allowed && spends {
                limit.charge(&mut state, now, cost.into(), PermitId(0));
            }
            let yes = verdict.allowed || !operations[*place].charges[0].binding;
            (*place, Reply { yes, verdicts: vec![verdict] })
        })
    }
}

/// A counter's ordinal, and what was found there unless it is for the function.
fn read(row: &Row) -> Result<(i64, Option<[u64; 3]>), Error> {
    if row.try_get(1)? {
        return Ok((row.try_get(0)?, None));
    }
    let mut numbers = [0; 3];
    for (column, number) in (2..row.len()).zip(&mut numbers) {
        *number = natural(row.try_get(column)?);
    }
    Ok((row.try_get(0)?, Some(numbers)))
}

/// What the operation asks, if that is plain.
fn question(operation: &Operation) -> Option<CounterQuestion<'_>> {
    let [charge] = &operation.charges[..] else { return None };
    let spends = match operation.kind {
        Kind::Spend(_) => charge.cost > 0,
        Kind::Peek => false,
        Kind::Refund | Kind::Reset | Kind::Renew(_) | Kind::Release(_) => return None,
    };
    let question = CounterQuestion { limit: &charge.limit, cost: charge.cost, spends };
    // A bucket's statement always writes, so that what it writes must say something.
    let writes = spends && question.price() <= charge.limit.capacity();
    (charge.limit.is_plain() && (writes || !charge.limit.is_bucket())).then_some(question)
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::limit::{Bucket, FixedWindow, Limit, PermitId, SlidingLog};
    use tidegate_algorithms::time::{Now, Tick, Wall};

    use super::*;
    use crate::Charge;

    #[test]
    fn a_counter_with_different_questions_is_for_the_function_with_all_of_them() {
        let bucket = Limit::TokenBucket(Bucket::new(10, 10, 1_000));
        let window = Limit::FixedWindow(FixedWindow { limit: 10, seconds: 1 });
        let log = Limit::SlidingLog(SlidingLog { limit: 10, window: 1_000 });
        let now = Now { tick: Tick(0), wall: Wall(0) };
        let charge =
            |limit, key, cost| Charge { limit, key, cost, binding: true, on_failure: Default::default() };
        let operation =
            |kind, charges: &[Charge<'_>]| Operation::new(kind, now, charges, |key: &[u8]| key.into());
        let spend = Kind::Spend(PermitId(1));
        let operations = [
            operation(spend, &[charge(&bucket, b"b", 1)]),
            operation(spend, &[charge(&bucket, b"a", 1)]),
            operation(Kind::Spend(PermitId(2)), &[charge(&bucket, b"b", 1)]),
            operation(spend, &[charge(&bucket, b"c", 1)]),
            operation(Kind::Peek, &[charge(&bucket, b"c", 1)]),
            operation(spend, &[charge(&log, b"d", 1)]),
            operation(spend, &[charge(&bucket, b"e", 1)]),
            operation(spend, &[charge(&bucket, b"e", 1), charge(&bucket, b"f", 1)]),
            operation(Kind::Peek, &[charge(&bucket, b"g", 2)]),
            operation(spend, &[charge(&bucket, b"h", 1)]),
            operation(spend, &[charge(&bucket, b"h", 2)]),
            operation(spend, &[charge(&window, b"i", 1)]),
            operation(Kind::Peek, &[charge(&window, b"j", 1)]),
            operation(spend, &[charge(&bucket, b"k", 11)]),
        ];
        let ([plain, windows], others) = Plain::split(&operations);
        assert_eq!(plain.keys(), [b"a", b"b"]);
        assert_eq!(plain.places().collect::<Vec<_>>(), [1, 0, 2]);
        assert_eq!(windows.keys(), [b"i", b"j"]);
        let asked = windows.counters.iter().map(|counter| (counter.places.len(), counter.question.spends));
        assert_eq!(asked.collect::<Vec<_>>(), [(1, true), (1, false)]);
        assert_eq!(windows.places().collect::<Vec<_>>(), [11, 12]);
        assert_eq!(others, [3, 4, 5, 6, 7, 8, 9, 10, 13]);
    }
}
