//! `tidegate doctor` and `tidegate health` beside real servers: what is wrong is found, named and explained, and
//! looking changes nothing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::free_port;
use tidegate_testkit::postgres::PostgresServer;
use tidegate_testkit::redis::RedisServer;

use crate::support::{Tidegate, agent, binary, faketime};

/// What the doctor said, and whether its exit code was 0.
struct Said {
    is_well: bool,
    report: Value,
}

impl Said {
    /// The findings of an area at a level, as one text each: what and repair.
    fn found(&self, area: &str, level: &str) -> Vec<String> {
        let findings = self.report["findings"].as_array().unwrap().iter();
        let such = findings.filter(|it| it["area"] == area && it["level"] == level);
        such.map(|it| format!("{} {}", it["what"].as_str().unwrap(), it["repair"].as_str().unwrap()))
            .collect()
    }

    /// Panics unless exactly one finding of an area at a level says this.
    fn says(&self, area: &str, level: &str, what: &str) {
        let found = self.found(area, level);
        let count = found.iter().filter(|text| text.contains(what)).count();
        assert_eq!(count, 1, "{area} {level} {what:?}: {:#}", self.report);
    }
}

/// Four addresses that are free.
fn ports() -> Vec<(String, String)> {
    let listeners = ["HTTP", "GRPC", "RESP", "INTAKE"].into_iter();
    listeners.map(|it| (format!("TIDEGATE_{it}_LISTEN"), format!("127.0.0.1:{}", free_port()))).collect()
}

/// Runs the doctor in `folder`, with its ports free unless `environment` names others.
fn doctor(folder: &Path, environment: &[(&str, &str)]) -> Said {
    said(binary().args(["doctor", "--json"]).current_dir(folder), environment)
}

fn said(command: &mut Command, environment: &[(&str, &str)]) -> Said {
    // A machine that other tests keep busy is no slow store.
    command.env("TIDEGATE_SHARED_DEADLINE", "60s").envs(ports()).envs(environment.iter().copied());
    let output = command.output().unwrap();
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|error| panic!("{error}: {output:?}"));
    Said { is_well: output.status.code() == Some(0), report }
}

#[test]
fn a_machine_that_is_fit_is_well_and_looking_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let said = doctor(folder.path(), &[]);
    assert!(said.is_well, "{:#}", said.report);
    said.says("ports", "ok", "free: http.listen");
    said.says("data directory", "ok", "the first start makes it");
    said.says("store", "ok", "the server's own memory");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

    // For people, the same.
    let text = binary().arg("doctor").current_dir(folder.path()).envs(ports()).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("ok       configuration   it has no mistakes\n"), "{text}");
    assert!(text.contains("problems: 0, "), "{text}");
}

#[test]
fn a_running_server_is_recognised_and_judged_by_its_own_limits() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let http = ("TIDEGATE_HTTP_LISTEN", address.as_str());
    let mut limited = Command::new("sh");
    let binary_path = binary();
    limited.arg("-c").arg("ulimit -n 900; exec \"$0\" serve").arg(binary_path.get_program());
    limited.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    limited.stderr(std::process::Stdio::piped());
    let node = Tidegate::spawn(folder, limited, &[http]);
    let said = doctor(node.path(), &[http]);
    assert!(said.is_well, "{:#}", said.report);
    said.says("data directory", "ok", &format!("is in use by tidegate (process {})", node.pid()));
    said.says(
        "ports",
        "ok",
        &format!("this installation's running server listens there: http.listen {address}"),
    );
    said.says("descriptors", "warning", &format!("(process {}) may have 900 descriptors", node.pid()));
    said.says("descriptors", "warning", "LimitNOFILE=15512");

    // Another data directory is another installation, and there the port is somebody else's.
    let elsewhere = tempfile::tempdir().unwrap();
    let other = doctor(elsewhere.path(), &[http]);
    assert!(!other.is_well);
    other.says("ports", "problem", &format!("is in use by tidegate (process {})", node.pid()));
    let beside = doctor(elsewhere.path(), &[http, ("TIDEGATE_RUNTIME_SHARE_PORTS", "true")]);
    assert!(beside.is_well, "{:#}", beside.report);
    beside.says("ports", "ok", &format!("another server listens there, and runtime.share_ports lets this one listen beside it: http.listen {address}"));

    let health = |arguments: &[&str]| {
        let asked = binary().arg("health").args(arguments).envs([http]).output().unwrap();
        (asked.status.code(), String::from_utf8(asked.stdout).unwrap())
    };
    let (code, ready) = health(&[]);
    assert!(code == Some(0) && ready.contains("\"ready\":true"), "{ready}");
    assert_eq!(health(&["--live"]), (Some(0), "alive\n".to_owned()));
    assert_eq!(health(&["--server", &format!("http://{address}/")]).0, Some(0));
    drop(node);
    let (code, gone) = health(&[]);
    assert!(code == Some(1) && gone.contains(&address), "{gone}");
}

#[test]
fn what_hinders_a_start_is_named_with_its_repair() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(data.join("control.sqlite"), "no database at all, but long enough to be one\n".repeat(99))
        .unwrap();
    let certificates = Certificates::make();
    let soon = certificates.issue_for("soon", 3);
    let [certificate, key] = [&soon.certificate, &soon.key].map(|it| it.display().to_string());
    let environment = [
        ("TIDEGATE_HTTP_LISTEN", address.as_str()),
        ("TIDEGATE_RESP_LISTEN", "192.0.2.1:6380"),
        ("TIDEGATE_RESP_PASSWORD", "sixteen-letters-and-more"),
        ("TIDEGATE_DATA_DIR", "data"),
        ("TIDEGATE_HTTP_TLS_CERTIFICATE", &certificate),
        ("TIDEGATE_HTTP_TLS_KEY", &key),
        ("TIDEGATE_MEMORY_MAX_BYTES", "1 TiB"),
        ("TIDEGATE_INTAKE_RETAIN_BYTES", "1024 TiB"),
    ];
    let said = doctor(folder.path(), &environment);
    assert!(!said.is_well);
    let own = format!("http.listen {address} is in use by");
    said.says("ports", "problem", &own);
    said.says("ports", "problem", &format!("(process {})", std::process::id()));
    said.says("ports", "problem", "resp.listen 192.0.2.1:6380 is no address of this machine");
    said.says("data directory", "warning", "chmod 0700 data");
    said.says("data directory", "warning", "lower intake.retain_bytes");
    said.says("data directory", "problem", "not a tidegate database");
    said.says("memory", "warning", "memory.max_bytes is 1 TiB");
    said.says("tls", "warning", "soon.pem ends in");

    let wrong = doctor(folder.path(), &[("TIDEGATE_HTTP_LISTEN", "nowhere"), ("TIDEGATE_LOG_LEVEL", "loud")]);
    assert!(!wrong.is_well);
    wrong.says("configuration", "problem", "log.level");
}

/// In a network of its own, whose kernel settings are the test's.
#[test]
fn what_the_kernel_and_the_resolver_do_not_give_is_named_with_its_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let file = "gateway.listener = [{ listen = \"127.0.0.1:0\" }]\n\
                upstream = [{ name = \"app\", servers = [\"http://absent.invalid:80\", \"http://localhost:81\"] }]\n\
                route = [{ name = \"app\", upstream = \"app\" }]\n";
    std::fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let program = binary();
    let script = "ip link set lo up; cd /proc/sys/net && echo 128 > core/somaxconn && \
                  echo 1024 2047 > ipv4/ip_local_port_range && cd \"$1\" && exec \"$0\" doctor --json --config tidegate.toml";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", script]).arg(program.get_program());
    command.arg(folder.path());
    let said = said(&mut command, &[]);
    assert!(!said.is_well, "{:#}", said.report);
    said.says("network", "warning", "sysctl -w net.core.somaxconn=4096");
    said.says("network", "warning", "ip_local_port_range has 1024 ports, and limits.connections is 15000");
    said.says("names", "problem", "absent.invalid of upstream \"app\" has no address");
    said.says("names", "problem", "getent hosts absent.invalid");
    said.says("names", "ok", "have addresses: localhost");
    assert_eq!(
        [said.found("cpu", "ok"), said.found("cpu", "warning")].concat().len(),
        1,
        "{:#}",
        said.report
    );
}

#[test]
fn a_redis_that_is_away_drops_counters_or_refuses_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let redis = RedisServer::start(&["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"]);
    let look = |user: &str, port: u16| {
        let url = format!("redis://{user}127.0.0.1:{port}/0");
        doctor(folder.path(), &[("TIDEGATE_STORE", &url)])
    };
    let drops = look("", redis.port);
    assert!(drops.is_well, "{:#}", drops.report);
    drops.says("store", "warning", "maxmemory-policy noeviction");
    drops.says("store", "ok", "is Redis 7");
    drops.says("store", "ok", "a decision takes");

    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    redis.add_user("enough", "a-password");
    let enough = look("enough:a-password@", redis.port);
    assert!(enough.is_well, "{:#}", enough.report);
    enough.says("store", "warning", "does not tell its version");
    redis.command(&["ACL", "SETUSER", "little", "on", ">a-password", "~tg:*", "+info", "+time"]);
    let little = look("little:a-password@", redis.port);
    assert!(!little.is_well);
    little.says("store", "problem", "a unit could not be counted");
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    look("", redis.port).says("store", "problem", "a unit could not be counted");

    let away = look("", free_port());
    assert!(!away.is_well);
    away.says("store", "problem", "on_store_failure decides");
    let report = away.report.to_string() + &enough.report.to_string() + &little.report.to_string();
    assert!(!report.contains("a-password"), "{report}");
}

#[test]
fn nodes_on_one_redis_that_differ_in_version_or_clock_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let redis = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}/0", redis.port);
    let store = ("TIDEGATE_STORE", url.as_str());
    doctor(folder.path(), &[store]).says("nodes", "ok", "no node is connected");
    let node = crate::nodes::node("# nothing\n", &[store]);
    let body = serde_json::json!({"client_id": "user123", "resource": "api"});
    assert_eq!(agent().post(node.url("/api/v1/ratelimit")).send_json(&body).unwrap().status(), 200);
    let alone = doctor(folder.path(), &[store]);
    assert!(alone.is_well, "{:#}", alone.report);
    alone.says("nodes", "ok", "all nodes are of version");
    let mut older = TcpStream::connect(("127.0.0.1", redis.port)).unwrap();
    older.write_all(b"CLIENT SETNAME tidegate-0.0.1\r\n").unwrap();
    older.read_exact(&mut [0; 5]).unwrap();
    doctor(folder.path(), &[store]).says("nodes", "warning", "nodes of version 0.0.1 are connected");
    redis.add_user("enough", "a-password");
    let named = url.replace("//", "//enough:a-password@");
    doctor(folder.path(), &[("TIDEGATE_STORE", &named)]).says("nodes", "ok", "versions are not compared");

    // A node whose own clock is an hour behind the store's or ahead of it.
    let library = faketime();
    for (shift, said) in [("-1h", "ahead of this machine's"), ("+1h", "behind this machine's")] {
        let shifted =
            [("LD_PRELOAD", library.as_str()), ("FAKETIME", shift), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        let apart = doctor(folder.path(), &[&[store], &shifted[..]].concat());
        apart.says("store", "warning", said);
        // At the least: less by as long as the answer took.
        let told = &apart.found("store", "warning")[0];
        let seconds = told.split_once(" is ").unwrap().1.split_once(' ').unwrap().0.parse::<f64>().unwrap();
        assert!((3_540.0..=3_600.0).contains(&seconds), "{told}");
    }
    assert!(alone.found("store", "warning").is_empty(), "{:#}", alone.report);
    drop(node);
}

#[test]
fn a_database_is_looked_at_and_not_changed_and_versions_that_differ_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let postgres = PostgresServer::start(&[]);
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", postgres.port);
    let look = |url: &str| doctor(folder.path(), &[("TIDEGATE_STORE", url)]);
    let schemas = || postgres.sql("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'tidegate%'");
    let empty = look(&url);
    assert!(empty.is_well, "{:#}", empty.report);
    empty.says("store", "ok", "has no tables yet: the first node makes them");
    assert_eq!(schemas(), "");
    postgres.sql("CREATE ROLE little LOGIN");
    let little = look(&url.replace("postgres@", "little@"));
    assert!(!little.is_well);
    little.says("store", "problem", "GRANT CREATE ON DATABASE");

    let node = crate::nodes::node("# nothing\n", &[("TIDEGATE_STORE", &url)]);
    let connected = look(&url);
    assert!(connected.is_well, "{:#}", connected.report);
    connected.says("store", "ok", "is PostgreSQL 15");
    connected.says("store", "ok", "has the tables, version 3");
    connected.says("store", "ok", "a decision takes");
    connected.says("nodes", "ok", "all nodes are of version");
    let older = crate::nodes::node(
        "# nothing\n",
        &[("TIDEGATE_STORE", &format!("{url}?application_name=tidegate%200.0.1"))],
    );
    look(&url).says("nodes", "warning", "nodes of version 0.0.1 are connected");
    drop((node, older));
}
