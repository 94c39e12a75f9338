//! Lines a second by durability and batch: `cargo run --release --example append -p tidegate-log -- FOLDER [SECONDS]`.
//!
//! Each of 64 clients appends a batch, waits for the answer, and appends the next. The batches are made
//! before, so that the figures are the log's own.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints figures for a person")]

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_log::{
    AppendError, Clock, Describe, Description, Durability, Fact, Lines, Log, NameDigest, RealFiles, Settings,
};

struct Nameless;

impl Describe for Nameless {
    fn describe<'line>(&self, _: &'line [u8]) -> Option<Description<'line>> {
        Some(Description { name: Cow::Borrowed("cpu.usage"), ms: 0 })
    }
}

#[expect(clippy::disallowed_methods, reason = "the log is told the time, here the machine's")]
fn clock() -> Clock {
    Clock {
        monotonic: Instant::now,
        wall_ms: || i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap(),
    }
}

fn batch(lines: usize, client: u64) -> Lines {
    let mut bytes = Vec::new();
    let mut facts = Vec::new();
    for number in 0..lines {
        let name = format!("app.metric.{:02}", number % 20);
        let line = format!(
            "{{\"timestamp\":\"2026-11-23T01:00:00.{:03}Z\",\"name\":\"{name}\",\"value\":{}.5,\"type\":\"gauge\",\"client\":\"c\"}}\n",
            number % 1_000,
            number * 7
        );
        let length = u32::try_from(line.len()).unwrap();
        facts.push(Fact { name: NameDigest::of(&name), bytes: length, ms: 1_700_000_000_000 });
        bytes.extend_from_slice(line.as_bytes());
    }
    Lines { bytes: bytes.into(), facts, client }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("a folder to write to");
    let seconds = arguments.next().map_or(2, |seconds| seconds.parse().unwrap());
    println!("durability  batch  gap ms     lines/s   flushes/s   us/flush  cpu-s/M");
    for (durability, lines, gap_ms) in [
        (Durability::Memory, 100, 1),
        (Durability::Memory, 1_000, 1),
        (Durability::Written, 100, 1),
        (Durability::Written, 1_000, 1),
        (Durability::Fsync, 1, 1),
        (Durability::Fsync, 1, 0),
        (Durability::Fsync, 100, 1),
        (Durability::Fsync, 100, 0),
        (Durability::Fsync, 1_000, 1),
        (Durability::Fsync, 1_000, 0),
    ] {
        let folder = Path::new(&folder).join("log-bench");
        drop(std::fs::remove_dir_all(&folder));
        let settings = Settings {
            flush_gap: Duration::from_millis(gap_ms),
            compress: false,
            retain_bytes: Some(1 << 30),
            ..Settings::new(&folder)
        };
        measure(settings, durability, lines, Duration::from_secs(seconds));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

fn measure(settings: Settings, durability: Durability, lines: usize, time: Duration) {
    let gap = settings.flush_gap.as_millis();
    let (log, _) = Log::open(settings, Arc::new(Nameless), Arc::new(RealFiles), clock()).unwrap();
    let (log, taken, stop) = (Arc::new(log), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (cpu, began) = (cpu_seconds(), (clock().monotonic)());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async {
        let clients: Vec<_> = (0..64)
            .map(|client| {
                let (log, taken, stop) = (Arc::clone(&log), Arc::clone(&taken), Arc::clone(&stop));
                let batch = batch(lines, client);
                tokio::spawn(async move {
                    while !stop.load(Relaxed) {
                        match log.append(0, batch.clone(), durability).await {
                            Ok(_) => _ = taken.fetch_add(lines as u64, Relaxed),
                            Err(AppendError::Full { .. } | AppendError::ShareExceeded { .. }) => {
                                tokio::time::sleep(Duration::from_millis(1)).await;
                            }
                            Err(error) => panic!("{error}"),
                        }
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        tokio::time::sleep(time).await;
        stop.store(true, Relaxed);
        for client in clients {
            client.await.unwrap();
        }
    });
    log.close();
    let seconds = began.elapsed().as_secs_f64();
    let lines_taken = log.statistics().partitions[0].lines;
    let statistics = &log.statistics().partitions[0];
    let flushes: u64 = statistics.flushes.iter().sum();
    println!(
        "{:<10} {lines:>6} {gap:>7} {:>11.0} {:>11.0} {:>10.0} {:>8.2}",
        durability.word(),
        lines_taken as f64 / seconds,
        flushes as f64 / seconds,
        statistics.flush_us as f64 / flushes.max(1) as f64,
        (cpu_seconds() - cpu) / (lines_taken as f64 / 1e6),
    );
}

/// Of this process, in user and system mode.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0
}
