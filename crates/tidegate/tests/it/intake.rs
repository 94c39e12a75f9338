//! The intake in the built binary, as its clients and operators meet it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::process::{Command, Stdio};

use crate::support::{Tidegate, agent, binary};
use serde_json::{Value, json};

const BATCH: &str = r#"{"metrics":[{"name":"cpu.usage","value":81.5,"tags":{"host":"a"}}]}"#;
const ON_FREE_PORTS: [(&str, &str); 1] = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];

fn url(service: &Tidegate, path: &str) -> String {
    format!("http://{}{path}", service.intake.unwrap())
}

fn post(service: &Tidegate, body: &str) -> (u16, Value) {
    let mut reply = agent().post(url(service, "/metrics")).send(body).unwrap();
    (reply.status().as_u16(), reply.body_mut().read_json().unwrap_or_default())
}

/// What `tidegate intake tail` prints.
fn tail(service: &Tidegate, arguments: &[&str]) -> String {
    let server = url(service, "");
    let mut command = binary();
    let ran = command.args(["intake", "tail", "--server", &server]).args(arguments).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
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
    Tidegate::start_in(folder, &[], &ON_FREE_PORTS)
}

#[test]
fn fault_26_what_was_acknowledged_is_there_after_a_kill() {
    let service = Tidegate::start(&[], &[]);
    for _ in 0..20 {
        assert_eq!(post(&service, BATCH), (200, json!({"success": true, "metrics_processed": 1})));
    }
    let before = tail(&service, &["-n", "100"]);
    assert_eq!(before.lines().count(), 20);
    let again = restarted(service, "KILL");
    assert_eq!(tail(&again, &["-n", "100"]), before);
    assert_eq!(tail(&again, &["-n", "3"]).lines().count(), 3);
    assert_eq!(post(&again, BATCH).0, 200);
    assert_eq!(tail(&again, &["-n", "100"]).lines().count(), 21);
}

#[test]
fn what_was_acknowledged_in_memory_is_there_after_sigterm() {
    let service = Tidegate::start(&[], &[("TIDEGATE_INTAKE_ACKNOWLEDGE", "memory")]);
    for _ in 0..20 {
        assert_eq!(post(&service, BATCH).0, 200);
    }
    let again = restarted(service, "TERM");
    assert_eq!(tail(&again, &["-n", "100"]).lines().count(), 20);
}

#[test]
fn sigterm_without_traffic_ends_the_process() {
    let service = Tidegate::start(&[], &[]);
    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.status.success(), "{}", ended.output);
}

#[test]
fn the_intake_can_be_left_out() {
    let service = Tidegate::start(&[], &[("TIDEGATE_INTAKE_LISTEN", "off")]);
    assert_eq!(service.intake, None);
    assert!(!service.path().join("tidegate-data/intake").exists());
    let mut page = agent().get(service.url("/metrics")).call().unwrap();
    assert!(!page.body_mut().read_to_string().unwrap().contains("tidegate_intake"));
}

#[test]
fn its_numbers_are_on_both_pages_and_promtool_reads_them() {
    let service = Tidegate::start(&[], &[]);
    assert_eq!(post(&service, BATCH).0, 200);
    assert_eq!(post(&service, "{}").0, 400);
    let pages = [
        agent().get(service.url("/metrics")).call().unwrap(),
        agent().get(url(&service, "/metrics")).header("accept", "text/plain").call().unwrap(),
    ];
    for mut page in pages {
        let text = page.body_mut().read_to_string().unwrap();
        for line in [
            "tidegate_intake_metrics_total{protocol=\"json\"} 1",
            "tidegate_intake_refused_total{reason=\"invalid\"} 1",
            "tidegate_log_lines_total{partition=\"0\"} 1",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in {text}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("page");
        fs::write(&file, &text).unwrap();
        let mut checked = Command::new("promtool");
        checked.args(["check", "metrics"]).stdin(fs::File::open(&file).unwrap());
        let checked = checked.output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}

#[test]
fn policies_that_the_intake_lists_limit_each_client() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    let text = "intake.policies = ['batches']\nintake.client_header = 'x-client'\n\
                [[policy]]\nname = 'batches'\nlimit = 2\nwindow_seconds = 3600\n";
    fs::write(&file, text).unwrap();
    let service = Tidegate::start(&["--config", file.to_str().unwrap()], &[]);
    let send = |client: &str| {
        let reply = agent().post(url(&service, "/metrics")).header("x-client", client).send(BATCH).unwrap();
        (reply.status().as_u16(), reply.headers().contains_key("retry-after"))
    };
    assert_eq!(
        [send("a"), send("a"), send("a"), send("b")],
        [(200, false), (200, false), (429, true), (200, false)]
    );
}

#[test]
fn a_policy_that_the_intake_lists_is_not_taken_away_and_while_it_is_not_there_nothing_passes() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), "intake.policies = ['batches']\n").unwrap();
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &ON_FREE_PORTS);
    let (status, said) = post(&service, BATCH);
    assert_eq!(status, 503, "{said}");
    assert!(said.to_string().contains("batches"), "{said}");
    let policy = json!({"name": "batches", "limit": 1, "window_seconds": 3600}).to_string();
    let put = agent().put(service.url("/v1/policies/batches")).content_type("application/json");
    assert!(put.send(policy).unwrap().status().is_success());
    assert_eq!([post(&service, BATCH).0, post(&service, BATCH).0], [200, 429]);
    let mut refused = agent().delete(service.url("/v1/policies/batches")).call().unwrap();
    let said = refused.body_mut().read_to_string().unwrap();
    assert!(refused.status().is_client_error() && said.contains("intake/policies"), "{said}");
    assert_eq!(post(&service, BATCH).0, 429, "it is still in force");
}

/// A typing mistake would have every batch answered 503.
#[test]
fn a_policy_that_the_intake_lists_and_the_file_does_not_have_is_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidegate.toml");
    let check = |text: &str, environment: &[(&str, &str)]| {
        fs::write(&path, text).unwrap();
        let ended = binary().arg("check").arg(&path).envs(environment.iter().copied()).output().unwrap();
        (ended.status.success(), String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned())
    };
    let policy = "[[policy]]\nname = 'batches'\nlimit = 1\nwindow_seconds = 1\n";
    let mistake = "intake.policies[1]: is \"batchs\", which is no policy of the file";
    let (is_good, said) = check(&format!("intake.policies = ['batches', 'batchs']\n{policy}"), &[]);
    assert!(!is_good && said.contains(mistake) && said.contains("one of batches"), "{said}");
    let (is_good, said) = check(policy, &[("TIDEGATE_INTAKE_POLICIES", "batches,batchs")]);
    assert!(!is_good && said.contains(mistake), "{said}");
    for good in [
        format!("intake.policies = ['batches']\n{policy}"),
        format!("intake.policies = ['batchs']\nintake.listen = 'off'\n{policy}"),
    ] {
        let (is_good, said) = check(&good, &[]);
        assert!(is_good && !said.contains("batchs"), "{said}");
    }
    let (is_good, said) = check("intake.policies = ['batches']\n", &[]);
    assert!(is_good && said.contains("until a policy of this name is stored"), "{said}");
}

#[test]
fn a_policy_that_the_intake_does_not_list_leaves_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("tidegate.toml"),
        "[[policy]]\nname = 'none'\nlimit = 0\nwindow_seconds = 60\n",
    )
    .unwrap();
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &ON_FREE_PORTS);
    assert_eq!([post(&service, BATCH).0, post(&service, BATCH).0], [200, 200]);
}

#[test]
fn tail_shows_all_partitions() {
    let more = [("TIDEGATE_INTAKE_PARTITIONS", "4"), ("TIDEGATE_INTAKE_PARTITION_BY", "series")];
    let service = Tidegate::start(&[], &more);
    for number in 0..40 {
        let at = 1_795_420_800_000_i64 + number * 1_000;
        let metric = json!({"name": format!("metric.{number}"), "value": number, "timestamp": at});
        assert_eq!(post(&service, &json!({ "metrics": [metric] }).to_string()).0, 200);
    }
    let values = |text: &str| -> Vec<i64> {
        let value =
            |line: &str| serde_json::from_str::<Value>(line).unwrap()["value"].as_f64().unwrap() as i64;
        text.lines().map(value).collect()
    };
    assert_eq!(values(&tail(&service, &["-n", "100"])), (0..40).collect::<Vec<_>>());
    assert_eq!(values(&tail(&service, &["-n", "3"])), [37, 38, 39]);
    let parts: Vec<usize> = (0..4)
        .map(|it| tail(&service, &["-n", "100", "--partition", &it.to_string()]).lines().count())
        .collect();
    assert!(
        parts.iter().sum::<usize>() == 40 && parts.iter().all(|lines| (1..40).contains(lines)),
        "{parts:?}"
    );
    let server = url(&service, "");
    let mut following = binary();
    following.args(["intake", "tail", "-n", "1", "--follow", "--server", &server]).stdout(Stdio::piped());
    let mut following = following.spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(values(&lines.next().unwrap()), [39]);
    for number in 40..50 {
        let metric = json!({"name": format!("metric.{number}"), "value": number});
        assert_eq!(post(&service, &json!({ "metrics": [metric] }).to_string()).0, 200);
        assert_eq!(values(&lines.next().unwrap()), [number]);
    }
    following.kill().unwrap();
    following.wait().unwrap();
}

/// The first block of `docs/intake.md` that has this line.
fn documented(line: &str) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/intake.md");
    let page = fs::read_to_string(page).unwrap();
    let mut blocks = page.split("```toml\n").filter_map(|rest| rest.split_once("```"));
    let found = blocks.find(|(block, _)| block.lines().any(|it| it.starts_with(line)));
    found.unwrap_or_else(|| panic!("no {line} in docs/intake.md")).0.to_owned()
}

fn batch_of(metrics: usize) -> String {
    let metric = |number| json!({"name": format!("metric.{number}"), "value": 1});
    json!({ "metrics": (0..metrics).map(metric).collect::<Vec<_>>() }).to_string()
}

/// With ninety days instead of a second, so that nothing comes back while the test runs.
#[test]
fn the_documented_policy_holds_ten_thousand_for_each_client_by_batches_or_by_metrics() {
    let example = documented("intake.policies").replace("window_seconds = 1\n", "window_seconds = 7776000\n");
    assert!(example.contains("limit = 10000\nwindow_seconds = 7776000\n"), "{example}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, format!("intake.cost = 'metrics'\n{example}")).unwrap();
    let service = Tidegate::start(&["--config", file.to_str().unwrap()], &[]);
    let send = |client: &str, metrics| {
        let request = agent().post(url(&service, "/metrics")).header("x-client", client);
        request.send(batch_of(metrics)).unwrap().status().as_u16()
    };
    for _ in 0..9 {
        assert_eq!(send("a", 1_000), 200);
    }
    assert_eq!([send("a", 999), send("a", 2), send("a", 1), send("a", 1)], [200, 429, 200, 429]);
    assert_eq!(send("b", 1_000), 200);
    let decision = json!({"attributes": {"client_id": "a", "resource": "metrics"}, "cost": 0}).to_string();
    let ask = agent().post(service.url("/v1/decisions")).content_type("application/json");
    let mut shared = ask.send(decision).unwrap();
    let shared: Value = shared.body_mut().read_json().unwrap();
    assert!(shared.to_string().contains("\"batches\""), "{shared}");
}

#[test]
fn a_group_is_forgotten_by_name_and_recorded_and_that_of_a_forward_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let groups = folder.path().join("tidegate-data/intake/groups");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&groups).unwrap();
    for name in ["forward.other", "forward.gone"] {
        fs::write(groups.join(format!("{name}.json")), "{\"0\":0}\n").unwrap();
    }
    // Nobody listens there.
    let text = "[[intake.forward]]\nname = 'other'\nto = 'otlp'\nurl = 'http://127.0.0.1:9/v1/metrics'\n";
    fs::write(folder.path().join("tidegate.toml"), text).unwrap();
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &ON_FREE_PORTS);
    assert_eq!(post(&service, BATCH).0, 200);
    let commit = agent().post(url(&service, "/v1/intake/commit?group=billing&offset=1"));
    assert_eq!(commit.send_empty().unwrap().status(), 204);
    let listed = || {
        agent().get(service.url("/v1/intake/groups")).call().unwrap().body_mut().read_json::<Value>().unwrap()
    };
    let group = |name: &str, offset: u64, of_a_forward: bool| json!({"name": name, "offsets": {"0": offset}, "is_of_a_forward": of_a_forward});
    let other = group("forward.other", 0, true);
    assert_eq!(listed(), json!([group("billing", 1, false), group("forward.gone", 0, false), other]));
    let remove = |name: &str| {
        let reply = agent().delete(service.url(&format!("/v1/intake/groups/{name}"))).call().unwrap();
        reply.status().as_u16()
    };
    assert_eq!([remove("forward.other"), remove("forward.gone"), remove("nobody")], [409, 204, 404]);
    assert_eq!([remove("billing"), remove("billing")], [204, 404]);
    assert_eq!(listed(), json!([other]));
    let mut again = agent().get(url(&service, "/v1/intake/read?group=billing")).call().unwrap();
    assert_eq!(again.body_mut().read_to_string().unwrap().lines().count(), 1, "it begins anew");
    let audit: Value = agent().get(service.url("/v1/audit")).call().unwrap().body_mut().read_json().unwrap();
    let audit = audit.to_string();
    assert!(
        audit.contains("intake_group") && audit.contains("billing") && !audit.contains("forward.other"),
        "{audit}"
    );
}

#[test]
fn fault_45_a_public_intake_needs_a_token_and_a_token_is_asked_for() {
    let refused = binary().arg("serve").env("TIDEGATE_INTAKE_LISTEN", "0.0.0.0:0").output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(said.contains("intake.listen") && said.contains("ingest"), "{said}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    // The digest of `canary-7f3a-canary`.
    let digest =
        Command::new("sh").args(["-c", "printf %s canary-7f3a-canary | sha256sum"]).output().unwrap();
    let digest = String::from_utf8_lossy(&digest.stdout)[..64].to_owned();
    let text = format!("[[token]]\nname = 'agent'\nscopes = ['ingest']\nsha256 = '{digest}'\n");
    fs::write(&file, text).unwrap();
    let service = Tidegate::start(&["--config", file.to_str().unwrap()], &[]);
    assert_eq!(post(&service, BATCH).0, 401);
    let bearer = "Bearer canary-7f3a-canary";
    let reply = agent().post(url(&service, "/metrics")).header("authorization", bearer).send(BATCH).unwrap();
    assert_eq!(reply.status(), 200);
    let read = agent().get(url(&service, "/v1/intake/read")).header("authorization", bearer).call().unwrap();
    assert_eq!(read.status(), 403);
}

/// What the binary prints for these arguments of `tidegate intake`, and its exit code.
fn intake(arguments: &[&str]) -> (Option<i32>, String) {
    let ran = binary().arg("intake").args(arguments).output().unwrap();
    let said = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (ran.status.code(), said)
}

#[test]
fn a_query_counts_and_plots_what_was_sent() {
    let service = Tidegate::start(&[], &[]);
    let server = url(&service, "");
    let start = 1_795_420_800_000_i64;
    for second in 0..60 {
        let at = start + second * 1_000;
        let metrics: Vec<Value> = ["a", "b"]
            .iter()
            .map(
                |host| json!({"name": "cpu.usage", "value": second, "timestamp": at, "tags": {"host": host}}),
            )
            .chain([json!({"name": "other", "value": 1_000_000, "timestamp": at})])
            .collect();
        assert_eq!(post(&service, &json!({ "metrics": metrics }).to_string()).0, 200);
    }
    let times = ["--start", "2026-11-23T08:00:00Z", "--end", "2026-11-23T08:01:00Z", "--server", &server];
    let ask = |more: &[&str]| intake(&[&["query", "cpu.usage"], &times[..], more].concat());
    let (code, text) = ask(&["--step", "30s", "--agg", "max", "--format", "csv"]);
    assert_eq!(code, Some(0), "{text}");
    let expected = "timestamp,value\r\n2026-11-23T08:00:00.000Z,29\r\n2026-11-23T08:00:30.000Z,59\n";
    assert_eq!(text, expected);
    let (_, text) = ask(&["--step", "30s", "--agg", "count", "--tag", "host=a", "--format", "json"]);
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["points"], json!([[start, 30.0], [start + 30_000, 30.0]]));
    assert_eq!((&answer["lines"], &answer["complete"]), (&json!(120), &json!(true)));
    let (_, text) = ask(&["--agg", "rate", "--step", "1m", "--format", "json"]);
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["points"], json!([[start, 118.0 / 60.0]]), "two counters that grow by 1 a second");
    let (code, drawn) = ask(&[]);
    assert_eq!(code, Some(0));
    assert!(drawn.starts_with("avg of cpu.usage, 120 lines, a point is 1 s\n59.00 │"), "{drawn}");
    assert!(drawn.matches('•').count() > 40 && drawn.contains("2026-11-23 08:01:00Z"), "{drawn}");
    let (code, said) = intake(&["query", "cpu.usage", "--last", "5 minutes", "--server", &server]);
    assert!(code == Some(1) && said.contains("400") && said.contains("last must be"), "{said}");
}

#[test]
fn fault_72_verify_explains_a_folder_and_changes_nothing() {
    let service = Tidegate::start(&[], &[]);
    assert_eq!(post(&service, BATCH).0, 200);
    service.signal("KILL");
    let folder = service.path().join("tidegate-data/intake");
    let (_kept, _ended) = service.wait_keeping_data();
    let folder_text = folder.to_str().unwrap();
    let (code, said) = intake(&["verify", folder_text]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("partition 0: 1 lines in 1 segments of "), "{said}");
    let segment = folder.join("0/00000000000000000000.jsonl");
    let torn = [fs::read(&segment).unwrap(), b"{\"timestamp\":\"2026".to_vec()].concat();
    fs::write(&segment, &torn).unwrap();
    let (code, said) = intake(&["verify", folder_text]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("these are not whole lines: 18 bytes"), "{said}");
    assert_eq!(fs::read(&segment).unwrap(), torn);
    assert_eq!(intake(&["verify", "/nowhere"]).0, Some(2));
}
