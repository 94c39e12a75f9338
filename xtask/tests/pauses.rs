//! `cargo xtask pauses` finds a test that holds by luck, and leaves one that holds alone.
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::path::Path;
use std::process::{Command, Output};

/// Two tests over one conversation: the first allows an answer 50 ms, the second as long as it takes.
const FIXTURE: &str = r#"
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fn talk(patience: Duration) {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    here.set_read_timeout(Some(patience)).unwrap();
    std::thread::spawn(move || {
        let mut byte = [0];
        while there.read_exact(&mut byte).is_ok() {
            there.write_all(&byte).unwrap();
        }
    });
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(5) {
        here.write_all(&[1]).unwrap();
        // Not read_exact, which would read again after EINTR.
        assert_eq!(here.read(&mut [0]).expect("an answer in time"), 1);
    }
}

#[test]
fn holds_by_luck() {
    talk(Duration::from_millis(50));
}

#[test]
fn waits_for_what_it_asserts() {
    talk(Duration::from_secs(600));
}

#[test]
fn a_frozen_child_stays_frozen() {
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let signal = |name: &str| {
        let pid = child.id().to_string();
        assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        stat.rsplit(") ").next().unwrap().chars().next().unwrap()
    };
    signal("-STOP");
    while state() != 'T' {}
    signal("-CONT");
    while state() == 'T' {}
    child.kill().unwrap();
    child.wait().unwrap();
}
"#;

fn under_pauses(test: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("talk.rs"), folder.path().join(test));
    std::fs::write(&source, FIXTURE).unwrap();
    let built = Command::new("rustc")
        .args(["--test", "--edition", "2024", "-O", "-o"])
        .args([&program, &source])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("pauses")
        .arg(&program)
        .args(["--seed", "1", "--", "--exact", test])
        .output()
        .unwrap()
}

#[test]
fn a_test_that_holds_by_luck_fails_under_pauses() {
    let output = under_pauses("holds_by_luck");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("FAILED with exit code 101") && said.contains("an answer in time"), "{said}");
    assert!(said.contains("under pauses these fail: holds_by_luck --seed 1"), "{said}");
}

#[test]
fn a_test_that_waits_for_what_it_asserts_holds_under_pauses() {
    let output = under_pauses("waits_for_what_it_asserts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let pauses = said.split_once("passed, ").and_then(|(_, rest)| rest.split_once(" pauses"));
    let pauses: usize = pauses.unwrap().0.parse().unwrap();
    assert!(pauses >= 10, "{said}");
}

#[test]
fn a_child_that_a_test_freezes_is_frozen_under_pauses_too() {
    let output = under_pauses("a_frozen_child_stays_frozen");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
