//! Operations of every kind, as `tidegate.decide` takes them, and its reply.

use std::collections::HashMap;

use tidegate_algorithms::limit::{Verdict, Wait};
use tidegate_postgres::types::ToSql;

use super::{index, natural, signed};
use crate::batch::{Kind, Operation, Reply, WireLimit};

pub(super) const DECIDE: &str = "SELECT tidegate.decide($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, \
                                 $13, $14, $15, $16)";

/// A batch as the function takes it.
#[derive(Debug, Default)]
pub(super) struct FunctionBatch<'o> {
    pub(super) keys: Vec<&'o [u8]>,
    limit_kinds: Vec<i32>,
    limit_numbers: [Vec<i64>; 5],
    kinds: Vec<i32>,
    permits: Vec<i64>,
    counts: Vec<i32>,
    charge_limits: Vec<i32>,
    charge_keys: Vec<i32>,
    costs: Vec<i64>,
    binding: Vec<bool>,
}

impl<'o> FunctionBatch<'o> {
    pub(super) fn new(operations: &'o [Operation]) -> Self {
        let mut batch = Self::default();
        let charges = || operations.iter().flat_map(|operation| &operation.charges);
        batch.keys = charges().map(|charge| &*charge.key).collect();
        batch.keys.sort_unstable();
        batch.keys.dedup();
        let places: HashMap<&[u8], i32> = batch.keys.iter().copied().zip(1..).collect();
        let mut limits: Vec<&WireLimit> = Vec::new();
        for operation in operations {
            let (kind, permit) = operation.kind.code_and_permit();
            batch.kinds.push(kind.into());
            batch.permits.push(permit.cast_signed());
            batch.counts.push(index(operation.charges.len()));
            for charge in &operation.charges {
                let limit = limits.iter().position(|other| **other == charge.limit).unwrap_or_else(|| {
                    limits.push(&charge.limit);
                    limits.len() - 1
                });
                batch.charge_limits.push(index(limit + 1));
                batch.charge_keys.push(places.get(&*charge.key).copied().unwrap_or(0));
                batch.costs.push(charge.cost.into());
                batch.binding.push(charge.binding);
            }
        }
        for limit in limits {
            batch.limit_kinds.push(limit.kind.into());
            for (column, number) in batch.limit_numbers.iter_mut().zip(limit.numbers) {
                column.push(signed(number));
            }
        }
        batch
    }

    /// The function's parameters, but for the times.
    pub(super) fn columns(&self) -> [&(dyn ToSql + Sync); 14] {
        let [a, b, c, d, e] = &self.limit_numbers;
        [
            &self.keys,
            &self.limit_kinds,
            a,
            b,
            c,
            d,
            e,
            &self.kinds,
            &self.permits,
            &self.counts,
            &self.charge_limits,
            &self.charge_keys,
            &self.costs,
            &self.binding,
        ]
    }
}

/// Reads the part of a reply that belongs to an operation.
pub(super) fn read(operation: &Operation, rest: &mut &[i64]) -> Option<Reply> {
    if operation.kind.is_silent() {
        return Some(Reply { yes: true, verdicts: Vec::new() });
    }
    let (yes, after) = rest.split_first()?;
    *rest = after;
    let mut reply = Reply { yes: *yes == 1, verdicts: Vec::new() };
    if matches!(operation.kind, Kind::Spend(_) | Kind::Peek) {
        for charge in &operation.charges {
            let ([allowed, remaining, wait, reset, delay], after) = rest.split_first_chunk()?;
            *rest = after;
            let (wait, next) = match (*allowed == 1, *wait) {
                (true, next) => (Wait::None, natural(next)),
                (false, -1) => (Wait::Never, 0),
                (false, nanos) => (Wait::For(nanos.max(1).unsigned_abs()), 0),
            };
            reply.verdicts.push(Verdict {
                allowed: *allowed == 1,
                limit: charge.limit.quota,
                remaining: natural(*remaining),
                wait,
                reset: natural(*reset),
                delay: natural(*delay),
                next,
            });
        }
    }
    Some(reply)
}
