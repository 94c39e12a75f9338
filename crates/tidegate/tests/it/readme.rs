//! What the README shows is what happens.

use std::process::{Command, Output};

use crate::support::{Tidegate, agent, binary};
use tidegate_testkit::postgres::PostgresServer;
use tidegate_testkit::redis::RedisServer;

/// The fenced block that follows `marker` in the README.
fn block_after(marker: &str) -> String {
    let readme = include_str!("../../../../README.md");
    let after = readme.split_once(marker).unwrap().1;
    let body = after.split_once("```").unwrap().1.split_once('\n').unwrap().1;
    body.split_once("```").unwrap().0.to_owned()
}

#[test]
fn the_readme_sells_in_one_screen() {
    let (screen, _) = include_str!("../../../../README.md").split_once("\n## Ask it").unwrap();
    assert!(screen.lines().count() <= 60, "{} lines", screen.lines().count());
    let (_, figures) = screen.split_once("\n## Three figures, and where others are better").unwrap();
    assert!(figures.matches("](docs/benchmarks.md#").count() >= 3, "{figures}");
    for said in [
        "people who run APIs",
        "![",
        "`apt install ",
        "`dnf install ",
        "`docker load ",
        "`helm install ",
        "`make run`",
        "{\"allowed\":false,",
        "nginx and HAProxy [pass small replies on faster]",
        "Envoy, Kong and Caddy have plugins",
    ] {
        assert!(screen.contains(said), "{said}");
    }
    for path in ["deploy/helm/tidegate/Chart.yaml", "deploy/helm/values-one.yaml", "deploy/Dockerfile"] {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        assert!(file.is_file(), "{path}");
    }
}

#[test]
fn the_first_denial_comes_as_the_readme_shows_it() {
    let service = Tidegate::start(&[], &[]);
    let script = block_after("<!-- run by crates/tidegate/tests/it/readme.rs -->")
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
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && !said.contains("warning"), "{said}");
}

#[test]
fn fault_58_the_file_that_the_readme_shows_limits_what_its_curl_sends() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("tidegate.toml");
    let text = block_after("flags win over the environment, the environment over the file:");
    std::fs::write(&file, text.replace("127.0.0.1:4000", "127.0.0.1:0")).unwrap();
    let service = Tidegate::start_in(data, &["--config", file.to_str().unwrap()], &[]);
    let script = block_after("<!-- run by crates/tidegate/tests/it/readme.rs -->")
        .replace("127.0.0.1:4000", &service.http.to_string())
        .replace("| tail -n 2", "");
    let ran = Command::new("bash").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    assert!(said.starts_with("{\"allowed\":true,\"remaining\":19}\n"), "{said}");
    assert!(said.contains("\"allowed\":false") && !said.contains("no_match"), "{said}");
}

/// A shell in a scratch folder that finds the built binary under the name that people install it by.
fn shell(script: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidegate"), programs.join("tidegate")).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    // Scripts wait for their services; one that never comes ends the whole group.
    let mut bounded = Command::new("timeout");
    bounded.args(["120", "bash", "-ec", script]).env("PATH", path).current_dir(folder.path());
    bounded.output().unwrap()
}

#[test]
fn the_gateway_of_the_readme_limits_fails_over_breaks_and_recovers() {
    let ports = [8080, 3000, 3001].map(|port| (port.to_string(), tidegate_testkit::free_port().to_string()));
    let with_free_ports = |text: String| {
        ports.iter().fold(text, |text, (port, free)| text.replace(&format!(":{port}"), &format!(":{free}")))
    };
    let file = with_free_ports(block_after("gateway.toml of crates/tidegate/tests/it/readme.rs -->"));
    assert_eq!(file.lines().count(), 12);
    let others = "export TIDEGATE_HTTP_LISTEN=127.0.0.1:0 TIDEGATE_GRPC_LISTEN=127.0.0.1:0 TIDEGATE_RESP_LISTEN=127.0.0.1:0 TIDEGATE_INTAKE_LISTEN=127.0.0.1:0";
    let script = with_free_ports(block_after("tests/it/readme.rs: gateway -->"));
    let ran = shell(&format!("{others}\ncat > gateway.toml <<'END'\n{file}END\n{script}"));
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    // A moment may pass between a denial and its reply.
    let waits = [("retry-after: ", 10_u64), ("r=0;t=", 10)];
    let normal = said.lines().map(|line| {
        let wait = waits.iter().find_map(|(mark, most)| {
            let (before, seconds) = line.split_once(mark)?;
            let seconds: u64 = seconds.parse().ok()?;
            Some((format!("{before}{mark}"), seconds, *most))
        });
        let Some((before, seconds, most)) = wait else { return format!("{line}\n") };
        assert!((1..=most).contains(&seconds), "{line}");
        let stated = if before.starts_with("retry-after") && seconds <= 2 { 2 } else { most };
        format!("{before}{stated}\n")
    });
    assert_eq!(normal.collect::<String>(), block_after("It prints:"), "{said}");
}

#[test]
fn what_the_intake_of_the_readme_has_acknowledged_is_there_after_a_kill() {
    let port = tidegate_testkit::free_port().to_string();
    let script = block_after("tests/it/readme.rs: intake -->").replace("4002", &port);
    let script = script
        .replace("tidegate serve", &format!("TIDEGATE_INTAKE_LISTEN=127.0.0.1:{port} tidegate serve"))
        .replace("tidegate intake tail", &format!("tidegate intake tail --server http://127.0.0.1:{port}"))
        .replace("--last 5m", &format!("--last 5m --server http://127.0.0.1:{port}"));
    let others = "export TIDEGATE_HTTP_LISTEN=127.0.0.1:0 TIDEGATE_GRPC_LISTEN=127.0.0.1:0 TIDEGATE_RESP_LISTEN=127.0.0.1:0";
    let ran = shell(&format!("{others}\n{script}"));
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let shown = block_after("It prints, with the present time:");
    let time = said.split_once("\"timestamp\":\"").unwrap().1.split_once('"').unwrap().0.to_owned();
    let said = said.replace(&time, "2026-11-23T08:00:00.000Z");
    assert_eq!(any_width(&said), any_width(&shown), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// A plot however wide it is and wherever its point stands in time: without runs of blanks, lines and points, and with its
/// times as zeros.
fn any_width(text: &str) -> String {
    let line = |line: &str| {
        let mut line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        line = line.replace("│ •", "│•");
        line = line.chars().fold(String::new(), |mut kept, c| {
            if !(['─', '•'].contains(&c) && kept.ends_with(c)) {
                kept.push(c);
            }
            kept
        });
        if line.ends_with('Z') { line.replace(|c: char| c.is_ascii_digit(), "0") + "\n" } else { line + "\n" }
    };
    text.lines().map(line).collect()
}

#[test]
fn the_edge_of_the_readme_finds_the_nearest_backend_and_moves_clients_when_it_dies() {
    let ports = [8080, 3001, 3002, 3003];
    let ports = ports.map(|port| (port.to_string(), tidegate_testkit::free_port().to_string()));
    let http = tidegate_testkit::free_port();
    let with_free_ports = |text: String| {
        ports.iter().fold(text, |text, (port, free)| text.replace(&format!(":{port}"), &format!(":{free}")))
    };
    let file = with_free_ports(block_after("edge.toml of crates/tidegate/tests/it/readme.rs -->"));
    let script = with_free_ports(block_after("tests/it/readme.rs: edge -->"));
    let script = script.replace("explain edge ", &format!("explain edge --server http://127.0.0.1:{http} "));
    let others = format!(
        "export TIDEGATE_HTTP_LISTEN=127.0.0.1:{http} TIDEGATE_GRPC_LISTEN=127.0.0.1:0 \
         TIDEGATE_RESP_LISTEN=127.0.0.1:0 TIDEGATE_EDGE_API_LISTEN=127.0.0.1:0"
    );
    let ran = shell(&format!("{others}\ncat > edge.toml <<'END'\n{file}END\n{script}"));
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let shown = include_str!("../../../../README.md").split_once("tests/it/readme.rs: edge -->").unwrap().1;
    let shown = shown.split_once("It prints:").unwrap().1.split_once("```text\n").unwrap().1;
    assert_eq!(said, shown.split_once("```").unwrap().0, "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn redis_cli_is_answered_as_the_readme_says() {
    let service = Tidegate::start(&[], &[]);
    let script =
        block_after("tests/it/readme.rs: redis -->").replace("6380", &service.resp.port().to_string());
    let ran = shell(&script);
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "0\n3\n2\n-1\n20\n");
}

#[test]
fn the_rules_of_the_readme_are_imported() {
    let ran = shell(&block_after("tests/it/readme.rs: envoy -->"));
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && said.ends_with("tidegate.toml: good (policies: 1, overrides: 0)\n"),
        "{said}"
    );
}

#[test]
fn the_stores_of_the_readme_count_for_two_processes_at_once() {
    let (redis, postgres) = (RedisServer::start(&[]), PostgresServer::start(&[]));
    for line in block_after("tests/it/readme.rs: stores -->").lines() {
        let (store, command) = line.split_once(' ').unwrap();
        assert_eq!(command, "tidegate serve");
        let url = store.strip_prefix("TIDEGATE_STORE=").unwrap();
        let url = url.replace("127.0.0.1:6379", &format!("127.0.0.1:{}", redis.port));
        let url = if url.starts_with("postgres:") {
            format!("postgres://postgres@127.0.0.1:{}/postgres", postgres.port)
        } else {
            url
        };
        let environment = [("TIDEGATE_STORE", url.as_str()), ("TIDEGATE_SHARED_DEADLINE", "60s")];
        let nodes = [Tidegate::start(&[], &environment), Tidegate::start(&[], &environment)];
        let remaining: Vec<u64> = [0, 1, 0, 1].map(|node: usize| remaining(&nodes[node])).to_vec();
        assert_eq!(remaining, [99, 98, 97, 96], "{line}");
    }
}

fn remaining(service: &Tidegate) -> u64 {
    let body = serde_json::json!({"client_id": "user123", "resource": "api"});
    let mut reply = agent().post(service.url("/api/v1/ratelimit")).send_json(&body).unwrap();
    reply.body_mut().read_json::<serde_json::Value>().unwrap()["remaining"].as_u64().unwrap()
}
