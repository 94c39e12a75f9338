//! The operations of a batch that `plain.sql` can decide, as it takes them.
//!
//! Those are spends and peeks under one limit that is no log and no permits, on counters that meet
//! equal operations only in this batch. All others go through `tidegate.decide`, and so do these if a
//! state turns out to be of another algorithm. No counter is in both parts, so their order is free.

use std::collections::HashMap;

use tidegate_algorithms::limit::{Verdict, Wait};
use tidegate_postgres::types::ToSql;
use tidegate_postgres::{Error, Row};

use super::{index, natural, signed};
use crate::batch::{Kind, Operation, Reply, WireLimit};

pub(super) const PLAIN: &str = include_str!("plain.sql");

/// Counters and what is asked of each, in ascending order of their keys.
#[derive(Debug, Default)]
pub(super) struct Plain<'o> {
    counters: Vec<Counter<'o>>,
}

/// A counter, and the equal operations on it.
#[derive(Clone, Debug)]
struct Counter<'o> {
    key: &'o [u8],
    question: Question<'o>,
    /// Places of the operations in the batch.
    places: Vec<usize>,
}

/// What an operation asks of its only counter.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Question<'o> {
    limit: &'o WireLimit,
    cost: u32,
    spends: bool,
}

/// The statement's parameters, but for the times.
#[derive(Debug, Default)]
pub(super) struct Columns<'o> {
    keys: Vec<&'o [u8]>,
    kinds: Vec<i32>,
    numbers: [Vec<i64>; 5],
    costs: Vec<i64>,
    counts: Vec<i32>,
    spends: Vec<bool>,
}

/// What the statement said.
#[derive(Debug, Default)]
pub(super) struct Said<'o> {
    /// Places of operations, with their replies.
    pub(super) decided: Vec<(usize, Reply)>,
    /// Places of operations that are for the function; nothing was charged there.
    pub(super) strange: Vec<usize>,
    /// Counters that have no row yet; nothing was charged there.
    pub(super) missing: Plain<'o>,
}

/// What a batch asks of one counter.
struct Asked<'o> {
    /// `None` if it is no plain question, or not always the same one.
    same: Option<Question<'o>>,
    places: Vec<usize>,
}

impl<'o> Plain<'o> {
    /// The plain part of a batch, and the places of all other operations.
    pub(super) fn split(operations: &'o [Operation]) -> (Self, Vec<usize>) {
        let mut asked: HashMap<&[u8], Asked<'o>> = HashMap::with_capacity(operations.len());
        for (place, operation) in operations.iter().enumerate() {
            let question = question(operation);
            for charge in &operation.charges {
                let asked =
                    asked.entry(&charge.key).or_insert_with(|| Asked { same: question, places: Vec::new() });
                asked.same = asked.same.filter(|same| Some(*same) == question);
                asked.places.push(place);
            }
        }
        let mut is_plain = vec![false; operations.len()];
        let mut counters = Vec::with_capacity(asked.len());
        for (key, Asked { same, places }) in asked {
            let Some(question) = same else { continue };
            places.iter().for_each(|place| is_plain[*place] = true);
            counters.push(Counter { key, question, places });
        }
        counters.sort_unstable_by_key(|counter| counter.key);
        let others = (0..operations.len()).filter(|place| !is_plain[*place]).collect();
        (Self { counters }, others)
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

    /// As the statement takes it.
    pub(super) fn columns(&self) -> Columns<'o> {
        let mut columns = Columns { keys: self.keys(), ..Columns::default() };
        for Counter { question: Question { limit, cost, spends }, places, .. } in &self.counters {
            columns.kinds.push(limit.kind.into());
            for (column, number) in columns.numbers.iter_mut().zip(limit.numbers) {
                column.push(signed(number));
            }
            columns.costs.push((*cost).into());
            columns.counts.push(index(places.len()));
            columns.spends.push(*spends);
        }
        columns
    }

    /// Reads the statement's rows: per counter that has a row, one for each of its operations.
    ///
    /// # Errors
    /// A column that is not as the statement has it.
    pub(super) fn read(&self, rows: &[Row], operations: &[Operation]) -> Result<Said<'o>, Error> {
        let mut said = Said::default();
        let mut rest = rows;
        for (ordinal, counter) in (1..).zip(&self.counters) {
            let known = rest.first().map(|row| row.try_get::<_, i64>(0)).transpose()? == Some(ordinal);
            if !known {
                said.missing.counters.push(counter.clone());
                continue;
            }
            let (own, after) = rest.split_at(counter.places.len().min(rest.len()));
            rest = after;
            for (row, place) in own.iter().zip(&counter.places) {
                if row.try_get(1)? {
                    said.strange.push(*place);
                } else {
                    said.decided.push((*place, reply(row, &operations[*place])?));
                }
            }
        }
        Ok(said)
    }
}

impl Columns<'_> {
    pub(super) fn parameters(&self) -> [&(dyn ToSql + Sync); 10] {
        let [a, b, c, d, e] = &self.numbers;
        [&self.keys, &self.kinds, a, b, c, d, e, &self.costs, &self.counts, &self.spends]
    }
}

/// A row's reply to an operation with one charge.
fn reply(row: &Row, operation: &Operation) -> Result<Reply, Error> {
    let charge = &operation.charges[0];
    let has_room: bool = row.try_get(2)?;
    let wait = match row.try_get(4)? {
        _ if has_room => Wait::None,
        -1_i64 => Wait::Never,
        nanos => Wait::For(nanos.max(1).unsigned_abs()),
    };
    let verdict = Verdict {
        allowed: has_room,
        limit: charge.limit.quota,
        remaining: natural(row.try_get(3)?),
        wait,
        reset: natural(row.try_get(5)?),
        delay: natural(row.try_get(6)?),
    };
    Ok(Reply { yes: has_room || !charge.binding, verdicts: vec![verdict] })
}

/// What the operation asks, if that is plain.
fn question(operation: &Operation) -> Option<Question<'_>> {
    let [charge] = &operation.charges[..] else { return None };
    let spends = match operation.kind {
        Kind::Spend(_) => charge.cost > 0,
        Kind::Peek => false,
        Kind::Refund | Kind::Renew(_) | Kind::Release(_) => return None,
    };
    let question = Question { limit: &charge.limit, cost: charge.cost, spends };
    charge.limit.is_plain().then_some(question)
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::limit::{Bucket, Limit, PermitId, SlidingLog};
    use tidegate_algorithms::time::{Now, Tick, Wall};

    use super::*;
    use crate::Charge;

    #[test]
    fn a_counter_with_different_questions_is_for_the_function_with_all_of_them() {
        let bucket = Limit::TokenBucket(Bucket::new(10, 10, 1_000));
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
        ];
        let (plain, others) = Plain::split(&operations);
        assert_eq!(plain.keys(), [b"a", b"b", b"g"]);
        let columns = plain.columns();
        assert_eq!((columns.counts, columns.spends), (vec![1, 2, 1], vec![true, true, false]));
        assert_eq!(plain.places().collect::<Vec<_>>(), [1, 0, 2, 8]);
        assert_eq!(others, [3, 4, 5, 6, 7, 9, 10]);
    }
}
