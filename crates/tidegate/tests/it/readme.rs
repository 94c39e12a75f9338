//! What the README shows is what happens, from its top to its end, as its reader does it: a terminal for each that it speaks of,
//! the ports and the PATH of the page, and no environment that the reader is not told. What `docs/asking.md` and `docs/stores.md` show
//! is here, too.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Output};

use crate::operations::{repository, text_of};
use crate::support::{Tidegate, agent, binary};
use tidegate_testkit::postgres::PostgresServer;
use tidegate_testkit::redis::RedisServer;

/// The reader, in three terminals. `$1` is the folder with what the page's blocks are: `second`, `third`.
const READER: &str = r#"
folder=$1
ip link set lo up
comes() { for n in $(seq 600); do grep -q "$1" "$2" && return; sleep 0.1; done; echo "$2 never says $1:"; cat "$2"; return 1; }
: > first.log
make run > first.log 2>&1 &
comes 'try it:' first.log
bash -e "$folder/second"
for time in 1 2; do
  : > third.log
  setsid bash -e "$folder/third" > third.log 2>&1 & third=$!
  comes 'gateway ' third.log
  curl --silent --show-error http://127.0.0.1:8080/livez
  # As Ctrl-C does, to all of the terminal.
  kill -INT -- -$third
  wait $third || :
done
"#;
/// What `cargo run` of the Makefile does when all is built: the binary is where it has put it, and runs.
const CARGO: &str = r#"#!/bin/sh
[ "$*" = "run --profile quick --locked --package tidegate -- serve" ] || exit 9
mkdir -p target/quick
ln -s "${0%/*}/tidegate-that-was-built" target/quick/tidegate
exec target/quick/tidegate serve
"#;

/// The fenced block that follows `marker` on a page.
fn block_after(page: &str, marker: &str) -> String {
    let text = text_of(page);
    let after = text.split_once(marker).unwrap().1;
    let body = after.split_once("```").unwrap().1.split_once('\n').unwrap().1;
    body.split_once("```").unwrap().0.to_owned()
}

/// The README's commands that ask 101 times.
fn asking() -> String {
    block_after("README.md", "<!-- run by crates/tidegate/tests/it/readme.rs -->")
}

/// The file that `docs/asking.md` shows.
fn shown_file() -> String {
    block_after("docs/asking.md", "flags win over the environment, the environment over the file:")
}

#[test]
fn the_readme_sells_in_one_screen() {
    let page = text_of("README.md");
    assert!(page.lines().count() <= 60, "{} lines", page.lines().count());
    let (_, figures) = page.split_once("\n## Three figures, and where others are better").unwrap();
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
        assert!(page.contains(said), "{said}");
    }
    for path in ["deploy/helm/tidegate/Chart.yaml", "deploy/helm/values-one.yaml", "deploy/Dockerfile"] {
        assert!(repository(path).is_file(), "{path}");
    }
}

#[test]
fn the_readme_is_walked_from_its_top_to_its_end() {
    let page = text_of("README.md");
    assert_eq!(page.matches("```sh\n").count(), 2, "a block of commands that nobody walks");
    let (folder, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let tool = |name: &str| tools.path().join(name);
    fs::write(tool("second"), asking()).unwrap();
    fs::write(tool("third"), block_after("README.md", "readme.rs: third terminal -->")).unwrap();
    fs::write(tool("cargo"), CARGO).unwrap();
    fs::set_permissions(tool("cargo"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink(env!("CARGO_BIN_EXE_tidegate"), tool("tidegate-that-was-built")).unwrap();
    symlink(repository("Makefile").canonicalize().unwrap(), folder.path().join("Makefile")).unwrap();

    let mut walk = Command::new("timeout");
    walk.args(["--kill-after", "1", "180", "unshare", "--map-root-user", "--net", "--mount"]);
    walk.args(["--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-ec", READER, "reader"]);
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", tools.path().display());
    walk.arg(tools.path()).env_clear().env("PATH", path).env("HOME", folder.path());
    let ran = walk.current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{errors}");
    let lines: Vec<_> = said.lines().filter(|line| !line.is_empty()).collect();
    let [allowed, denied, first, again] = lines[..] else { panic!("{said}\n{errors}") };
    assert_eq!([first, again], ["alive", "alive"]);
    is_as_the_readme_shows(&format!("{allowed}\n{denied}\n"));
}

/// 101 requests may take a moment: the wait has gone down by as many seconds.
fn is_as_the_readme_shows(said: &str) {
    let page = text_of("README.md");
    let shown = page.split_once("```text\n").unwrap().1.split_once("```").unwrap().0;
    let denial = said.lines().last().unwrap();
    let wait: u64 = denial.rsplit_once(':').unwrap().1.trim_end_matches('}').parse().unwrap();
    assert!((30..=60).contains(&wait), "{denial}");
    assert_eq!(said.replace(&format!(":{wait}}}"), ":60}"), shown);
}

#[test]
fn the_file_that_is_shown_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, shown_file()).unwrap();
    let checked = binary().arg("check").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && !said.contains("warning"), "{said}");
}

#[test]
fn fault_58_the_file_that_is_shown_limits_what_the_readmes_curl_sends() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("tidegate.toml");
    fs::write(&file, shown_file().replace("127.0.0.1:4000", "127.0.0.1:0")).unwrap();
    let service = Tidegate::start_in(data, &["--config", file.to_str().unwrap()], &[]);
    let script = asking().replace("127.0.0.1:4000", &service.http.to_string()).replace("| tail -n 2", "");
    let ran = Command::new("bash").args(["-c", &script]).output().unwrap();
    let said = String::from_utf8(ran.stdout).unwrap();
    assert!(said.starts_with("{\"allowed\":true,\"remaining\":19}\n"), "{said}");
    assert!(said.contains("\"allowed\":false") && !said.contains("no_match"), "{said}");
}

/// A shell in a scratch folder that finds the built binary under the name that people install it by.
fn shell(script: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("bin");
    fs::create_dir(&programs).unwrap();
    symlink(env!("CARGO_BIN_EXE_tidegate"), programs.join("tidegate")).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    // Scripts wait for their services; one that never comes ends the whole group.
    let mut bounded = Command::new("timeout");
    bounded.args(["120", "bash", "-ec", script]).env("PATH", path).current_dir(folder.path());
    bounded.output().unwrap()
}

#[test]
fn redis_cli_is_answered_as_is_shown() {
    let service = Tidegate::start(&[], &[]);
    let script = block_after("docs/asking.md", "tests/it/readme.rs: redis -->");
    let ran = shell(&script.replace("6380", &service.resp.port().to_string()));
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "0\n3\n2\n-1\n20\n");
}

#[test]
fn limits_of_a_request_deny_the_sixth_as_is_shown() {
    let service = Tidegate::start(&[], &[]);
    let script = block_after("docs/asking.md", "tests/it/readme.rs: limits -->");
    let script = script.replace("localhost:4000", &service.http.to_string());
    for number in 1..=6 {
        let ran = shell(&script);
        let reply = String::from_utf8_lossy(&ran.stdout);
        let allowed = format!("{{\"allowed\":{},\"policy\":\"LIMITS\",", number <= 5);
        assert!(reply.starts_with(&allowed), "{number}: {reply}");
    }
}

#[test]
fn the_rules_that_are_shown_are_imported() {
    let ran = shell(&block_after("docs/asking.md", "tests/it/readme.rs: envoy -->"));
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && said.ends_with("tidegate.toml: good (policies: 1, overrides: 0)\n"),
        "{said}"
    );
}

#[test]
fn redis_as_is_shown_counts_for_two_processes_at_once() {
    let redis = RedisServer::start(&[]);
    let shown = block_after("docs/stores.md", "tests/it/readme.rs: Redis -->");
    assert_eq!(shown, "TIDEGATE_STORE=redis://127.0.0.1:6379/0 tidegate serve\n");
    counts_for_two_processes(&format!("redis://127.0.0.1:{}/0", redis.port));
}

#[test]
fn postgresql_as_is_shown_counts_for_two_processes_at_once() {
    let postgres = PostgresServer::start(&[]);
    let shown = block_after("docs/stores.md", "tests/it/readme.rs: PostgreSQL -->");
    assert_eq!(shown, "TIDEGATE_STORE=postgres://user:secret@127.0.0.1:5432/limits tidegate serve\n");
    counts_for_two_processes(&format!("postgres://postgres@127.0.0.1:{}/postgres", postgres.port));
}

fn counts_for_two_processes(url: &str) {
    let environment = [("TIDEGATE_STORE", url), ("TIDEGATE_SHARED_DEADLINE", "60s")];
    let nodes = [Tidegate::start(&[], &environment), Tidegate::start(&[], &environment)];
    let remaining: Vec<u64> = [0, 1, 0, 1].map(|node: usize| remaining(&nodes[node])).to_vec();
    assert_eq!(remaining, [99, 98, 97, 96], "{url}");
}

fn remaining(service: &Tidegate) -> u64 {
    let body = serde_json::json!({"client_id": "user123", "resource": "api"});
    let mut reply = agent().post(service.url("/api/v1/ratelimit")).send_json(&body).unwrap();
    reply.body_mut().read_json::<serde_json::Value>().unwrap()["remaining"].as_u64().unwrap()
}
