//! The protocols beside HTTP: commands of Redis clients, unary calls of gRPC, and nodes that share a store.
//!
//! Each generator is the one that is customary for its protocol, on as many threads as for HTTP:
//! redis-benchmark with keys at random, h2load with one message that it repeats (so one client). Every
//! subject is asked once before the load and must answer as expected.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use super::case::{Case, Subject};
use super::figure::{Figure, one_key_at, turns};
use super::generator::{LoadRun, THREADS, read_redis_benchmark};
use super::server::{BenchProtocol, BenchServer};
use crate::chore::{capture, find};

/// A load of Redis commands, but for its levels.
pub(super) struct Resp {
    pub(super) connections: u32,
    pub(super) seconds: u32,
    pub(super) repeats: u32,
    pub(super) keys: u32,
}

/// Loads every subject by redis-benchmark, at each depth of pipeline.
pub(super) fn resp(root: &Path, case: &Case, load: &Resp, pipelines: &[u32]) -> anyhow::Result<Vec<Figure>> {
    let servers = start(root, case, BenchProtocol::Resp)?;
    for server in &servers {
        let port = server.address.port().to_string();
        let command = command_of(server, "check");
        let said = capture(Command::new("redis-cli").args(["-p", &port]).args(&command))?;
        if said.lines().next() != Some(first_line(server.subject)) {
            bail!("{} answers {said}", server.subject.name());
        }
    }
    let levels = pipelines.iter().map(|pipeline| {
        turns(&servers, *pipeline, load.repeats, |server| redis_benchmark(server, load, *pipeline))
    });
    Ok(levels.collect::<Result<Vec<_>, _>>()?.concat())
}

fn start(root: &Path, case: &Case, protocol: BenchProtocol) -> anyhow::Result<Vec<BenchServer>> {
    let config = case.tidegate_config.as_ref().map(|file| case.folder.join(file));
    let start =
        |subject: &Subject| BenchServer::start_speaking(root, *subject, config.as_deref(), protocol, &[]);
    case.subjects.iter().map(start).collect()
}

/// The command that asks a subject about `key`: 100 at once and per minute.
fn command_of(server: &BenchServer, key: &str) -> Vec<String> {
    let key = format!("client-{key}");
    let words = match server.subject {
        Subject::RedisGet => vec!["GET", &key],
        Subject::RedisLua => vec!["EVALSHA", &server.script, "1", &key, "100", "60"],
        Subject::Throttlecrab => vec!["THROTTLE", &key, "100", "100", "60"],
        Subject::Tidegate | Subject::Nginx => vec!["CL.THROTTLE", &key, "99", "100", "60"],
    };
    words.into_iter().map(str::to_owned).collect()
}

/// What redis-cli prints first of an answer that admits.
fn first_line(subject: Subject) -> &'static str {
    match subject {
        Subject::RedisGet => "",
        Subject::RedisLua | Subject::Throttlecrab => "1",
        Subject::Tidegate | Subject::Nginx => "0",
    }
}

/// About as many commands as are answered in a second, or fewer. redis-benchmark counts commands, and with
/// threads it looks for its end every 250 ms only: a rate from a run of one second could be a fifth too low.
fn commands_per_second(subject: Subject, pipeline: u32) -> u32 {
    match subject {
        Subject::Tidegate | Subject::RedisGet => 80_000 * pipeline.min(12),
        Subject::RedisLua => 80_000 * pipeline.min(2),
        Subject::Throttlecrab | Subject::Nginx => 80_000 / pipeline.min(4),
    }
}

fn redis_benchmark(server: &BenchServer, load: &Resp, pipeline: u32) -> anyhow::Result<LoadRun> {
    let requests = commands_per_second(server.subject, pipeline) * load.seconds;
    let printed = capture(
        Command::new("redis-benchmark")
            .args(["-h", "127.0.0.1", "--csv", "--threads", &THREADS.to_string()])
            .args(["-p", &server.address.port().to_string()])
            .args(["-c", &load.connections.to_string()])
            .args(["-P", &pipeline.to_string()])
            .args(["-n", &requests.to_string()])
            .args(["-r", &load.keys.to_string()])
            .args(command_of(server, "__rand_int__")),
    )?;
    read_redis_benchmark(&printed, requests)
        .with_context(|| format!("redis-benchmark printed an unexpected form:\n{printed}"))
}

/// Loads every subject by h2load, in each shape.
pub(super) fn grpc(
    root: &Path,
    case: &Case,
    shapes: &[[u32; 2]],
    seconds: u32,
    repeats: u32,
) -> anyhow::Result<Vec<Figure>> {
    let servers = start(root, case, BenchProtocol::Grpc)?;
    let folder = std::env::temp_dir().join(format!("tidegate-bench-grpc-{}", std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let body = |server: &BenchServer| folder.join(server.subject.name());
    for server in &servers {
        std::fs::write(body(server), message_of(server.subject)).context("a message")?;
        check(server, &body(server))?;
    }
    let mut figures = Vec::new();
    for [connections, streams] in shapes {
        let load = |server: &BenchServer| h2load(server, &body(server), [*connections, *streams], seconds);
        figures.extend(turns(&servers, connections * streams, repeats, load)?);
    }
    // A leftover in the temporary folder harms nobody.
    drop(std::fs::remove_dir_all(&folder));
    Ok(figures)
}

/// Where a subject decides.
fn path_of(subject: Subject) -> &'static str {
    match subject {
        Subject::Throttlecrab => "/throttlecrab.RateLimiter/Throttle",
        _ => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    }
}

/// One length-prefixed message that asks for a decision, in protobuf.
fn message_of(subject: Subject) -> Vec<u8> {
    let message = if subject == Subject::Throttlecrab {
        // key = 1, max_burst = 2, count_per_period = 3, period = 4, quantity = 5
        let number = |field: u8, value: &[u8]| [&[field << 3][..], value].concat();
        let million = [0xc0, 0x84, 0x3d];
        [text(1, b"client-1"), number(2, &million), number(3, &million), number(4, &[1]), number(5, &[1])]
            .concat()
    } else {
        // domain = 1, descriptors = 2 { entries = 1 { key = 1, value = 2 } }
        let entry = [text(1, b"client"), text(2, b"client-1")].concat();
        [text(1, b"bench"), text(2, &text(1, &entry))].concat()
    };
    let length = u8::try_from(message.len()).unwrap_or(u8::MAX);
    [&[0, 0, 0, 0, length][..], &message].concat()
}

/// A field with a length: a string or a message.
fn text(field: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    [&[field << 3 | 2, length][..], bytes].concat()
}

const HEADERS: [&str; 2] = ["content-type: application/grpc", "te: trailers"];

/// Fails unless the server answers a call as gRPC has it; nginx need only answer.
fn check(server: &BenchServer, body: &Path) -> anyhow::Result<()> {
    let mut call = Command::new("curl");
    call.args(["--silent", "--http2-prior-knowledge", "--dump-header", "-", "--output", "/dev/null"])
        .args(HEADERS.iter().flat_map(|header| ["--header", header]))
        .arg(format!("http://{}{}", server.address, path_of(server.subject)));
    // nginx answers before it has read the message and resets the stream: to curl an error, now and then.
    let nginx = server.subject == Subject::Nginx;
    if !nginx {
        call.arg("--data-binary").arg(format!("@{}", body.display()));
    }
    let said = capture(&mut call)?;
    let wanted = if nginx { "HTTP/2 200" } else { "grpc-status: 0" };
    if !said.contains(wanted) {
        bail!("{} answers {said}", server.subject.name());
    }
    Ok(())
}

fn h2load(server: &BenchServer, body: &Path, shape: [u32; 2], seconds: u32) -> anyhow::Result<LoadRun> {
    let [connections, streams] = shape.map(|number| number.to_string());
    let printed = capture(
        Command::new(find("h2load").context("h2load is missing: `make setup`")?)
            .args(["-t", &THREADS.to_string(), "-c", &connections, "-m", &streams])
            .args(["-D", &seconds.to_string()])
            .args(HEADERS.iter().flat_map(|header| ["-H", header]))
            .arg("-d")
            .arg(body)
            .arg(format!("http://{}{}", server.address, path_of(server.subject))),
    )?;
    read_h2load(&printed).with_context(|| format!("h2load printed an unexpected form:\n{printed}"))
}

fn read_h2load(printed: &str) -> Option<LoadRun> {
    let after = |mark: &str| printed.lines().find_map(|line| line.strip_prefix(mark));
    let throughput = after("finished in ")?.split(", ").nth(1)?.strip_suffix(" req/s")?.parse().ok()?;
    let count = |line: &str, what: &str| -> Option<f64> {
        line.split(", ").find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
    };
    let requests = after("requests: ")?;
    let failed = count(requests, " failed")?;
    let replies = count(after("status codes: ")?, " 2xx")?;
    Some(LoadRun { throughput, replies, p99_ms: f64::NAN, errors: failed })
}

/// How many of `requests`, dealt out to `nodes` that count in one Redis, are admitted.
pub(super) fn one_key_on_redis(
    root: &Path,
    case: &Case,
    nodes: u32,
    requests: u32,
) -> anyhow::Result<Vec<Figure>> {
    let redis = BenchServer::start(root, Subject::RedisGet, None)?;
    let config = case.tidegate_config.as_ref().map(|file| case.folder.join(file));
    let store = format!("redis://{}", redis.address);
    // No answer may be given blindly, however long the queue: this is about counting.
    let environment = [("TIDEGATE_STORE", store.as_str()), ("TIDEGATE_SHARED_DEADLINE", "1s")];
    let start = |_| {
        BenchServer::start_speaking(
            root,
            Subject::Tidegate,
            config.as_deref(),
            BenchProtocol::Http,
            &environment,
        )
    };
    let nodes = (0..nodes).map(start).collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<_> = nodes.iter().map(|node| node.address).collect();
    one_key_at(Subject::Tidegate, &addresses, requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h2load_is_read() {
        let printed = "starting benchmark...\nfinished in 3.00s, 67012.33 req/s, 9.1MB/s\nrequests: 201037 total, 201101 started, 201037 done, 201036 succeeded, 1 failed, 0 errored, 0 timeout\nstatus codes: 201036 2xx, 0 3xx, 0 4xx, 0 5xx\ntraffic: 1MB\n";
        let run = read_h2load(printed).unwrap();
        assert_eq!((run.throughput, run.replies, run.errors), (67_012.33, 201_036.0, 1.0));
        assert!(run.p99_ms.is_nan());
    }

    #[test]
    fn a_message_is_one_frame_of_fields() {
        assert_eq!(text(2, b"ab"), b"\x12\x02ab");
        let message = message_of(Subject::Tidegate);
        assert_eq!(message, b"\0\0\0\0\x1d\x0a\x05bench\x12\x14\x0a\x12\x0a\x06client\x12\x08client-1");
    }
}
