//! The file, what is stored, and which of the two is in force.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::edge::metric;
use crate::support::{Tidegate, agent, binary};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_net::clock::monotonic;

const BUCKET: &str =
    "[[policy]]\nname = \"api\"\nalgorithm = \"token_bucket\"\nlimit = 5\nwindow_seconds = 60\n";
const WINDOW: &str =
    "[[policy]]\nname = \"api\"\nalgorithm = \"fixed_window\"\nlimit = 5\nwindow_seconds = 60\n";

fn start(folder: TempDir) -> Tidegate {
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment)
}

fn with_file(text: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), text).unwrap();
    folder
}

fn put(service: &Tidegate, path: &str, document: &Value) -> u16 {
    agent().put(service.url(path)).send_json(document).unwrap().status().as_u16()
}

fn page(service: &Tidegate, path: &str) -> String {
    agent().get(service.url(path)).call().unwrap().body_mut().read_to_string().unwrap()
}

/// The audit log, once it has so many rows.
fn wait_for_rows(service: &Tidegate, count: usize) -> Vec<Value> {
    let start_of_wait = monotonic();
    loop {
        let rows: Vec<Value> = serde_json::from_str(&page(service, "/v1/audit")).unwrap();
        if rows.len() >= count {
            return rows;
        }
        assert!(start_of_wait.elapsed() < Duration::from_secs(60), "{count} rows are not there: {rows:?}");
    }
}

fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = binary().args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until the file was put in force again more often than `before`, and says how often. A file that changes before the
/// signal comes may be read twice.
fn until_applied(service: &Tidegate, before: u64) -> u64 {
    let begun = monotonic();
    loop {
        let applied = metric(service, "tidegate_config_reloads_total{result=\"applied\"}");
        if applied > before {
            return applied;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "not applied");
    }
}

#[test]
fn fault_57_a_stored_document_that_fits_no_longer_is_said_and_does_not_stop_the_start() {
    let service = start(with_file(BUCKET));
    assert_eq!(put(&service, "/v1/clients/vip/limits", &json!({"api": {"burst": 50}})), 200);
    assert_eq!(run(service.path(), &["check", "tidegate.toml"]).matches("warning").count(), 0);

    // While it serves, the new file is refused: nothing that is in force is to go silently.
    fs::write(service.path().join("tidegate.toml"), WINDOW).unwrap();
    service.signal("HUP");
    let start_of_wait = monotonic();
    while !page(&service, "/metrics").contains("tidegate_config_last_reload_successful 0\n") {
        assert!(start_of_wait.elapsed() < Duration::from_secs(60), "not refused");
    }
    let checked = run(service.path(), &["check", "tidegate.toml"]);
    assert!(
        checked.contains("warning: the stored override \"vip\" is set aside: /override/vip/api/burst"),
        "{checked}"
    );
    service.signal("TERM");
    let (folder, ended) = service.wait_keeping_data();
    assert!(ended.output.contains("override.vip.api.burst"), "{}", ended.output);
    assert!(!ended.output.contains("\\n"), "a line for each mistake: {}", ended.output);

    let service = start(folder);
    assert!(page(&service, "/metrics").contains("tidegate_config_set_aside 1\n"));
    let ready: Value = serde_json::from_str(&page(&service, "/readyz")).unwrap();
    assert_eq!(ready["ready"], true);
    assert!(ready["degraded"][0].as_str().unwrap().contains("/v1/set-aside"), "{ready}");
    let listed: Value = serde_json::from_str(&page(&service, "/v1/set-aside")).unwrap();
    assert_eq!(listed["set_aside"][0]["name"], "vip");
    let ask = json!({"attributes": {"client_id": "vip"}});
    let reply: Value =
        agent().post(service.url("/v1/decisions")).send_json(&ask).unwrap().body_mut().read_json().unwrap();
    assert_eq!(reply["remaining"], 4, "everyone's limit");
    assert_eq!(put(&service, "/v1/clients/vip/limits", &json!({"api": {"limit": 50}})), 200);
    assert!(page(&service, "/metrics").contains("tidegate_config_set_aside 0\n"));
    service.signal("TERM");
    let output = service.wait().output;
    assert!(output.contains("set aside: this stored document is not in force"), "{output}");
}

#[test]
fn the_log_says_what_changed_and_what_a_stored_policy_hides() {
    let service = start(with_file(BUCKET));
    fs::write(service.path().join("tidegate.toml"), BUCKET.replace("limit = 5", "limit = 6")).unwrap();
    service.signal("HUP");
    wait_for_rows(&service, 1);
    let stored = json!({"algorithm": "token_bucket", "limit": 7, "window_seconds": 60});
    assert_eq!(put(&service, "/v1/policies/api", &stored), 200);
    let edited = BUCKET.replace("limit = 5", "limit = 8") + "[log]\nlevel = \"debug\"\n";
    let before = until_applied(&service, 0);
    fs::write(service.path().join("tidegate.toml"), edited).unwrap();
    service.signal("HUP");
    until_applied(&service, before);
    let explained = run(service.path(), &["config", "explain", "--config", "tidegate.toml"]);
    let row = explained.lines().find(|line| line.starts_with("api ")).unwrap();
    assert!(
        row.ends_with("stored at revision 2, hides the file's") && row.contains("\"limit\":7"),
        "{explained}"
    );
    service.signal("TERM");
    let output = service.wait().output;
    for said in [
        "changed by the file policy=\"api\" change=\"burst 5 -> 6, limit 5 -> 6\"",
        "changed by the API revision=2 actor=\"local\" kind=policy name=\"api\" change=",
        "limit 6 -> 7",
        "changed by the file policy=\"api\" change=\"burst 6 -> 8, limit 6 -> 8\"",
        "the file's policy has no effect",
        "`tidegate config explain`",
        "takes effect at the next start change=\"log.level info -> debug\"",
    ] {
        assert!(output.contains(said), "{said} is not in\n{output}");
    }
    assert!(!output.contains("another node"), "{output}");
}

#[test]
fn changes_of_the_file_are_in_the_audit_log_also_those_between_two_runs() {
    let service = start(with_file(BUCKET));
    let path = service.path().join("tidegate.toml");
    fs::write(&path, BUCKET.replace("limit = 5", "limit = 6")).unwrap();
    service.signal("HUP");
    let rows = wait_for_rows(&service, 1);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let row = &rows[0];
    assert_eq!((&row["actor"], &row["from"]), (&json!("file"), &json!(host.trim())), "{row}");
    assert_eq!((&row["kind"], &row["name"]), (&json!("file"), &json!("tidegate.toml")), "{row}");
    assert_eq!(row["action"], "put", "{row}");
    assert_eq!(row["before"]["policy"]["api"]["limit"], 5, "{row}");
    assert_eq!(row["after"]["policy"]["api"]["limit"], 6, "{row}");
    // A change by the API says from where, and a file that is read again as it was is no change.
    assert_eq!(put(&service, "/v1/clients/vip/limits", &json!({"api": {"burst": 50}})), 200);
    let before = until_applied(&service, 0);
    service.signal("HUP");
    until_applied(&service, before);
    service.signal("TERM");
    let (folder, _) = service.wait_keeping_data();
    // Nobody serves meanwhile. What a secret is stays in the file.
    let path = folder.path().join("tidegate.toml");
    let with =
        |secret: &str| format!("{BUCKET}[log]\nlevel = \"debug\"\n[resp]\npassword = \"canary-{secret}\"\n");
    fs::write(&path, with("0123456789abcdef")).unwrap();
    let service = start(folder);
    let rows = wait_for_rows(&service, 3);
    assert_eq!(
        (&rows[1]["kind"], &rows[1]["from"]),
        (&json!("override"), &json!("127.0.0.1")),
        "{}",
        rows[1]
    );
    let (before, after) = (&rows[2]["before"], &rows[2]["after"]);
    assert_eq!((&before["policy"]["api"]["limit"], &after["policy"]["api"]["limit"]), (&json!(6), &json!(5)));
    assert_eq!(after["setting"]["log.level"], "debug", "{after}");
    assert!(after["setting"]["resp.password"].is_string(), "{after}");
    // Another secret is a change of the file, and nothing of it is shown.
    fs::write(&path, with("fedcba9876543210")).unwrap();
    service.signal("HUP");
    let rows = wait_for_rows(&service, 4);
    assert_eq!((&rows[3]["before"], &rows[3]["after"]), (&json!({}), &json!({})));
    assert!(!json!(rows).to_string().contains("canary"), "{rows:?}");
    // No row about the file is gone back from: nothing that is stored came of it.
    let reply = agent().post(service.url("/v1/revert")).send_json(json!({"revision": 2})).unwrap();
    assert_eq!(reply.status(), 200);
    assert_eq!(wait_for_rows(&service, 4).len(), 4);
    service.signal("TERM");
    let (folder, _) = service.wait_keeping_data();
    let kept = fs::read_to_string(folder.path().join("tidegate-data/file-recorded.json")).unwrap();
    assert!(!kept.contains("canary"), "{kept}");
}
