//! Doing to each subject what a case asks, and keeping every figure.
//!
//! Subjects take turns inside one run, in alternating order: the machine is rarely the same ten
//! minutes later, and a ratio is only as good as its two halves are near in time. The median of the
//! repeats counts. Before the load a few replies are read, so that a server which answers fast and
//! wrong has no figure at all; denials and errors are told apart from admitted requests.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::bail;

use super::case::{Case, Load, Quantity, Subject};
use super::client::{Connection, decision, post};
use super::generator::{self, Run};
use super::protocols;
use super::server::Server;

/// Replies that are read before a load.
const CHECKED: usize = 100;
/// Connections over which keys are sent, one request in flight on each. Not pipelined on one: a peer
/// that leaves Nagle's algorithm on would wait 40 ms for each batch.
const FEEDERS: usize = 64;
/// Keys sent before memory is read for the first time, so that buffers and pools exist.
const WARM_KEYS: u32 = 10_000;

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
    fn new(quantity: Quantity, connections: u32, subject: Subject, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { quantity, connections, subject, values }
    }

    fn single(quantity: Quantity, subject: Subject, value: f64) -> Self {
        Self::new(quantity, 0, subject, vec![value])
    }

    /// The median (the upper one of an even number).
    pub(crate) fn median(&self) -> f64 {
        self.values[self.values.len() / 2]
    }
}

/// Runs a case.
///
/// # Errors
/// When a subject cannot be started, answers wrongly, or the generator fails.
pub(crate) fn case(root: &Path, case: &Case) -> anyhow::Result<Vec<Figure>> {
    let config = case.tidegate_config.as_ref().map(|file| case.folder.join(file));
    let start = |subject| Server::start(root, subject, config.as_deref());
    match case.load {
        Load::Throughput { ref connections, seconds, repeats, clients } => {
            let servers =
                case.subjects.iter().map(|subject| start(*subject)).collect::<Result<Vec<_>, _>>()?;
            servers.iter().try_for_each(check)?;
            let plan = Plan { seconds, repeats, clients };
            let levels = connections.iter().map(|level| throughput(root, &servers, *level, &plan));
            Ok(levels.collect::<Result<Vec<_>, _>>()?.concat())
        }
        Load::IdleConnections { connections } => {
            let subjects = case.subjects.iter();
            subjects.map(|subject| idle_connections(&start(*subject)?, connections)).collect()
        }
        Load::TrackedKeys { keys } => {
            let subjects = case.subjects.iter();
            subjects.map(|subject| tracked_keys(&start(*subject)?, keys)).collect()
        }
        Load::OneKey { limit, requests } => {
            let subjects = case.subjects.iter();
            let figures = subjects.map(|subject| one_key(&start(*subject)?, limit, requests));
            Ok(figures.collect::<Result<Vec<_>, _>>()?.concat())
        }
        Load::OneKeyOnRedis { nodes, requests } => protocols::one_key_on_redis(root, case, nodes, requests),
        Load::Resp { connections, ref pipelines, seconds, repeats, keys } => {
            protocols::resp(root, case, &protocols::Resp { connections, seconds, repeats, keys }, pipelines)
        }
        Load::Script { .. } => bail!("a script has no figures but those that it prints"),
        Load::Grpc { ref shapes, seconds, repeats } => protocols::grpc(root, case, shapes, seconds, repeats),
    }
}

struct Plan {
    seconds: u32,
    repeats: u32,
    clients: u32,
}

/// A server that does not admit new clients is not measured.
fn check(server: &Server) -> anyhow::Result<()> {
    if server.subject == Subject::RedisLua {
        return Ok(());
    }
    let mut connection = Connection::open(server.address)?;
    for number in 0..CHECKED {
        connection.send(&decision(server.subject, &format!("check-{number}")))?;
        let reply = connection.receive()?;
        if !reply.admits() {
            bail!("{} answers {}: {}", server.subject.name(), reply.status, reply.body);
        }
    }
    Ok(())
}

fn throughput(root: &Path, servers: &[Server], connections: u32, plan: &Plan) -> anyhow::Result<Vec<Figure>> {
    let load = |server: &Server| generator::load(root, server, connections, plan.seconds, plan.clients);
    turns(servers, connections, plan.repeats, load)
}

/// Loads the servers in turn, alternating the order; the figures of level `connections`.
pub(super) fn turns(
    servers: &[Server],
    connections: u32,
    repeats: u32,
    load: impl Fn(&Server) -> anyhow::Result<Run>,
) -> anyhow::Result<Vec<Figure>> {
    let mut runs: Vec<Vec<(Run, f64)>> = vec![Vec::new(); servers.len()];
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
        let mut add = |quantity, value: fn(&(Run, f64)) -> f64| {
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

/// Resident bytes that each idle, kept-alive connection adds, kernel buffers not counted.
fn idle_connections(server: &Server, connections: u32) -> anyhow::Result<Figure> {
    check(server)?;
    let request = decision(server.subject, "idle");
    let before = server.resident_bytes();
    let mut held = Vec::new();
    for _ in 0..connections {
        let mut connection = Connection::open(server.address)?;
        connection.send(&request)?;
        connection.receive()?;
        held.push(connection);
    }
    let grown = server.resident_bytes().saturating_sub(before);
    Ok(Figure::single(Quantity::Bytes, server.subject, per(grown, held.len())))
}

/// Resident bytes that each distinct client adds, its key included.
fn tracked_keys(server: &Server, keys: u32) -> anyhow::Result<Figure> {
    let opened = (0..FEEDERS).map(|_| Connection::open(server.address));
    let mut feeders = opened.collect::<Result<Vec<_>, _>>()?;
    send_each(server.subject, &mut feeders, "warm", WARM_KEYS)?;
    let before = server.resident_bytes();
    send_each(server.subject, &mut feeders, "user", keys)?;
    let grown = server.resident_bytes().saturating_sub(before);
    Ok(Figure::single(Quantity::Bytes, server.subject, per(grown, keys as usize)))
}

fn send_each(subject: Subject, feeders: &mut [Connection], prefix: &str, keys: u32) -> anyhow::Result<()> {
    let mut names = (0..keys).map(|key| format!("{prefix}-{key:08}"));
    loop {
        let mut asked = 0;
        for (feeder, name) in feeders.iter_mut().zip(&mut names) {
            feeder.send(&decision(subject, &name))?;
            asked += 1;
        }
        if asked == 0 {
            return Ok(());
        }
        for feeder in &mut feeders[..asked] {
            let reply = feeder.receive()?;
            if !reply.admits() {
                bail!("{} answers a new client {}: {}", subject.name(), reply.status, reply.body);
            }
        }
    }
}

/// How many of `requests`, all sent before the first reply is read, are admitted.
fn one_key(server: &Server, limit: u32, requests: u32) -> anyhow::Result<Vec<Figure>> {
    if server.subject == Subject::Tidegate {
        let mut connection = Connection::open(server.address)?;
        let body = format!(r#"{{"window_seconds":60,"request_per_window":{limit}}}"#);
        connection.send(&post("/api/v1/configure", &body))?;
        let reply = connection.receive()?;
        if reply.status != 200 {
            bail!("configure answers {}: {}", reply.status, reply.body);
        }
    }
    one_key_at(server.subject, &[server.address], requests)
}

/// The same for nodes that were configured already, the requests dealt out in turn.
pub(super) fn one_key_at(
    subject: Subject,
    nodes: &[SocketAddr],
    requests: u32,
) -> anyhow::Result<Vec<Figure>> {
    let request = decision(subject, "one");
    let turns = nodes.iter().cycle().take(requests as usize);
    let opened = turns.map(|node| Connection::open(*node));
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

#[expect(clippy::cast_precision_loss, reason = "a mean of bytes; 2^53 of them are not reached")]
fn per(bytes: u64, count: usize) -> f64 {
    bytes as f64 / count.max(1) as f64
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
