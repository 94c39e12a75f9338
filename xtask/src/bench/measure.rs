//! Doing to each subject what a case asks, and keeping every figure.
//!
//! Before the load a few replies are read, so that a server which answers fast and
//! wrong has no figure at all; denials and errors are told apart from admitted requests.

use std::path::Path;

use anyhow::bail;

use super::case::{Case, Load, Quantity, Subject};
use super::client::{BenchConnection, decision, post};
use super::figure::{Figure, one_key_at, turns};
use super::generator;
use super::protocols;
use super::server::BenchServer;

/// Replies that are read before a load.
const CHECKED: usize = 100;
/// Connections over which keys are sent, one request in flight on each. Not pipelined on one: a peer
/// that leaves Nagle's algorithm on would wait 40 ms for each batch.
const FEEDERS: usize = 64;
/// Keys sent before memory is read for the first time, so that buffers and pools exist.
const WARM_KEYS: u32 = 10_000;

/// Runs a case.
///
/// # Errors
/// When a subject cannot be started, answers wrongly, or the generator fails.
pub(crate) fn case(root: &Path, case: &Case) -> anyhow::Result<Vec<Figure>> {
    let config = case.tidegate_config.as_ref().map(|file| case.folder.join(file));
    let start = |subject| BenchServer::start(root, subject, config.as_deref());
    match case.load {
        Load::Throughput { ref connections, seconds, repeats, clients } => {
            let servers =
                case.subjects.iter().map(|subject| start(*subject)).collect::<Result<Vec<_>, _>>()?;
            servers.iter().try_for_each(check)?;
            let plan = BenchPlan { seconds, repeats, clients };
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

struct BenchPlan {
    seconds: u32,
    repeats: u32,
    clients: u32,
}

/// A server that does not admit new clients is not measured.
fn check(server: &BenchServer) -> anyhow::Result<()> {
    if server.subject == Subject::RedisLua {
        return Ok(());
    }
    let mut connection = BenchConnection::open(server.address)?;
    for number in 0..CHECKED {
        connection.send(&decision(server.subject, &format!("check-{number}")))?;
        let reply = connection.receive()?;
        if !reply.admits() {
            bail!("{} answers {}: {}", server.subject.name(), reply.status, reply.body);
        }
    }
    Ok(())
}

fn throughput(
    root: &Path,
    servers: &[BenchServer],
    connections: u32,
    plan: &BenchPlan,
) -> anyhow::Result<Vec<Figure>> {
    let load = |server: &BenchServer| generator::load(root, server, connections, plan.seconds, plan.clients);
    turns(servers, connections, plan.repeats, load)
}

/// Resident bytes that each idle, kept-alive connection adds, kernel buffers not counted.
fn idle_connections(server: &BenchServer, connections: u32) -> anyhow::Result<Figure> {
    check(server)?;
    let request = decision(server.subject, "idle");
    let before = server.resident_bytes();
    let mut held = Vec::new();
    for _ in 0..connections {
        let mut connection = BenchConnection::open(server.address)?;
        connection.send(&request)?;
        connection.receive()?;
        held.push(connection);
    }
    let grown = server.resident_bytes().saturating_sub(before);
    Ok(Figure::single(Quantity::Bytes, server.subject, per(grown, held.len())))
}

/// Resident bytes that each distinct client adds, its key included.
fn tracked_keys(server: &BenchServer, keys: u32) -> anyhow::Result<Figure> {
    let opened = (0..FEEDERS).map(|_| BenchConnection::open(server.address));
    let mut feeders = opened.collect::<Result<Vec<_>, _>>()?;
    send_each(server.subject, &mut feeders, "warm", WARM_KEYS)?;
    let before = server.resident_bytes();
    send_each(server.subject, &mut feeders, "user", keys)?;
    let grown = server.resident_bytes().saturating_sub(before);
    Ok(Figure::single(Quantity::Bytes, server.subject, per(grown, keys as usize)))
}

fn send_each(
    subject: Subject,
    feeders: &mut [BenchConnection],
    prefix: &str,
    keys: u32,
) -> anyhow::Result<()> {
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
fn one_key(server: &BenchServer, limit: u32, requests: u32) -> anyhow::Result<Vec<Figure>> {
    if server.subject == Subject::Tidegate {
        let mut connection = BenchConnection::open(server.address)?;
        let body = format!(r#"{{"window_seconds":60,"request_per_window":{limit}}}"#);
        connection.send(&post("/api/v1/configure", &body))?;
        let reply = connection.receive()?;
        if reply.status != 200 {
            bail!("configure answers {}: {}", reply.status, reply.body);
        }
    }
    one_key_at(server.subject, &[server.address], requests)
}

#[expect(clippy::cast_precision_loss, reason = "a mean of bytes; 2^53 of them are not reached")]
fn per(bytes: u64, count: usize) -> f64 {
    bytes as f64 / count.max(1) as f64
}
