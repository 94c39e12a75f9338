//! Load generators: wrk for HTTP, redis-benchmark for Redis; and reading what they print.

use std::path::Path;
use std::process::Command;

use anyhow::Context;

use super::case::Subject;
use super::server::BenchServer;
use crate::chore::{capture, find};

/// Threads of a generator. The servers share the same cores, as in every figure we compare with.
pub(super) const THREADS: u32 = 2;
/// redis-benchmark counts requests, not seconds; about this many are answered in a second.
const REDIS_REQUESTS_PER_SECOND: u32 = 60_000;

/// One run's result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LoadRun {
    /// Replies with a good status per second.
    pub(crate) throughput: f64,
    /// Good replies in all.
    pub(crate) replies: f64,
    /// 99th percentile of the service time, in milliseconds; not a number if the generator does not say.
    pub(crate) p99_ms: f64,
    /// Failed connections, requests without a reply, replies with another status.
    pub(crate) errors: f64,
}

/// Loads `server` once.
///
/// # Errors
/// When the generator is missing, fails, or prints an unexpected form.
pub(crate) fn load(
    root: &Path,
    server: &BenchServer,
    connections: u32,
    seconds: u32,
    clients: u32,
) -> anyhow::Result<LoadRun> {
    match server.subject {
        Subject::RedisLua | Subject::RedisGet => redis_benchmark(server, connections, seconds, clients),
        Subject::Tidegate | Subject::Nginx | Subject::Throttlecrab => {
            wrk(root, server, connections, seconds, clients)
        }
    }
}

fn wrk(
    root: &Path,
    server: &BenchServer,
    connections: u32,
    seconds: u32,
    clients: u32,
) -> anyhow::Result<LoadRun> {
    let path = path_of(server.subject);
    let printed = capture(
        Command::new(find("wrk").context("wrk is missing: `make setup`")?)
            .args(["--latency", "--timeout", "10s"])
            .arg(format!("--threads={THREADS}"))
            .arg(format!("--connections={connections}"))
            .arg(format!("--duration={seconds}s"))
            .arg("--script")
            .arg(root.join("regression/clients.lua"))
            .arg(format!("http://{}{path}", server.address))
            .env("BENCH_CLIENTS", clients.to_string())
            .env("BENCH_BODY", body_of(server.subject)),
    )?;
    read_wrk(&printed).with_context(|| format!("wrk printed an unexpected form:\n{printed}"))
}

/// Where a subject decides.
pub(crate) fn path_of(subject: Subject) -> &'static str {
    match subject {
        Subject::Throttlecrab => "/throttle",
        Subject::Tidegate | Subject::Nginx | Subject::RedisLua | Subject::RedisGet => "/api/v1/ratelimit",
    }
}

/// The body that asks for a decision; `CLIENT` stands for the client's id.
pub(crate) fn body_of(subject: Subject) -> &'static str {
    match subject {
        Subject::Throttlecrab => r#"{"key":"CLIENT","max_burst":100,"count_per_period":100,"period":60}"#,
        Subject::Tidegate | Subject::Nginx | Subject::RedisLua | Subject::RedisGet => {
            r#"{"client_id":"CLIENT","resource":"api"}"#
        }
    }
}

fn read_wrk(printed: &str) -> Option<LoadRun> {
    let after = |mark: &str| printed.lines().find_map(|line| line.trim().strip_prefix(mark));
    let rate: f64 = after("Requests/sec:")?.trim().parse().ok()?;
    let p99_ms = milliseconds(after("99%")?.trim())?;
    let summary = printed.lines().find(|line| line.contains(" requests in "))?;
    let requests: f64 = summary.split_whitespace().next()?.parse().ok()?;
    let bad: f64 = after("Non-2xx or 3xx responses:").map_or(Some(0.0), |n| n.trim().parse().ok())?;
    let socket: f64 = after("Socket errors:")
        .map_or(0.0, |kinds| kinds.split([' ', ',']).filter_map(|word| word.parse::<f64>().ok()).sum());
    let good = (requests - bad).max(0.0);
    let throughput = if requests > 0.0 { rate * good / requests } else { 0.0 };
    Some(LoadRun { throughput, replies: good, p99_ms, errors: bad + socket })
}

/// `850.00us`, `1.20ms`, `2.50s`.
fn milliseconds(text: &str) -> Option<f64> {
    let units = [("us", 0.001), ("ms", 1.0), ("s", 1_000.0), ("m", 60_000.0)];
    let (number, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    Some(number.parse::<f64>().ok()? * factor)
}

fn redis_benchmark(
    server: &BenchServer,
    connections: u32,
    seconds: u32,
    clients: u32,
) -> anyhow::Result<LoadRun> {
    let requests = REDIS_REQUESTS_PER_SECOND.saturating_mul(seconds);
    let printed = capture(
        Command::new("redis-benchmark")
            .args(["-h", "127.0.0.1", "--csv", "--threads", &THREADS.to_string()])
            .args(["-p", &server.address.port().to_string()])
            .args(["-c", &connections.to_string()])
            .args(["-n", &requests.to_string()])
            .args(["-r", &clients.to_string()])
            .args(["EVALSHA", &server.script, "1", "client-__rand_int__", "100", "60"]),
    )?;
    read_redis_benchmark(&printed, requests)
        .with_context(|| format!("redis-benchmark printed an unexpected form:\n{printed}"))
}

/// The last line: `"EVALSHA ...","rps","avg","min","p50","p95","p99","max"`.
pub(super) fn read_redis_benchmark(printed: &str, requests: u32) -> Option<LoadRun> {
    let cells: Vec<&str> = printed.lines().last()?.rsplit(',').map(|cell| cell.trim_matches('"')).collect();
    let throughput = cells.get(6)?.parse().ok()?;
    let p99_ms = cells.get(1)?.parse().ok()?;
    Some(LoadRun { throughput, replies: f64::from(requests), p99_ms, errors: 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRK: &str = "Running 3s test @ http://127.0.0.1:1/\n  2 threads and 64 connections\n  Latency Distribution\n     50%  310.00us\n     99%    1.25ms\n  300000 requests in 3.00s, 50.00MB read\n";

    #[test]
    fn a_clean_run_of_wrk_is_read() {
        let printed = format!("{WRK}Requests/sec: 100000.00\nTransfer/sec:     16.00MB\n");
        let run = read_wrk(&printed).unwrap();
        assert_eq!(run, LoadRun { throughput: 100_000.0, replies: 300_000.0, p99_ms: 1.25, errors: 0.0 });
    }

    #[test]
    fn bad_replies_and_socket_errors_are_no_throughput() {
        let printed = format!(
            "{WRK}  Socket errors: connect 1, read 2, write 0, timeout 4\n  Non-2xx or 3xx responses: 150000\nRequests/sec: 100000.00\n"
        );
        let run = read_wrk(&printed).unwrap();
        assert_eq!((run.throughput, run.errors), (50_000.0, 150_007.0));
    }

    #[test]
    fn redis_benchmark_is_read() {
        let printed = "\"test\",\"rps\",\"avg\",\"min\",\"p50\",\"p95\",\"p99\",\"max\"\n\"EVALSHA a,b\",\"90000.00\",\"0.5\",\"0.1\",\"0.4\",\"0.9\",\"1.7\",\"3.0\"\n";
        let run = read_redis_benchmark(printed, 100).unwrap();
        assert_eq!((run.throughput, run.p99_ms), (90_000.0, 1.7));
    }

    #[test]
    fn durations_have_their_units() {
        assert_eq!(milliseconds("1.50s"), Some(1_500.0));
        assert!((milliseconds("850.00us").unwrap() - 0.85).abs() < 1e-9);
        assert_eq!(milliseconds("fast"), None);
    }
}
