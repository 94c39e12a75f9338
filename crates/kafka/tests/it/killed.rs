//! `kill -9` of an intake between reading and committing.
//!
//! The parent starts this test binary again as a child, which serves an intake and answers each line on its standard input
//! with what waits to be forwarded.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tidegate_testkit::kafka::Kafka;
use tidegate_testkit::series::{BATCH_LINES, batch, check};

use crate::forwarding::{forward, partitioned};
use crate::support::{TestIntake, agent};
use crate::until;

const TEST: &str =
    "killed::fault_70_an_intake_killed_between_reading_and_committing_delivers_every_line_in_order";
/// Where the child's log is, and which broker it forwards to.
const FOLDER: &str = "TIDEGATE_TEST_KAFKA_FOLDER";
const BROKER: &str = "TIDEGATE_TEST_KAFKA_BROKER";
const TOPIC: &str = "lines";
/// What the lines of the child begin with.
const SAID: &str = "said ";

/// Serves until it is killed.
fn child(folder: PathBuf) -> ! {
    let mut setup = partitioned();
    setup.log = Box::new(move |settings| {
        settings.partitions = 2;
        settings.folder.clone_from(&folder);
    });
    let intake = TestIntake::start(setup);
    let state = forward(&intake, env::var(BROKER).unwrap(), TOPIC);
    let mut out = std::io::stdout();
    let mut said = |text: String| {
        writeln!(out, "\n{SAID}{text}").unwrap();
        out.flush().unwrap();
    };
    said(intake.url("/metrics"));
    for line in std::io::stdin().lines() {
        line.unwrap();
        said(format!("{} {}", state.waiting(), state.oldest_age().as_secs()));
    }
    std::process::exit(0);
}

/// An intake in a process of its own, killed at the end.
struct Killed {
    child: Child,
    ask: ChildStdin,
    lines: BufReader<ChildStdout>,
    url: String,
}

impl Killed {
    fn start(folder: &Path, kafka: &Kafka) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", TEST, "--nocapture"])
            .env(FOLDER, folder)
            .env(BROKER, kafka.address())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (ask, lines) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut started = Self { child, ask, lines, url: String::new() };
        started.url = started.said();
        started
    }

    fn said(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the child ended");
            if let Some(said) = line.strip_prefix(SAID) {
                return said.trim_end().to_owned();
            }
        }
    }

    /// Lines that are not delivered, and for how many seconds the oldest of them has waited.
    fn waiting(&mut self) -> (u64, u64) {
        writeln!(self.ask).unwrap();
        let said = self.said();
        let (lines, seconds) = said.split_once(' ').unwrap();
        (lines.parse().unwrap(), seconds.parse().unwrap())
    }

    /// Sends the batch with this number; all of it is on the disk then.
    fn post(&self, number: u64) {
        assert_eq!(agent().post(&self.url).send(batch(number)).unwrap().status(), 200);
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn fault_70_an_intake_killed_between_reading_and_committing_delivers_every_line_in_order() {
    if let Some(folder) = env::var_os(FOLDER) {
        child(folder.into());
    }
    let (kafka, folder) = (Kafka::start(), tempfile::tempdir().unwrap());
    kafka.create_topic(TOPIC, 2, &[]);
    let mut batches = 0;
    for _ in 0..3 {
        let mut intake = Killed::start(folder.path(), &kafka);
        let mut send = |intake: &Killed, count: u64| {
            (batches..batches + count).for_each(|number| intake.post(number));
            batches += count;
        };
        send(&intake, 5);
        until("nothing waits", || intake.waiting().0 == 0);
        // The broker takes no more, so what is read now is under way and not committed.
        kafka.broker().freeze();
        send(&intake, 20);
        until("lines are under way", || {
            let (lines, seconds) = intake.waiting();
            lines > 0 && seconds > 0
        });
        drop(intake);
        // What it was sent before, it takes now.
        kafka.broker().thaw();
    }
    let mut intake = Killed::start(folder.path(), &kafka);
    let again = check(kafka.read(TOPIC), batches);
    until("nothing waits", || intake.waiting().0 == 0);
    println!("{batches} batches of {BATCH_LINES} lines; {again} lines came again");
}
