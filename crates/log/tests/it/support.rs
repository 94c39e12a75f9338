//! Lines that say who they are, and a log of them.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::{Duration, Instant};

use tidegate_log::{
    AppendError, Appended, Clock, Describe, Description, Durability, Fact, Files, Lines, Log, NameDigest,
    OpenError, RealFiles, Recovery, Settings,
};

pub(crate) const NAMES: [&str; 4] = ["cpu.usage", "memory.used", "disk.io", "a \"quoted\" name"];

/// Reads `{"name":...,"ms":...,"id":...}`.
#[derive(Debug)]
pub(crate) struct Numbered;

impl Describe for Numbered {
    fn describe<'line>(&self, line: &'line [u8]) -> Option<Description<'line>> {
        let value: serde_json::Value = serde_json::from_slice(line).ok()?;
        let name = value.get("name")?.as_str()?.to_owned();
        Some(Description { name: Cow::Owned(name), ms: value.get("ms")?.as_i64()? })
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the log is told the time, and this test tells it the real one"
)]
pub(crate) fn clock() -> Clock {
    Clock {
        monotonic: Instant::now,
        wall_ms: || {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            i64::try_from(since.unwrap().as_millis()).unwrap()
        },
    }
}

/// Milliseconds that clocks of a test have jumped: the civil one, and the one that only goes on.
pub(crate) struct Jumps(pub(crate) AtomicI64, pub(crate) AtomicU64);

/// Those of the test that has this name; each test that lets time jump has some of its own.
#[macro_export]
macro_rules! jumping {
    ($jumps:ident) => {{
        static $jumps: $crate::support::Jumps = $crate::support::Jumps(
            std::sync::atomic::AtomicI64::new(0),
            std::sync::atomic::AtomicU64::new(0),
        );
        let clock = tidegate_log::Clock {
            monotonic: || {
                let jumped = $jumps.1.load(std::sync::atomic::Ordering::SeqCst);
                ($crate::support::clock().monotonic)() + std::time::Duration::from_millis(jumped)
            },
            wall_ms: || {
                ($crate::support::clock().wall_ms)() + $jumps.0.load(std::sync::atomic::Ordering::SeqCst)
            },
        };
        (clock, &$jumps)
    }};
}

pub(crate) fn line(id: u64) -> String {
    let name = serde_json::to_string(NAMES[usize::try_from(id % 4).unwrap()]).unwrap();
    format!("{{\"name\":{name},\"ms\":{},\"id\":{id}}}\n", id * 1_000)
}

/// Lines with these numbers, of one client.
pub(crate) fn lines(ids: impl IntoIterator<Item = u64>) -> Lines {
    let mut bytes = Vec::new();
    let mut facts = Vec::new();
    for id in ids {
        let line = line(id);
        facts.push(Fact {
            name: NameDigest::of(NAMES[usize::try_from(id % 4).unwrap()]),
            bytes: u32::try_from(line.len()).unwrap(),
            ms: i64::try_from(id * 1_000).unwrap(),
        });
        bytes.extend_from_slice(line.as_bytes());
    }
    Lines { bytes: bytes.into(), facts, client: 1 }
}

/// Small segments, so that there are several.
pub(crate) fn small(folder: &Path) -> Settings {
    Settings {
        segment_bytes: 4_096,
        flush_gap: Duration::ZERO,
        retry_gap: Duration::from_millis(1),
        ..Settings::new(folder)
    }
}

pub(crate) fn open(settings: Settings) -> (Log, Recovery) {
    open_on(settings, Arc::new(RealFiles))
}

pub(crate) fn open_on(settings: Settings, files: Arc<dyn Files>) -> (Log, Recovery) {
    open_at(settings, files, clock())
}

/// A child of another test holds our descriptors, and so the lock, until it has become its own program.
pub(crate) fn open_at(settings: Settings, files: Arc<dyn Files>, clock: Clock) -> (Log, Recovery) {
    let mut opened = None;
    until("nobody has the folder", || {
        let log = Log::open(settings.clone(), Arc::new(Numbered), Arc::clone(&files), clock);
        if matches!(log, Err(OpenError::InUse(_))) {
            return false;
        }
        opened = Some(log.unwrap());
        true
    });
    opened.unwrap()
}

pub(crate) fn append(
    log: &Log,
    ids: impl IntoIterator<Item = u64>,
    durability: Durability,
) -> Result<Appended, AppendError> {
    now(log.append(0, lines(ids), durability))
}

/// Waits for a future on this thread.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

pub(crate) fn id(line: &[u8]) -> u64 {
    serde_json::from_slice::<serde_json::Value>(line).unwrap()["id"].as_u64().unwrap()
}

/// All lines of the first partition by their offsets.
pub(crate) fn all(log: &Log) -> Vec<(u64, u64)> {
    of_partition(log, 0)
}

/// All lines of a partition by their offsets.
pub(crate) fn of_partition(log: &Log, partition: u16) -> Vec<(u64, u64)> {
    let range = log.offsets(partition).unwrap();
    let mut found = Vec::new();
    let mut from = range.start;
    while from < range.end {
        let read = log.read(partition, from, 1_000, 100_000).unwrap();
        let ids = read.lines.split_inclusive(|byte| *byte == b'\n').map(id);
        found.extend((read.first_offset..).zip(ids));
        assert!(read.next_offset > from, "a reader goes on from {from}");
        from = read.next_offset;
    }
    found
}

/// Waits until something is so, for as long as a slow machine may need.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = (clock().monotonic)();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "waited in vain: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// The names of the files of a partition that end so.
pub(crate) fn files(folder: &Path, ending: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join("0")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(ending)).collect();
    names.sort();
    names
}
