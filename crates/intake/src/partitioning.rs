//! Partitioning: the partition of the log that a line goes to, and a batch cut into the parts of its partitions.
//!
//! | by | together and in order | so that |
//! |---|---|---|
//! | client | all lines of a client | a batch is one part, and stands in the log in one piece |
//! | series | all lines of a name with its tags, whoever sent them | one client with many series uses all partitions |
//!
//! Both are digests that no process chooses for itself, so a line's partition is the same after a restart.

use tidegate_log::{self as log, NameDigest};
use tidegate_wire::metrics::{Fact, Lines};

/// What lines have in common that are in one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartitionBy {
    /// Their client.
    #[default]
    Client,
    /// Their name and tags.
    Series,
}

/// The parts of a batch of the client with this key, in the order of their partitions. In each, lines have the order
/// that they had in the batch.
pub(crate) fn parts(lines: Lines, by: PartitionBy, client: u64, partitions: u16) -> Vec<(u16, log::Lines)> {
    match by {
        PartitionBy::Series if partitions > 1 => by_series(&lines, client, partitions),
        _ => vec![(of_digest(client, partitions), whole(lines, client))],
    }
}

fn of_digest(digest: u64, partitions: u16) -> u16 {
    // Invariant: the rest is less than the number of partitions, which 16 bits hold.
    u16::try_from(digest % u64::from(partitions.max(1))).unwrap_or_default()
}

fn whole(lines: Lines, client: u64) -> log::Lines {
    let facts = lines.facts.iter().map(|it| fact(&lines, it)).collect();
    log::Lines { bytes: lines.bytes.into(), facts, client }
}

fn by_series(lines: &Lines, client: u64, partitions: u16) -> Vec<(u16, log::Lines)> {
    let mut parts: Vec<(Vec<u8>, Vec<log::Fact>)> = vec![Default::default(); usize::from(partitions)];
    let mut rest = lines.bytes.as_slice();
    for (it, series) in lines.facts.iter().zip(&lines.series) {
        // Invariant: the lines are as long as their facts say.
        let Some((line, others)) = rest.split_at_checked(it.length) else { break };
        rest = others;
        let (bytes, facts) = &mut parts[usize::from(of_digest(*series, partitions))];
        bytes.extend_from_slice(line);
        facts.push(fact(lines, it));
    }
    let parts = (0..).zip(parts).filter(|(_, (_, facts))| !facts.is_empty());
    parts
        .map(|(number, (bytes, facts))| (number, log::Lines { bytes: bytes.into(), facts, client }))
        .collect()
}

/// A line as the log's index knows it.
fn fact(lines: &Lines, fact: &Fact) -> log::Fact {
    log::Fact {
        name: NameDigest::of(&lines.name(fact)),
        // Invariant: the bounds of a metric bound its line far below this.
        bytes: u32::try_from(fact.length).unwrap_or(u32::MAX),
        ms: fact.millis,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_wire::metrics::{Kind, LineWriter, Metric};

    use super::*;

    /// Lines of `hosts` series, `rounds` of each, in turn.
    fn lines(hosts: usize, rounds: usize) -> Lines {
        let mut writer = LineWriter::new("client", 0, usize::MAX).with_series(true);
        for round in 0..rounds {
            for host in 0..hosts {
                let host = host.to_string();
                let tags = [("host", host.as_str()), ("zone", "a")];
                let turned = [("zone", "a"), ("host", host.as_str())];
                let tags = if round % 2 == 0 { tags } else { turned }.into_iter();
                let value = round as f64;
                let metric =
                    Metric { name: "cpu", value: value.into(), kind: Kind::Gauge, millis: Some(7), tags };
                writer.write(&metric).unwrap();
            }
        }
        writer.finish()
    }

    #[test]
    fn a_client_is_in_one_part_that_is_its_batch() {
        let batch = lines(20, 3);
        let parts = parts(batch.clone(), PartitionBy::Client, 41, 16);
        assert_eq!(parts.len(), 1);
        let (number, part) = &parts[0];
        assert_eq!((*number, &*part.bytes, part.facts.len()), (41 % 16, &*batch.bytes, 60));
    }

    #[test]
    fn each_series_is_in_one_part_in_order_and_every_line_in_one() {
        let batch = lines(200, 4);
        let parts = parts(batch.clone(), PartitionBy::Series, 41, 16);
        assert!(parts.is_sorted_by(|(one, _), (next, _)| one < next));
        assert_eq!(parts.len(), 16, "200 series are in all of 16 partitions");
        let mut found = std::collections::HashMap::<String, Vec<(u16, String)>>::new();
        for (number, part) in &parts {
            assert_eq!(part.facts.iter().map(|it| it.bytes as usize).sum::<usize>(), part.bytes.len());
            for line in std::str::from_utf8(&part.bytes).unwrap().lines() {
                let value: serde_json::Value = serde_json::from_str(line).unwrap();
                let host = value["tags"]["host"].as_str().unwrap().to_owned();
                found.entry(host).or_default().push((*number, value["value"].to_string()));
            }
        }
        assert_eq!(found.len(), 200);
        for (host, lines) in found {
            assert!(lines.iter().all(|(number, _)| *number == lines[0].0), "{host}: {lines:?}");
            let values: Vec<&str> = lines.iter().map(|(_, value)| value.as_str()).collect();
            assert_eq!(values, ["0.0", "1.0", "2.0", "3.0"], "{host}");
        }
    }

    #[test]
    fn a_series_is_where_it_was_in_every_version() {
        let batch = lines(2, 1);
        let numbers = batch.series.iter().map(|digest| of_digest(*digest, 64)).collect::<Vec<_>>();
        assert_eq!(numbers, [16, 8], "lines that are kept already are read from these partitions");
    }

    #[test]
    fn one_partition_has_everything_in_one_piece() {
        let batch = lines(20, 3);
        let parts = parts(batch.clone(), PartitionBy::Series, 41, 1);
        assert_eq!((parts.len(), parts[0].0, &*parts[0].1.bytes), (1, 0, &*batch.bytes));
    }
}
