//! Batches of metrics by which a reader sees whether a line is missing or out of order.
//!
//! The values of each series are 0, 1, 2 and so on. A record that is missing, and one that comes before another that
//! it follows in the log, are both seen as a value above the next one; one that comes again as a value below.

use std::collections::HashMap;

use serde_json::{Value, json};

/// Series that are sent.
const SERIES: u64 = 8;
/// Values of each series in a batch.
const VALUES: u64 = 20;
/// Lines of a batch.
pub const BATCH_LINES: u64 = SERIES * VALUES;

/// The body of the batch with this number, counted from 0.
#[must_use]
pub fn batch(number: u64) -> String {
    let metric = |series: u64, value: u64| json!({"name": "line", "value": value, "tags": {"series": series.to_string()}});
    let values = number * VALUES..(number + 1) * VALUES;
    let metrics: Vec<Value> =
        values.flat_map(|value| (0..SERIES).map(move |series| metric(series, value))).collect();
    json!({ "metrics": metrics }).to_string()
}

/// Reads records, each with its partition, until every series has come to the end of so many batches. How many
/// records came again.
///
/// # Panics
/// If a record is missing or out of order, or a series is in two partitions.
pub fn check(records: impl IntoIterator<Item = (u16, String)>, batches: u64) -> u64 {
    let mut next: HashMap<String, (u16, u64)> = HashMap::new();
    let mut again = 0;
    for (partition, line) in records {
        let line: Value = serde_json::from_str(&line).expect("a line is JSON");
        let series = line["tags"]["series"].as_str().expect("a line has its series").to_owned();
        let value = line["value"].as_f64().expect("a line has a value") as u64;
        let (own, expected) = next.entry(series).or_insert((partition, 0));
        assert_eq!(*own, partition, "a series is in one partition");
        assert!(value <= *expected, "{value} came before {expected}");
        if value < *expected {
            again += 1;
        } else {
            *expected += 1;
        }
        if next.len() as u64 == SERIES && next.values().all(|(_, next)| *next == batches * VALUES) {
            return again;
        }
    }
    panic!("no more records came: {next:?}, of {batches} batches");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records of batches, all in one partition.
    fn records(batches: u64) -> Vec<(u16, String)> {
        let lines = |number| {
            let batch: Value = serde_json::from_str(&batch(number)).unwrap();
            batch["metrics"].as_array().unwrap().clone()
        };
        (0..batches).flat_map(lines).map(|line| (0, line.to_string())).collect()
    }

    #[test]
    fn records_that_come_again_are_counted() {
        assert_eq!(records(2).len() as u64, 2 * BATCH_LINES);
        assert_eq!(check(records(2), 2), 0);
        let mut twice = records(1);
        twice.extend(records(2));
        assert_eq!(check(twice, 2), BATCH_LINES);
    }

    #[test]
    #[should_panic(expected = "1 came before 0")]
    fn a_missing_record_is_seen() {
        let mut one_missing = records(2);
        one_missing.remove(0);
        check(one_missing, 2);
    }

    #[test]
    #[should_panic(expected = "no more records came")]
    fn an_end_that_is_missing_is_seen() {
        check(records(1), 2);
    }
}
