//! Planted cases: `tidegate stub` with a behaviour, `tidegate saturate` against it, and the report that
//! must name what was planted.
//!
//! The cases run one at a time, and before other programs where that is allowed: what is tested is the
//! judgement, and a service whose cores are taken by a neighbour is another service. One of [`ATTEMPTS`] runs must
//! name what was planted. The others may say `unknown`, which is honest; a run that names another cause ends the test at
//! once, for a wrong cause is never right. Where the report itself says that the machine's host or other programs took
//! its cores, a run does not count, up to [`DISTURBED`] of them; a case that none of them named fails all the same.
//! `regression/causes` asks for five right answers of each case, by [`ROUNDS`].
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test file uses its own part of it, and says what it expects by unwrapping it"
)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

/// The environment says how many runs of each case must name what was planted, where it is not one.
const ROUNDS: &str = "TIDEGATE_PLANTED_ROUNDS";
/// Runs of one case for each that must be right, at most.
pub const ATTEMPTS: usize = 4;
/// Runs more that the machine's host or other programs may spoil, for each that must be right.
const DISTURBED: usize = 6;
/// Share of the cores from which other programs spoil a run.
const SPOILT: f64 = 0.20;
pub const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");

pub static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A case that failed has poisoned nothing.
pub fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock()
}

/// The binary, before other programs where that is allowed: the generator before the server. Not in a
/// real-time class: the kernel lets that one have 95 % of a core (`sched_rt_runtime_us`), and so no server
/// could use its cores up.
pub fn tidegate(arguments: &[&str]) -> Command {
    let niceness = if arguments.first() == Some(&"stub") { "-10" } else { "-20" };
    let mut command = Command::new("nice");
    command.args(["-n", niceness, BINARY]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A running stub; dropping it kills it.
pub struct Stub {
    child: Child,
    pub url: String,
}

impl Stub {
    pub fn start(behaviour: &str) -> Self {
        let arguments: Vec<&str> =
            ["stub", "127.0.0.1:0"].into_iter().chain(behaviour.split_whitespace()).collect();
        let mut child = tidegate(&arguments).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("the stub says where it listens");
        Self { url: format!("http://{address}/"), child }
    }

    pub fn pid(&self) -> u32 {
        // `nice` becomes the program that it starts.
        self.child.id()
    }

    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches('/')
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs `tidegate saturate` on a URL, with the JSON report in `folder`.
pub fn saturate(folder: &Path, url: &str, flags: &str) -> (Output, Value) {
    let json = folder.join("report.json");
    let arguments: Vec<&str> = ["saturate", url, "--json", json.to_str().unwrap()]
        .into_iter()
        .chain(flags.split_whitespace())
        .collect();
    let output = tidegate(&arguments).output().unwrap();
    let text = fs::read_to_string(&json).unwrap_or_else(|_| panic!("no report: {output:?}"));
    (output, serde_json::from_str(&text).unwrap())
}

/// What a report lacks.
pub type Judgement = Result<(), String>;

/// The reports of fresh stubs with this behaviour name `cause` and pass `check`.
pub fn planted(cause: &str, behaviour: &str, flags: &str, check: impl Fn(&Value) -> Judgement) {
    attempts(
        cause,
        || {
            let folder = tempfile::tempdir().unwrap();
            let stub = Stub::start(behaviour);
            saturate(folder.path(), &stub.url, flags).1
        },
        check,
    );
}

/// Enough reports name `cause` and pass `check`, and none names another.
pub fn attempts(cause: &str, run: impl Fn() -> Value, check: impl Fn(&Value) -> Judgement) {
    attempts_of(&[cause], run, check);
}

/// The same of a case with several things planted: the first is the cause, and the others are not wrong.
pub fn attempts_of(planted: &[&str], run: impl Fn() -> Value, check: impl Fn(&Value) -> Judgement) {
    let cause = planted[0];
    let _alone = alone();
    let rounds = std::env::var(ROUNDS).map_or(1, |rounds| rounds.parse().expect("a number of rounds"));
    let (mut right, mut counted, mut disturbed, mut lacks) = (0, 0, 0, String::new());
    while right < rounds {
        let report = run();
        let named = report["cause"]["name"].as_str().unwrap();
        assert!(
            planted.contains(&named) || named == "unknown",
            "{cause} was planted, {named} was named: {}",
            outline(&report)
        );
        let why = match check(&report) {
            Ok(()) if named == cause => {
                right += 1;
                continue;
            }
            Ok(()) => format!("{cause} was planted, {named} was named"),
            Err(why) => why,
        };
        lacks.push_str(&format!("{why}\n{}\n", outline(&report)));
        if had_its_cores(&report) {
            counted += 1;
        } else {
            disturbed += 1;
        }
        assert!(counted < ATTEMPTS * rounds, "{right} of {rounds} runs named it: {lacks}");
        assert!(
            disturbed < DISTURBED * rounds,
            "{right} of {rounds} runs named it, and other programs took this machine's cores in {disturbed}: {lacks}"
        );
    }
}

/// Gate (g) of a report, and that other programs left server and generator most of the cores.
fn had_its_cores(report: &Value) -> bool {
    let gates = report["gates"].as_array().unwrap();
    let host = gates.iter().find(|gate| gate["id"] == "g").is_none_or(|gate| gate["passed"] == true);
    let used = |part: &str| report["cores"][part].as_f64();
    let others = || Some(used("cores")? - used("idle")? - used("server")? - used("generator")?);
    host && others().zip(used("cores")).is_none_or(|(others, all)| others < SPOILT * all)
}

/// What a report says in a few lines.
pub fn outline(report: &Value) -> String {
    let steps: Vec<String> = report["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            format!("{} {} {}", step["plan"]["connections"], step["throughput"]["mean"], step["refusals"])
        })
        .collect();
    let said =
        ["conclusion", "capacity", "knee", "cause", "findings", "cores"].map(|part| report[part].to_string());
    format!("{}\n{}", said.join("\n"), steps.join("\n"))
}

/// For cases of which nothing but the cause is asked.
pub fn nothing_more(_: &Value) -> Judgement {
    Ok(())
}

pub fn ensure(holds: bool, what: &str) -> Judgement {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

pub fn within(what: &str, found: &Value, expected: f64, share: f64) -> Judgement {
    match found.as_f64() {
        Some(value) if (value / expected - 1.0).abs() <= share => Ok(()),
        other => Err(format!("{what} is {other:?}, not {expected} within {share}")),
    }
}
