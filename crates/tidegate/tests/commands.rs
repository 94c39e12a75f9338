//! The built binary: `check`, `config`, and that the committed reference is what it prints.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by unwrapping it")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn tidegate(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).env_clear().envs(environment.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn check_prints_every_mistake_and_exits_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    let name = path.to_str().unwrap();
    fs::write(&path, "[limits]\nconnections = 0\n[http]\nlisten = '0.0.0.0:4000'\n").unwrap();
    let bad = tidegate(&["check", name], &[]);
    assert_eq!(bad.status.code(), Some(2));
    let lines: Vec<_> = text(&bad.stdout).lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with(&format!("{name}:2:15: limits.connections: is \"0\" (accepted: ")),
        "{}",
        lines[0]
    );
    assert!(lines[1].starts_with(&format!("{name}:4:10: http.listen: ")), "{}", lines[1]);

    fs::write(&path, "http.listen = '0.0.0.0:4000'\n").unwrap();
    let token = [("TIDEGATE_ADMIN_TOKEN", "0123456789abcdef")];
    let good = tidegate(&["check", name], &token);
    assert_eq!(
        (good.status.code(), text(&good.stdout)),
        (Some(0), &*format!("{name}: good (policies: 0, overrides: 0)\n"))
    );

    let absent = tidegate(&["check", "/nowhere/t.toml"], &[]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(
        text(&absent.stdout).starts_with("/nowhere/t.toml:1:1: No such file"),
        "{}",
        text(&absent.stdout)
    );
}

#[test]
fn explain_follows_flag_environment_and_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    fs::write(&path, "log.level = 'debug'\n").unwrap();
    let name = path.to_str().unwrap();
    let environment = [("TIDEGATE_CONFIG", name), ("TIDEGATE_STORE", "redis://:canary@h/0")];
    let output = tidegate(&["config", "explain", "--http-listen", "127.0.0.1:9"], &environment);
    assert_eq!(output.status.code(), Some(0));
    let rows: Vec<Vec<_>> =
        text(&output.stdout).lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.contains(&vec!["store", "redis://(redacted)@h/0", "environment", "TIDEGATE_STORE"]));
    assert!(rows.contains(&vec!["http.listen", "127.0.0.1:9", "flag", "--http-listen"]));
    assert!(rows.contains(&vec!["log.level", "debug", &format!("{name}:1:13")]));
    assert!(rows.contains(&vec!["log.format", "text", "default"]));
}

#[test]
fn the_committed_reference_is_what_the_binary_prints() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (file, word) in [("configuration.md", "reference"), ("tidegate.schema.json", "schema")] {
        let printed = tidegate(&["config", word], &[]).stdout;
        let committed = fs::read(docs.join(file)).unwrap_or_default();
        assert!(
            committed == printed,
            "docs/{file} is out of date: cargo run -p tidegate -- config {word} > docs/{file}"
        );
    }
}
