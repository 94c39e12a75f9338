//! Fault 19: whatever happens to the file, the last good configuration keeps serving.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tidegate::config::watch::{Reloader, State, follow};
use tidegate::config::{Loaded, MAX_FILE_BYTES, Source};
use tidegate_algorithms::policy::Mistake;
use tokio::sync::watch;

const GOOD: &str = "[limits]\nconnections = 7\n";

fn scratch() -> (TempDir, PathBuf, Source) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tidegate.toml");
    fs::write(&path, GOOD).unwrap();
    let source = Source { path: Some(path.clone()), ..Source::default() };
    (dir, path, source)
}

/// Looks until the file is read: a change is only read at the second look that sees it.
fn look_twice(reloader: &mut Reloader) -> Option<Result<u32, String>> {
    assert!(reloader.poll().is_none(), "the file may still be being written");
    let outcome = reloader.poll()?;
    Some(
        outcome
            .map(|loaded| loaded.config.settings.limits.connections)
            .map_err(|mistakes| mistakes.to_string()),
    )
}

#[test]
fn a_change_is_read_once_when_it_has_settled() {
    let (_dir, path, source) = scratch();
    let (mut reloader, loaded) = Reloader::start(source).unwrap();
    assert_eq!(loaded.config.settings.limits.connections, 7);
    assert!(look_twice(&mut reloader).is_none(), "nothing has changed");

    fs::write(&path, "[limits]\nconnections = 12\n").unwrap();
    assert_eq!(look_twice(&mut reloader), Some(Ok(12)));
    assert!(look_twice(&mut reloader).is_none());

    let other = path.with_extension("new");
    fs::write(&other, "[limits]\nconnections = 13\n").unwrap();
    fs::rename(&other, &path).unwrap();
    assert_eq!(look_twice(&mut reloader), Some(Ok(13)), "an editor replaces the file");

    fs::remove_file(&path).unwrap();
    let gone = look_twice(&mut reloader).unwrap().unwrap_err();
    assert!(gone.contains("tidegate.toml:1:1: ") && gone.contains("No such file"), "{gone}");
    fs::create_dir(&path).unwrap();
    let directory = look_twice(&mut reloader).unwrap().unwrap_err();
    assert!(directory.contains("is not a regular file"), "{directory}");
}

fn clash() -> Mistake {
    Mistake { pointer: "/override/x".to_owned(), problem: "clashes".to_owned(), accepted: "peace".to_owned() }
}

#[tokio::test]
async fn fault_19_a_bad_file_changes_nothing() {
    let (_dir, path, source) = scratch();
    let (reloader, loaded) = Reloader::start(source).unwrap();
    let (sender, mut states) = watch::channel(State::new(loaded));
    // Stands for the limiter, which may find that the file does not go with what is stored.
    let apply = async |loaded: &Loaded| {
        if loaded.config.settings.limits.connections == 666 { Err(vec![clash()]) } else { Ok(()) }
    };
    let following = tokio::spawn(follow(reloader, sender, Duration::from_millis(1), apply));

    let bad: [(&str, Vec<u8>); 7] = [
        ("blank", Vec::new()),
        ("truncated", GOOD.as_bytes()[..GOOD.len() - 3].to_vec()),
        ("oversized", vec![b'#'; MAX_FILE_BYTES + 1]),
        ("not text", (0..=255).collect()),
        ("unknown key", b"[limits]\nconections = 8\n".to_vec()),
        ("out of range", b"[limits]\nconnections = 0\n".to_vec()),
        ("not with what is stored", b"[limits]\nconnections = 666\n".to_vec()),
    ];
    let refusals = u64::try_from(bad.len()).unwrap();
    for (number, (what, bytes)) in (1..).zip(bad) {
        let replacement = path.with_extension("new");
        fs::write(&replacement, bytes).unwrap();
        fs::rename(&replacement, &path).unwrap();
        let state = states.wait_for(|state| state.refused_total == number).await.unwrap().clone();
        assert_eq!(state.loaded.config.settings.limits.connections, 7, "{what}");
        let mistakes = state.refused.expect("the mistakes are there to be shown").to_string();
        let place =
            if what == "not with what is stored" { "tidegate.toml together" } else { "tidegate.toml:" };
        assert!(mistakes.contains(place), "{what}: {mistakes}");
    }

    fs::write(&path, "[limits]\nconnections = 9\n").unwrap();
    let state = states.wait_for(|state| state.applied_total > 0).await.unwrap().clone();
    assert_eq!(state.loaded.config.settings.limits.connections, 9);
    assert!(state.refused.is_none());
    assert_eq!(state.refused_total, refusals);

    drop(states);
    following.await.unwrap().unwrap();
}
