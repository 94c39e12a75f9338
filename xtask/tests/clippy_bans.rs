//! The bans of `clippy.toml` fire: clippy is run over a crate that breaks each of them.
//!
//! A ban whose path is misspelt is silently no ban, hence this test.

use std::path::Path;
use std::process::Command;

const BREAKS_ALL: &str = r#"
pub fn breaks_every_ban() {
    let _ = std::time::Instant::now();
    let _ = std::time::SystemTime::now();
    std::thread::sleep(std::time::Duration::ZERO);
    let _ = std::sync::mpsc::channel::<u8>();
    let _ = tokio::sync::mpsc::unbounded_channel::<u8>();
}
"#;

const MANIFEST: &str = r#"
[package]
name = "fixture"
edition = "2024"
[dependencies]
tokio = { version = "1", default-features = false, features = ["sync"] }
[workspace]
"#;

#[test]
fn every_ban_fires() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("src")).unwrap();
    std::fs::write(folder.path().join("src/lib.rs"), BREAKS_ALL).unwrap();
    std::fs::write(folder.path().join("Cargo.toml"), MANIFEST).unwrap();
    std::fs::copy(root.join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();

    let output = Command::new("cargo")
        .args(["clippy", "--offline", "--quiet", "--target-dir"])
        .arg(folder.path().join("target"))
        .current_dir(folder.path())
        .env("CLIPPY_CONF_DIR", root)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let config = std::fs::read_to_string(root.join("clippy.toml")).unwrap();
    let banned: Vec<&str> =
        config.lines().filter_map(|line| line.split_once("path = \"")?.1.split('"').next()).collect();
    assert!(banned.len() >= 5, "{banned:?}");
    for path in banned {
        let named = format!("use of a disallowed method `{path}`");
        assert!(said.contains(&named), "clippy.toml bans {path}, and clippy does not say so:\n{said}");
    }
}
