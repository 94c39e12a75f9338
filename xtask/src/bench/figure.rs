//! The figures of a case, and the loads from which more than one protocol has them.
//!
//! Subjects take turns inside one run, in alternating order: the machine is rarely the same ten
//! minutes later, and a ratio is only as good as its two halves are near in time. The median of the
//! repeats counts.

use std::net::SocketAddr;

use super::case::{Quantity, Subject};
use super::client::{BenchConnection, decision};
use super::generator::LoadRun;
use super::server::BenchServer;

/// One figure of a case: the median of its repeats, and their range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    /// What it is.
    pub(crate) quantity: Quantity,
    /// At which level of concurrency; 0: the case has only one.
    pub(crate) connections: u32,
    /// Whose.
    pub(crate) subject: Subject,
    /// Every repeat's value, in ascending order; never empty.
    pub(crate) values: Vec<f64>,
}

impl Figure {
    pub(super) fn new(quantity: Quantity, connections: u32, subject: Subject, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { quantity, connections, subject, values }
    }

    pub(super) fn single(quantity: Quantity, subject: Subject, value: f64) -> Self {
        Self::new(quantity, 0, subject, vec![value])
    }

    /// The median (the upper one of an even number).
    pub(crate) fn median(&self) -> f64 {
        self.values[self.values.len() / 2]
    }
}

/// Loads the servers in turn, alternating the order; the figures of level `connections`.
pub(super) fn turns(
    servers: &[BenchServer],
    connections: u32,
    repeats: u32,
    load: impl Fn(&BenchServer) -> anyhow::Result<LoadRun>,
) -> anyhow::Result<Vec<Figure>> {
    let mut runs: Vec<Vec<(LoadRun, f64)>> = vec![Vec::new(); servers.len()];
    for repeat in 0..repeats {
        let mut turns: Vec<usize> = (0..servers.len()).collect();
        if repeat % 2 == 1 {
            turns.reverse();
        }
        for turn in turns {
            let server = &servers[turn];
            let before = server.cpu_seconds();
            let run = load(server)?;
            let cpu = (server.cpu_seconds() - before) / (run.replies.max(1.0) / 1e6);
            println!(
                "  {:12} at {connections:6}: {:9.0} replies/s, p99 {:8.2} ms, {:.0} errors",
                server.subject.name(),
                run.throughput,
                run.p99_ms,
                run.errors
            );
            runs[turn].push((run, cpu));
        }
    }
    let mut figures = Vec::new();
    for (server, runs) in servers.iter().zip(&runs) {
        let mut add = |quantity, value: fn(&(LoadRun, f64)) -> f64| {
            figures.push(Figure::new(
                quantity,
                connections,
                server.subject,
                runs.iter().map(value).collect(),
            ));
        };
        add(Quantity::Throughput, |(run, _)| run.throughput);
        // Not every generator says.
        if runs.iter().all(|(run, _)| run.p99_ms.is_finite()) {
            add(Quantity::P99, |(run, _)| run.p99_ms);
        }
        add(Quantity::Cpu, |(_, cpu)| *cpu);
        // The worst repeat is the one to know.
        let errors = runs.iter().map(|(run, _)| run.errors).fold(0.0, f64::max);
        figures.push(Figure::new(Quantity::Errors, connections, server.subject, vec![errors]));
    }
    Ok(figures)
}

/// How many of `requests` are admitted, dealt out in turn to nodes that were configured already. All are sent before the first reply
/// is read.
pub(super) fn one_key_at(
    subject: Subject,
    nodes: &[SocketAddr],
    requests: u32,
) -> anyhow::Result<Vec<Figure>> {
    let request = decision(subject, "one");
    let turns = nodes.iter().cycle().take(requests as usize);
    let opened = turns.map(|node| BenchConnection::open(*node));
    let mut connections = opened.collect::<Result<Vec<_>, _>>()?;
    for connection in &mut connections {
        connection.send(&request)?;
    }
    let (mut admitted, mut denied, mut errors) = (0.0, 0.0, 0.0);
    for connection in &mut connections {
        match connection.receive() {
            Ok(reply) if reply.admits() => admitted += 1.0,
            Ok(reply) if reply.denies() => denied += 1.0,
            Ok(_) | Err(_) => errors += 1.0,
        }
    }
    Ok(vec![
        Figure::single(Quantity::Admitted, subject, admitted),
        Figure::single(Quantity::Denied, subject, denied / f64::from(requests) * 100.0),
        Figure::single(Quantity::Errors, subject, errors),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_of_sorted_values() {
        let figure = Figure::new(Quantity::P99, 64, Subject::Nginx, vec![9.0, 1.0, 2.0]);
        assert_eq!((figure.median(), figure.values[0], figure.values[2]), (2.0, 1.0, 9.0));
    }
}
