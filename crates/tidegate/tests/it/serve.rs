//! The built binary as an operator meets it.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::support;
use crate::support::{Tidegate, agent, binary, keep_asking};
use serde_json::{Value, json};
use tidegate_net::clock::monotonic;

const POLICY: &str = "[[policy]]\nname = \"default\"\nwindow_seconds = 60\nlimit = ";

fn limit_of(service: &Tidegate) -> u64 {
    let url = service.url("/v1/policies/default");
    let document: Value = agent().get(&url).call().unwrap().body_mut().read_json().unwrap();
    document["limit"].as_u64().unwrap()
}

/// Asks until the answer is as expected.
fn until(what: &str, holds: impl Fn() -> bool) {
    let start = monotonic();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: not yet");
    }
}

fn until_page_has(service: &Tidegate, line: &str) {
    until(line, || {
        let mut page = agent().get(service.url("/metrics")).call().unwrap();
        page.body_mut().read_to_string().unwrap().lines().any(|it| it == line)
    });
}

#[test]
fn it_starts_on_nothing_but_defaults_and_keeps_its_files_to_itself() {
    use std::os::unix::fs::PermissionsExt;
    let service = Tidegate::start(&[], &[]);
    assert_eq!(limit_of(&service), 100);
    let data = service.path().join("tidegate-data");
    assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn what_was_configured_is_there_after_a_restart() {
    let service = Tidegate::start(&[], &[]);
    let body = json!({"window_seconds": 60, "request_per_window": 7});
    agent().post(service.url("/api/v1/configure")).send_json(&body).unwrap();
    assert_eq!(limit_of(&restarted(service, "KILL")), 7);
}

/// Stops `service` with a signal and starts again on the same data.
fn restarted(service: Tidegate, signal: &str) -> Tidegate {
    service.signal(signal);
    let folder = tempfile::tempdir().unwrap();
    let data = service.path().join("tidegate-data");
    let (saved, ended) = service.wait_keeping_data();
    assert!(signal == "KILL" || ended.status.success(), "{}", ended.output);
    fs::rename(&data, folder.path().join("tidegate-data")).unwrap();
    drop(saved);
    Tidegate::start_in(folder, &[], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")])
}

fn spend_one(service: &Tidegate) -> Value {
    let body = json!({"client_id": "a", "resource": "r"});
    agent().post(service.url("/api/v1/ratelimit")).send_json(&body).unwrap().body_mut().read_json().unwrap()
}

#[test]
fn a_restart_hands_nobody_a_fresh_window() {
    let service = Tidegate::start(&[], &[]);
    assert_eq!(spend_one(&service)["remaining"], 99);
    assert_eq!(spend_one(&service)["remaining"], 98);
    let again = restarted(service, "TERM");
    assert_eq!(spend_one(&again)["remaining"], 97);
}

/// Asks until the counters' snapshot has been replaced; that is once in `memory.snapshot_interval`, so
/// this ends.
fn until_saved_anew(service: &Tidegate) {
    use std::os::unix::fs::MetadataExt;
    let path = service.path().join("tidegate-data/counters.snapshot");
    let inode = || fs::metadata(&path).ok().map(|file| file.ino());
    let before = inode();
    for _ in 0..200_000 {
        if inode() != before {
            return;
        }
        agent().get(service.url("/livez")).call().unwrap();
    }
    panic!("the counters are not saved");
}

#[test]
fn a_kill_loses_what_was_spent_since_the_last_save_and_no_more() {
    let service = Tidegate::start(&[], &[("TIDEGATE_MEMORY_SNAPSHOT_INTERVAL", "1s")]);
    assert_eq!(spend_one(&service)["remaining"], 99);
    // The first save from here on may have begun before that.
    until_saved_anew(&service);
    until_saved_anew(&service);
    // From here on the next save is a minute away.
    let again = restarted(service, "KILL");
    assert_eq!(spend_one(&again)["remaining"], 98, "what was saved is there");
    let last = restarted(again, "KILL");
    assert_eq!(spend_one(&last)["remaining"], 98, "what was not saved is there to be spent again");
}

#[test]
fn fault_08_the_civil_clock_jumps_and_nobody_is_refilled_or_locked_out() {
    let folder = tempfile::tempdir().unwrap();
    let clock = folder.path().join("clock");
    let set_clock = |offset| support::set_clock(&clock, offset);
    set_clock("+0");
    let library = support::faketime();
    let path = clock.to_str().unwrap();
    let environment = [
        ("LD_PRELOAD", library.as_str()),
        ("FAKETIME_TIMESTAMP_FILE", path),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ];
    let service = Tidegate::start(&[], &environment);
    for spent in 1..=100 {
        assert_eq!(spend_one(&service)["remaining"], 100 - spent);
    }
    for offset in ["+1h", "-1h", "+0"] {
        set_clock(offset);
        let denied = spend_one(&service);
        assert_eq!(denied["allowed"], false, "{offset}: a refill");
        assert!(denied["retry_after"].as_u64().unwrap() <= 60, "{offset}: {denied}");
        let other = json!({"client_id": offset, "resource": "r"});
        let other: Value = agent()
            .post(service.url("/api/v1/ratelimit"))
            .send_json(&other)
            .unwrap()
            .body_mut()
            .read_json()
            .unwrap();
        assert_eq!(other["remaining"], 99, "{offset}: a lock-out");
    }
    set_clock("+25h");
    let body = json!({"window_seconds": 60, "request_per_window": 100});
    agent().post(service.url("/api/v1/configure")).send_json(&body).unwrap();
    let rows: Value = agent().get(service.url("/v1/audit")).call().unwrap().body_mut().read_json().unwrap();
    let stamped = Duration::from_millis(rows[0]["at_ms"].as_u64().unwrap());
    let really =
        fs::metadata(&clock).unwrap().modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(stamped > really + Duration::from_secs(24 * 3600), "the clock did jump");
}

#[test]
fn a_snapshot_that_cannot_be_read_is_set_aside_and_the_service_starts() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("tidegate-data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("counters.snapshot"), b"not a snapshot").unwrap();
    let service = Tidegate::start_in(folder, &[], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
    assert_eq!(spend_one(&service)["remaining"], 99);
    assert_eq!(
        fs::read(service.path().join("tidegate-data/counters.unreadable")).unwrap(),
        b"not a snapshot"
    );
}

#[test]
fn fault_19_a_bad_file_changes_nothing_and_a_good_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, format!("{POLICY}5\n")).unwrap();
    let path = file.to_str().unwrap().to_owned();
    let service =
        Tidegate::start_in(folder, &["--config", &path], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
    assert_eq!(limit_of(&service), 5);
    // In one piece, so that nobody reads half of it.
    let reload = |text: &str| {
        let beside = file.with_extension("new");
        fs::write(&beside, text).unwrap();
        fs::rename(&beside, &file).unwrap();
        service.signal("HUP");
    };
    for bad in ["\u{0}", "[[policy]]\nname = 1\nlimit = \"x\"\n", "limit =", "nonsense = 1\n"] {
        reload(bad);
        until_page_has(&service, "tidegate_config_last_reload_successful 0");
        assert_eq!(limit_of(&service), 5);
        reload(&format!("{POLICY}5\n"));
        until_page_has(&service, "tidegate_config_last_reload_successful 1");
        assert_eq!(limit_of(&service), 5);
    }
    reload(&format!("{POLICY}6\n"));
    until("the new limit is in force", || limit_of(&service) == 6);
    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.output.contains("refused, the old one stays"), "{}", ended.output);
    assert!(
        ended.output.contains("policy[0].limit") || ended.output.contains("/policy/0/limit"),
        "{}",
        ended.output
    );
}

#[test]
fn fault_45_a_public_bind_without_a_token_does_not_start() {
    let refused = binary().arg("serve").env("TIDEGATE_HTTP_LISTEN", "0.0.0.0:0").output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(said.contains("http.listen") && said.contains("admin.token"), "{said}");
}

/// What it says that cannot start, in a line.
fn refused(serve: &mut Command) -> String {
    let refused = serve.output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stdout).unwrap();
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    said
}

#[test]
fn a_data_directory_that_cannot_be_made_or_is_in_use_is_named_with_the_flag_that_changes_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let service = Tidegate::start(&[], &[]);
    let in_use = service.path().join("tidegate-data");
    for (directory, why) in [(&file, "cannot be used"), (&in_use, "in use by another tidegate process")] {
        let mut serve = binary();
        serve.args(["serve", "--data-dir"]).arg(directory).env("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0");
        let said = refused(&mut serve);
        assert!(said.contains(directory.to_str().unwrap()) && said.contains(why), "{said}");
        assert!(said.contains("--data-dir"), "{said}");
    }
}

#[test]
fn an_address_in_use_is_named() {
    let service = Tidegate::start(&[], &[]);
    let folder = tempfile::tempdir().unwrap();
    let mut second = binary();
    second.arg("serve").current_dir(folder.path()).env("TIDEGATE_HTTP_LISTEN", service.http.to_string());
    let said = refused(&mut second);
    assert!(said.contains(&service.http.to_string()) && said.contains("in use"), "{said}");
    assert!(said.contains("--http-listen"), "{said}");
}

#[test]
fn fault_22_sigterm_under_load_loses_no_request() {
    let service = Tidegate::start(&[], &[]);
    let address = service.http;
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let (stop, answered) = (stop.clone(), answered.clone());
            let body = format!("{{\"client_id\":\"c{client}\",\"resource\":\"r\"}}");
            let length = body.len();
            let request = format!(
                "POST /api/v1/ratelimit HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}",
            );
            thread::spawn(move || keep_asking(address, &request, &stop, &answered))
        })
        .collect();
    until("a thousand are answered", || answered.load(Ordering::Relaxed) > 1_000);
    service.signal("TERM");
    let ended = service.wait();
    stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert!(ended.status.success(), "{}", ended.output);
    assert!(ended.output.contains("drained"), "{}", ended.output);
}

#[test]
fn fault_52_no_secret_shows_in_anything_that_is_written() {
    const CANARY: &str = "canary-5f1c7a90-do-not-show";
    let environment = [("TIDEGATE_ADMIN_TOKEN", CANARY), ("TIDEGATE_LOG_LEVEL", "trace")];
    let service = Tidegate::start(&[], &environment);
    let agent = agent();
    let mut seen = String::new();
    for (authorization, path) in [
        (format!("Bearer {CANARY}"), "/v1/policies"),
        (format!("Bearer {CANARY}x"), "/v1/policies"),
        (format!("Basic {CANARY}"), "/v1/explain?client_id=a"),
        (format!("Bearer {CANARY}"), "/metrics"),
        (format!("Bearer {CANARY}"), "/nowhere"),
    ] {
        let mut reply = agent.get(service.url(path)).header("authorization", authorization).call().unwrap();
        seen.push_str(&format!("{:?}", reply.headers()));
        seen.push_str(&reply.body_mut().read_to_string().unwrap());
    }
    let explained =
        binary().args(["config", "explain"]).env("TIDEGATE_ADMIN_TOKEN", CANARY).output().unwrap();
    seen.push_str(&String::from_utf8_lossy(&explained.stdout));
    service.signal("TERM");
    let ended = service.wait();
    seen.push_str(&ended.output);
    assert!(seen.contains("admin.token"), "the setting itself is shown");
    assert!(!seen.contains(CANARY), "{seen}");
}

#[test]
fn decide_asks_a_running_service_and_says_it_with_its_exit_code() {
    let service = Tidegate::start(&[], &[]);
    let server = service.url("");
    let decide = |cost: &str| {
        binary().args(["decide", "client_id=a", "--server", &server, "--cost", cost]).output().unwrap()
    };
    let allowed = decide("60");
    assert_eq!(allowed.status.code(), Some(0), "{}", String::from_utf8_lossy(&allowed.stdout));
    let denied = decide("60");
    assert_eq!(denied.status.code(), Some(3));
    let reply: Value = serde_json::from_slice(&denied.stdout).unwrap();
    assert_eq!((&reply["remaining"], &reply["policy"]), (&json!(40), &json!("default")));
    let nobody = binary().args(["decide", "a=b", "--server", "http://127.0.0.1:1"]).output().unwrap();
    assert_eq!((nobody.status.code(), nobody.stdout.len()), (Some(1), 0));
    assert!(
        String::from_utf8_lossy(&nobody.stderr).contains("--server"),
        "what to do is said apart from JSON"
    );

    // `script` gives it a terminal.
    let command = format!("{} decide client_id=b --server {server}", env!("CARGO_BIN_EXE_tidegate"));
    let people = Command::new("script").args(["-qec", &command, "/dev/null"]).output().unwrap();
    assert_eq!(people.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&people.stdout), "allowed by \"default\": 99 of 100 left\r\n");
}

#[test]
fn completions_and_version_are_printed() {
    let version = binary().arg("version").output().unwrap();
    assert_eq!(
        String::from_utf8(version.stdout).unwrap(),
        format!("tidegate {}\n", env!("CARGO_PKG_VERSION"))
    );
    for shell in ["bash", "zsh", "fish"] {
        let script = binary().args(["completions", shell]).output().unwrap();
        assert!(String::from_utf8_lossy(&script.stdout).contains("tidegate"), "{shell}");
    }
    let taken = "eval \"$($0 completions bash)\" && complete -p tidegate";
    let taken = Command::new("bash").args(["-ec", taken, env!("CARGO_BIN_EXE_tidegate")]).output().unwrap();
    assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let written = binary().arg("man-pages").arg(folder.path()).output().unwrap();
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let page = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let help = String::from_utf8(binary().arg("--help").output().unwrap().stdout).unwrap();
    let commands = help.split_once("Options:\n").unwrap().0;
    let names: Vec<_> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert!(names.contains(&"serve") && names.contains(&"doctor") && !names.contains(&"man-pages"), "{help}");
    for name in names {
        assert!(page(&format!("tidegate-{name}.1")).contains(".SH NAME"), "{name}");
    }
    assert!(page("tidegate.1").contains("tidegate\\-serve(1)"));
    assert!(page("tidegate-serve.1").contains("http\\-listen"));
    assert!(page("tidegate-intake-tail.1").contains(".TH tidegate-intake-tail 1"));
}

#[test]
fn the_first_start_makes_the_operators_token_and_the_next_ones_take_it() {
    let environment =
        [("TIDEGATE_HTTP_LISTEN", "0.0.0.0:0"), ("TIDEGATE_ADMIN_TOKEN_FILE", "tidegate-data/admin.token")];
    let service = Tidegate::start_in(tempfile::tempdir().unwrap(), &[], &environment);
    let printed = |more: &[(&str, &str)]| {
        let mut command = binary();
        command.arg("token").current_dir(service.path()).envs(environment).envs(more.iter().copied());
        command.output().unwrap()
    };
    let token = String::from_utf8(printed(&[]).stdout).unwrap();
    assert_eq!(token.trim().len(), 48, "{token}");
    let read = |service: &Tidegate, secret: &str| {
        let url = format!("http://127.0.0.1:{}/v1/policies", service.http.port());
        agent().get(url).header("authorization", format!("Bearer {secret}")).call().unwrap().status().as_u16()
    };
    assert_eq!((read(&service, "guessed-guessed-guessed"), read(&service, token.trim())), (401, 200));
    // Where the configuration has a token, no file is read.
    let own = printed(&[("TIDEGATE_ADMIN_TOKEN", "sixteen-letters-and-more")]);
    assert_eq!((own.status.code(), own.stdout.len()), (Some(1), 0));

    let folder = tempfile::tempdir().unwrap();
    fs::rename(service.path().join("tidegate-data"), folder.path().join("tidegate-data")).unwrap();
    drop(service);
    let next = Tidegate::start_in(folder, &[], &environment);
    assert_eq!(read(&next, token.trim()), 200);
    next.signal("TERM");
    let ended = next.wait();
    assert!(!ended.output.contains(token.trim()), "{}", ended.output);
}
