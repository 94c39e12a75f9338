//! The built binary: `audit`, and what `compare` and `plan` say to files that are no reports.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by unwrapping it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn tidegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn claims(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/audit").join(name)
}

#[test]
fn audit_prints_verdicts_and_sets_the_status_when_asked() {
    let edge = claims("edge.toml");
    let edge = edge.to_str().unwrap();
    let plain = tidegate(&["audit", edge]);
    assert_eq!(plain.status.code(), Some(0));
    assert!(stdout(&plain).contains("is about 597 in flight, not 1,000"), "{}", stdout(&plain));
    assert_eq!(tidegate(&["audit", "--strict", edge]).status.code(), Some(3));
    let json = tidegate(&["audit", "--json", edge]);
    let verdicts: serde_json::Value = serde_json::from_str(stdout(&json)).unwrap();
    assert!(verdicts.as_array().unwrap().len() > 10);
}

#[test]
fn a_file_that_is_no_report_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    let name = path.to_str().unwrap();
    for (content, expected) in [
        ("nonsense", "not a tidegate report"),
        ("{\"schema\":\"tidegate-report/9\"}", "schema `tidegate-report/9`"),
    ] {
        fs::write(&path, content).unwrap();
        for arguments in
            [vec!["compare", name, name], vec!["plan", name, "--target", "50000/s", "--p99", "50ms"]]
        {
            let refused = tidegate(&arguments);
            assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
            let said = stdout(&refused);
            assert!(said.contains(expected) && said.contains(name), "{said}");
        }
    }
    let missing = tidegate(&["audit", "/no/such/file"]);
    assert!(missing.status.code() == Some(1) && stdout(&missing).contains("/no/such/file"));
    assert_eq!(
        tidegate(&["plan", name, "--target", "fast"]).status.code(),
        Some(2),
        "a flag's value is usage"
    );
}
