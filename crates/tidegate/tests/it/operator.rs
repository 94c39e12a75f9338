//! The built binary's operator pages, its log lines, and what it tells systemd.

use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Tidegate, agent};
use serde_json::{Value, json};

fn page(service: &Tidegate, path: &str) -> (u16, String) {
    let mut reply = agent().get(service.url(path)).call().unwrap();
    (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
}

fn ask(service: &Tidegate, client: &str) {
    let body = json!({"client_id": client, "resource": "r"});
    agent().post(service.url("/api/v1/ratelimit")).send_json(&body).unwrap();
}

#[test]
fn fault_53_a_thousand_clients_add_no_series_to_the_metrics_page() {
    let service = Tidegate::start(&[], &[]);
    ask(&service, "first");
    let before = page(&service, "/metrics").1;
    for client in 0..1_000 {
        ask(&service, &format!("canary-{client}"));
    }
    // The second scrape has counted the first one, so compare from there.
    let (status, after) = page(&service, "/metrics");
    assert_eq!(status, 200);
    assert!(!after.contains("canary"), "a client key is on the page");
    assert!(after.len() < 1_000_000 && after.len() < before.len() + 4_000, "{}", after.len());
    for series in [
        "tidegate_decisions_total{policy=\"default\",result=\"allowed\"} 1001",
        "tidegate_http_requests_total{server=\"api\",route=\"/api/v1/ratelimit\",status=\"2xx\"} 1001",
        "tidegate_lifecycle_stage{stage=\"ready\"} 1",
        "tidegate_store_entries 1001",
        "tidegate_config_last_reload_successful 1",
    ] {
        assert!(after.lines().any(|line| line == series), "{series} is not in\n{after}");
    }
}

#[test]
fn promtool_has_nothing_to_say_about_the_page_and_prometheus_gets_openmetrics() {
    let service = Tidegate::start(&[], &[]);
    ask(&service, "first");
    let scraped = page(&service, "/metrics").1;
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is missing: run `make setup`");
    promtool.stdin.take().unwrap().write_all(scraped.as_bytes()).unwrap();
    let said = promtool.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr).into_owned() + &String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && text.is_empty(), "{text}\n{scraped}");

    let accept = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    let mut reply = agent().get(service.url("/metrics")).header("accept", accept).call().unwrap();
    let kind = reply.headers()["content-type"].to_str().unwrap().to_owned();
    assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"), "{kind}");
    assert!(reply.body_mut().read_to_string().unwrap().ends_with("# EOF\n"));
}

/// A service with these policies and its own folder.
fn with_policies(file: &str) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("t.toml"), file).unwrap();
    Tidegate::start_in(folder, &["--config", "t.toml"], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")])
}

/// The one line of a service's log that says that no policy applies.
fn warning_of_no_match(service: Tidegate) -> String {
    service.signal("TERM");
    let output = service.wait().output;
    assert!(!output.contains("canary"), "a client's value is in the log: {output}");
    let mut warnings = output.lines().filter(|line| line.contains("no policy applies to a request"));
    let (first, second) = (warnings.next(), warnings.next());
    assert_eq!(second, None, "one at most in ten seconds: {output}");
    first.unwrap_or_else(|| panic!("{output}")).to_owned()
}

#[test]
fn fault_58_what_no_policy_applies_to_is_counted_on_the_page_and_warned_of_once() {
    let file = "[[policy]]\nname = 'pay'\nkey = ['client_id']\nlimit = 1\nwindow_seconds = 60\n";
    let service = with_policies(file);
    for _ in 0..2 {
        let misspelt = json!({"attributes": {"client_idd": "canary", "path": "/pay"}});
        agent().post(service.url("/v1/decisions")).send_json(&misspelt).unwrap();
    }
    let page = page(&service, "/metrics").1;
    for series in [
        "tidegate_unmatched_requests_total{result=\"allowed\"} 2",
        "tidegate_requests_decided_total{protocol=\"http\",result=\"unmatched\"} 2",
    ] {
        assert!(page.lines().any(|line| line == series), "{page}");
    }
    let warning = warning_of_no_match(service);
    assert!(warning.contains("WARN") && warning.contains("client_idd, path"), "{warning}");
}

#[test]
fn fault_58_a_concurrency_limit_that_does_not_apply_at_a_door_is_named() {
    let file = "[[policy]]\nname = 'jobs'\nalgorithm = 'concurrency'\nlimit = 1\nlease_seconds = 60\n";
    let service = with_policies(file);
    assert_eq!(agent().get(service.url("/v1/check")).call().unwrap().status(), 204);
    let warning = warning_of_no_match(service);
    assert!(
        warning.contains("\"jobs\" matches, and applies only where a permit can be given back"),
        "{warning}"
    );
}

#[test]
fn a_release_says_which_commit_it_is_built_from() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition", "2024", "-o"]).arg(&script).arg("build.rs").current_dir(package);
    assert!(rustc.status().unwrap().success());
    let run = |environment: &[(&str, &str)]| {
        let mut command = Command::new(&script);
        command.env_remove("TIDEGATE_COMMIT").envs(environment.iter().copied()).current_dir(package);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let head = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).current_dir(package).output();
    let head = String::from_utf8(head.unwrap().stdout).unwrap();
    let line = |commit: &str| format!("cargo::rustc-env=BUILD_COMMIT={}\n", commit.trim());
    let release = run(&[("PROFILE", "release")]);
    assert!(release.contains(&line(&head)) && release.contains("HEAD\n"), "{release}");
    assert!(
        !release.contains("rustc-env=TIDEGATE_"),
        "`cargo run` would hand it to the program as a setting: {release}"
    );
    assert!(run(&[("PROFILE", "release"), ("TIDEGATE_COMMIT", "1234abcd")]).contains(&line("1234abcd")));

    let service = Tidegate::start(&[], &[]);
    let page = page(&service, "/metrics").1;
    let commit = page.split_once("commit=\"").unwrap().1.split_once('"').unwrap().0;
    assert!(run(&[("PROFILE", "debug")]).contains(&line(commit)) || head.trim() == commit, "{commit}");
}

#[test]
fn probes_answer() {
    let service = Tidegate::start(&[], &[]);
    assert_eq!(page(&service, "/livez"), (200, "alive\n".to_owned()));
    let (status, body) = page(&service, "/readyz");
    assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()["ready"].clone()), (200, json!(true)));
}

#[test]
fn a_request_is_followed_by_its_callers_trace() {
    let service = Tidegate::start(&[], &[("TIDEGATE_LOG_LEVEL", "debug"), ("TIDEGATE_LOG_FORMAT", "json")]);
    let caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    agent().get(service.url("/openapi.json")).header("traceparent", caller).call().unwrap();
    agent().get(service.url("/nowhere%0aforged")).call().unwrap();
    service.signal("TERM");
    let output = service.wait().output;
    let line = output.lines().find(|line| line.contains("0af7651916cd43dd8448eb211c80319c")).unwrap();
    let event: Value = serde_json::from_str(line).unwrap();
    assert_eq!(event["fields"]["route"], "/openapi.json");
    assert_eq!(event["fields"]["status"], 200);
    assert!(!output.lines().any(|line| line.starts_with("forged")));
}

#[test]
fn systemd_hears_ready_then_the_watchdog_then_stopping() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let service =
        Tidegate::start(&[], &[("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "10000000")]);
    let hear = || {
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert_eq!(hear(), "READY=1\n");
    assert_eq!(hear(), "WATCHDOG=1\n");
    service.signal("TERM");
    let mut heard = hear();
    while heard == "WATCHDOG=1\n" {
        heard = hear();
    }
    assert!(heard.starts_with("STOPPING=1\n"), "{heard}");
    assert!(service.wait().status.success());
}
