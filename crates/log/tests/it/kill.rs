//! `kill -9` at any instant: what was acknowledged as written or synced is there afterwards, in order.
//!
//! The parent starts this test binary again as a child, which appends and prints the last line that was
//! acknowledged. It is killed after a random time, and the log that it leaves is opened.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use tidegate_log::{Durability, Settings};

use crate::disk::Dice;
use crate::support::{all, lines, now, open, small};

const CHILD: &str = "TIDEGATE_TEST_KILL_LOG";
/// As many kills as this says, instead of those that `make test` has time for.
const KILLS: &str = "TIDEGATE_TEST_KILLS";
const DEFAULT_KILLS: u64 = 60;
/// Kills per folder: each child goes on where the last one was killed.
const KILLS_PER_FOLDER: u64 = 12;
const ACKNOWLEDGED: &str = "acknowledged ";
const LONGEST_LIFE_US: usize = 60_000;

fn settings(folder: &Path) -> Settings {
    Settings { segment_bytes: 64 << 10, ..small(folder) }
}

/// Appends until it is killed.
fn child(folder: &Path) -> ! {
    let (log, _) = open(settings(folder));
    let mut next = log.offsets(0).unwrap().end;
    let mut out = std::io::stdout();
    loop {
        let count = 1 + next % 40;
        let waiting = log.append(0, lines(next..next + count), Durability::Written);
        let waiting_too = log.append(0, lines(next + count..next + 2 * count), Durability::Fsync);
        now(waiting).unwrap();
        now(waiting_too).unwrap();
        next += 2 * count;
        writeln!(out, "\n{ACKNOWLEDGED}{next}").unwrap();
        out.flush().unwrap();
    }
}

/// Runs a child for a while and answers with the number of lines that it had acknowledged.
fn run_and_kill(folder: &Path, life: Duration) -> Option<u64> {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "kill::fault_26_kill_9_at_any_instant", "--nocapture"])
        .env(CHILD, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    thread::park_timeout(life);
    child.kill().unwrap();
    child.wait().unwrap();
    let said = out.lines().map_while(Result::ok);
    said.filter_map(|line| line.strip_prefix(ACKNOWLEDGED)?.parse().ok()).last()
}

#[test]
fn fault_26_kill_9_at_any_instant() {
    if let Some(folder) = env::var_os(CHILD) {
        child(Path::new(&folder));
    }
    let kills = env::var(KILLS).map_or(DEFAULT_KILLS, |kills| kills.parse().unwrap());
    let mut dice = Dice(kills);
    let (mut wrote, mut longest) = (0, LONGEST_LIFE_US);
    let mut place = (tempfile::tempdir().unwrap(), 0);
    for round in 0..kills {
        if round % KILLS_PER_FOLDER == 0 {
            place = (tempfile::tempdir().unwrap(), 0);
        }
        let (folder, known) = (place.0.path(), place.1);
        let life = Duration::from_micros(dice.below(longest) as u64);
        let acknowledged = run_and_kill(folder, life);
        // About half of the children write, on any machine.
        longest = match acknowledged {
            Some(_) => (longest - longest / 16).max(1_000),
            None => (longest + longest / 16).min(5_000_000),
        };
        wrote += u64::from(acknowledged.is_some());
        let (log, recovery) = open(settings(folder));
        let case = format!("round {round}, life {life:?}, {recovery:?}");
        let found = all(&log);
        let promised = acknowledged.unwrap_or(known);
        assert!(found.len() as u64 >= promised, "{case}: {promised} acknowledged, {} there", found.len());
        assert!(found.iter().enumerate().all(|(at, line)| *line == (at as u64, at as u64)), "{case}");
        place.1 = found.len() as u64;
    }
    assert!(wrote > kills / 10, "only {wrote} of {kills} children lived long enough to write");
}
