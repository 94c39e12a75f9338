//! Fault 21: `kill -9` at any instant of a configuration write.
//!
//! The parent starts this same test binary as a child, which changes a pair of documents together,
//! again and again, and prints each pair once it is acknowledged. The parent kills it after a
//! random number of microseconds and opens what is left.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::RwLock;
use std::thread;
use std::time::Duration;

use tidegate_algorithms::time::Wall;
use tidegate_control::{Author, Change, Control, Kind, Limits};

const CHILD: &str = "TIDEGATE_TEST_KILL_DIR";
const KILLS: u64 = 1_000;
/// Kills per data directory: a fresh one now and then, so that creation and migration are hit too.
const KILLS_PER_DIR: u64 = 20;
const WORKERS: u64 = 2;
const ACKNOWLEDGED: &str = "acknowledged ";
const LONGEST_LIFE_US: u64 = 20_000;

/// Between fork and exec a child holds the parent's descriptors, and so the lock of a directory
/// that another worker has open: directories are opened (read) while nobody is spawned (write).
static SPAWNING: RwLock<()> = RwLock::new(());

fn pair(control: &Control) -> (u64, u64) {
    let snapshot = control.snapshot();
    let number = |kind, name| snapshot.get(kind, name).map_or(0, |document| document.body.parse().unwrap());
    (number(Kind::new("policy"), "left"), number(Kind::new("override"), "right"))
}

/// Counts both documents of the pair up until it is killed.
fn child(dir: &Path) -> ! {
    let control = Control::open(dir, Limits::default()).unwrap();
    let (mut number, _) = pair(&control);
    let mut out = std::io::stdout();
    loop {
        number += 1;
        let body = number.to_string();
        let changes = [
            Change::put(Kind::new("policy"), "left", &*body),
            Change::put(Kind::new("override"), "right", &*body),
        ];
        control.apply(&changes, &Author { actor: "child".to_owned(), at: Wall(number), from: None }).unwrap();
        writeln!(out, "\n{ACKNOWLEDGED}{number}").unwrap();
        out.flush().unwrap();
    }
}

/// Runs a child for `life`, kills it, and returns the last number that it said was acknowledged.
fn run_and_kill(dir: &Path, life: Duration) -> Option<u64> {
    let spawning = SPAWNING.write().unwrap();
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["kill::fault_21_kill_9_during_write", "--exact", "--nocapture"])
        .env(CHILD, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(spawning);
    let out = BufReader::new(child.stdout.take().unwrap());
    thread::park_timeout(life);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut last = None;
    for line in out.lines() {
        if let Some(number) = line.unwrap().strip_prefix(ACKNOWLEDGED) {
            last = number.parse().ok().or(last);
        }
    }
    last
}

/// Returns how many children had written something.
fn torment(seed: u64, kills: u64) -> u64 {
    let mut state = seed;
    let (mut wrote, mut longest) = (0, LONGEST_LIFE_US);
    let mut place: Option<(tempfile::TempDir, PathBuf, u64)> = None;
    for round in 0..kills {
        if round % KILLS_PER_DIR == 0 {
            let scratch = tempfile::tempdir().unwrap();
            let dir = scratch.path().join("data");
            place = Some((scratch, dir, 0));
        }
        let (_, dir, known) = place.as_mut().unwrap();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let life = Duration::from_micros((state >> 33) % longest);
        let acknowledged = run_and_kill(dir, life);
        wrote += u64::from(acknowledged.is_some());
        // About half of the children write, on any machine.
        longest = match acknowledged {
            Some(_) => (longest - longest / 16).max(1_000),
            None => (longest + longest / 16).min(5_000_000),
        };

        let _nobody_spawns = SPAWNING.read().unwrap();
        let control = Control::open(dir, Limits::default()).unwrap();
        let (left, right) = pair(&control);
        let case = format!("seed {seed}, round {round}, life {life:?}");
        assert_eq!(left, right, "{case}: a mix of old and new");
        let promised = acknowledged.unwrap_or(*known);
        assert!(left >= promised, "{case}: {promised} was acknowledged, {left} is there");
        assert!(acknowledged.is_none_or(|last| left <= last + 1), "{case}: {left} was never written");
        assert_eq!(control.snapshot().revision().0, 2 * left, "{case}: the audit log tells another story");
        *known = left;
    }
    wrote
}

#[test]
fn fault_21_kill_9_during_write() {
    if let Some(dir) = env::var_os(CHILD) {
        child(Path::new(&dir));
    }
    let wrote: u64 = thread::scope(|scope| {
        let workers: Vec<_> =
            (0..WORKERS).map(|seed| scope.spawn(move || torment(seed, KILLS / WORKERS))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert!(wrote > KILLS / 10, "only {wrote} of {KILLS} children lived long enough to write");
}
