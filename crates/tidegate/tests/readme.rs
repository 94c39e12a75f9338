//! What the README shows is what happens.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::process::Command;

use support::{Tidegate, binary};

/// The fenced block that follows `marker` in the README.
fn block_after(marker: &str) -> String {
    let readme = include_str!("../../../README.md");
    let after = readme.split_once(marker).unwrap().1;
    let body = after.split_once("```").unwrap().1.split_once('\n').unwrap().1;
    body.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_first_denial_comes_as_the_readme_shows_it() {
    let service = Tidegate::start(&[], &[]);
    let script = block_after("<!-- run by crates/tidegate/tests/readme.rs -->")
        .replace("127.0.0.1:4000", &service.http.to_string());
    let ran = Command::new("bash").args(["-c", &script]).output().unwrap();
    let shown = block_after("It answers, in a few seconds:");
    let said = String::from_utf8(ran.stdout).unwrap();
    // 101 processes may take a moment: the wait has gone down by as many seconds.
    let denial = said.lines().last().unwrap();
    let wait: u64 = denial.rsplit_once(':').unwrap().1.trim_end_matches('}').parse().unwrap();
    assert!((30..=60).contains(&wait), "{denial}");
    assert_eq!(said.replace(&wait.to_string(), "60"), shown);
}

#[test]
fn the_file_that_the_readme_shows_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    std::fs::write(&file, block_after("flags win over the environment, the environment over the file:"))
        .unwrap();
    let checked = binary().arg("check").arg(&file).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
