//! redis-benchmark, with the store's script and one decision a call.

use std::process::Command;

use tidegate_testkit::redis::RedisServer;

/// Calls per second, random keys.
pub(crate) fn rate(redis: &RedisServer, pipeline: &str, callers: &str) -> f64 {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/redis/decide.lua");
    let script = std::fs::read_to_string(script).expect("the script is beside");
    // One token bucket of a million per minute, one spend of one unit, as `wire.rs` packs them.
    let mut batch = vec![1, 0, 1];
    for number in [60_000.0_f64, 1_000_000.0, 0.0, 0.0, 0.0] {
        batch.extend(number.to_le_bytes());
    }
    batch.extend([1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1]);
    // redis-benchmark's arguments cannot hold a NUL, so the batch is a constant of the script.
    let constant: String = batch.iter().map(|byte| format!("\\{byte:03}")).collect();
    let script = script.replacen("batch, at = ARGV[1], 1", &format!("batch, at = '{constant}', 1"), 1);
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
