//! The servers' own load generators, with one decision a call.

#[path = "../../src/redis/script/mod.rs"]
mod script;

use std::process::Command;

use tidegate_store::postgres::Durability;
use tidegate_testkit::postgres::PostgresServer;
use tidegate_testkit::redis::RedisServer;

/// Calls of the store's script per second by redis-benchmark, random keys.
pub(crate) fn redis(redis: &RedisServer, pipeline: &str, callers: &str) -> f64 {
    // One token bucket of a million per minute, one spend of one unit, as `wire.rs` packs them.
    let mut batch = vec![1, 0, 1];
    for number in [60_000.0_f64, 1_000_000.0, 0.0, 0.0, 0.0] {
        batch.extend(number.to_le_bytes());
    }
    batch.extend([1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1]);
    // redis-benchmark's arguments cannot hold a NUL, so the batch is a constant of the script.
    let constant: String = batch.iter().map(|byte| format!("\\{byte:03}")).collect();
    let script =
        script::SCRIPT.replacen("batch, at = ARGV[1], 1", &format!("batch, at = '{constant}', 1"), 1);
    let name = redis.command(&["SCRIPT", "LOAD", &script]);
    let output = Command::new("redis-benchmark")
        .args(["-p", &redis.port.to_string(), "-n", "200000", "-r", "100000", "-c", callers, "-P", pipeline])
        .args(["-q", "EVALSHA", name.trim(), "1", "tg:{00}:__rand_int__"])
        .output()
        .expect("redis-benchmark runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = |line: &str| {
        line.split(": ").nth(1)?.split(" requests per second").next()?.trim().parse::<f64>().ok()
    };
    text.split(['\r', '\n'])
        .filter(|line| line.contains("requests per second"))
        .filter_map(rate)
        .next_back()
        .unwrap_or(f64::NAN)
}

/// Makes the table that pgbench decides on, with room in its pages as the store's has.
pub(crate) fn make_buckets(server: &PostgresServer, durability: Durability) {
    let unlogged = if durability == Durability::Unlogged { "UNLOGGED" } else { "" };
    let columns = "(key bytea PRIMARY KEY, tat bigint NOT NULL) WITH (fillfactor = 50)";
    server.sql(&format!("CREATE {unlogged} TABLE buckets {columns}"));
    server.sql("INSERT INTO buckets SELECT int4send(key), 0 FROM generate_series(1, 100000) AS key");
    server.sql("VACUUM ANALYZE buckets");
}

/// Decisions per second by pgbench, one prepared statement each, random keys.
pub(crate) fn postgres(server: &PostgresServer, durability: Durability, callers: &str) -> f64 {
    let commit = if durability == Durability::Synchronous { "on" } else { "off" };
    let output = Command::new("pgbench")
        .args(["-h", "127.0.0.1", "-p", &server.port.to_string(), "-U", "postgres", "-n", "-M", "prepared"])
        .args(["-c", callers, "-T", "2", "-f"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/shared_stores/bucket.pgbench"))
        .arg("postgres")
        .env("PGOPTIONS", format!("-c synchronous_commit={commit}"))
        .output()
        .expect("pgbench runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    rate.unwrap_or_else(|| panic!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr)))
}
