//! SIGHUP reads the configuration again. A signal is for the whole process, so this test has its own.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by unwrapping it")]

use std::fs;
use std::process::Command;
use std::time::Duration;

use tidegate::config::watch::{Reloader, State, follow};
use tidegate::config::{Loaded, Source};
use tokio::sync::watch;

#[tokio::test]
async fn sighup_reads_the_file_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.toml");
    fs::write(&path, "[limits]\nconnections = 7\n").unwrap();
    let source = Source { path: Some(path.clone()), ..Source::default() };
    let (reloader, loaded) = Reloader::start(source).unwrap();
    let (sender, mut states) = watch::channel(State::new(loaded));
    let an_hour = Duration::from_secs(3_600);
    let following = tokio::spawn(follow(reloader, sender, an_hour, async |_: &Loaded| Ok(())));
    // Lets the follower run up to its first wait: by then it handles the signal.
    tokio::task::yield_now().await;

    fs::write(&path, "[limits]\nconnections = 9\n").unwrap();
    let hangup = format!("kill -HUP {}", std::process::id());
    assert!(Command::new("sh").args(["-c", &hangup]).status().unwrap().success());
    let state = states.wait_for(|state| state.applied_total > 0).await.unwrap().clone();
    assert_eq!(state.loaded.config.settings.limits.connections, 9);
    drop(states);
    following.await.unwrap().unwrap();
}
