//! Clients that others wrote, speaking RESP to the built binary: redis-cli, redis-benchmark, redis-py.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{Tidegate, agent};
use tidegate_net::clock::monotonic;
use tidegate_testkit::redis::RedisServer;

const PATIENCE: Duration = Duration::from_secs(60);

/// What a client says, with `TIDEGATE_PORT` set.
fn ask(service: &Tidegate, program: &str, arguments: &[&str]) -> String {
    let port = service.resp.port().to_string();
    let place = ["-p", port.as_str()];
    let ran = Command::new(program)
        .args(if program.starts_with("redis-") { &place[..] } else { &[] })
        .args(arguments)
        .env("TIDEGATE_PORT", &port)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn redis_cli_is_limited() {
    let service = Tidegate::start(&[], &[]);
    let throttle = ["CL.THROTTLE", "user123", "15", "30", "60"];
    assert_eq!(ask(&service, "redis-cli", &throttle), "0\n16\n15\n-1\n2\n");
    assert_eq!(ask(&service, "redis-cli", &["-3", "PING"]), "PONG\n");
    assert_eq!(
        ask(&service, "redis-cli", &["-r", "3", "THROTTLE", "k", "2", "1", "3600"]).lines().count(),
        15
    );
    assert!(ask(&service, "redis-cli", &["INFO"]).contains("role:master"));
    assert!(ask(&service, "redis-cli", &["COMMAND"]).contains("cl.throttle"));
}

#[test]
fn a_password_is_asked_for() {
    let password = "sixteen-letters-and-more";
    let service = Tidegate::start(&[], &[("TIDEGATE_RESP_PASSWORD", password)]);
    assert_eq!(ask(&service, "redis-cli", &["PING"]), "NOAUTH Authentication required.\n\n");
    assert_eq!(ask(&service, "redis-cli", &["--no-auth-warning", "-a", password, "PING"]), "PONG\n");
    service.signal("TERM");
    assert!(service.wait().output.contains("drained"));
}

#[test]
fn redis_benchmark_pipelines_and_every_reply_is_counted() {
    let service = Tidegate::start(&[], &[]);
    let load = [
        "-n",
        "20000",
        "-c",
        "20",
        "-P",
        "16",
        "-r",
        "100",
        "-q",
        "CL.THROTTLE",
        "__rand_int__",
        "9",
        "1",
        "60",
    ];
    assert!(ask(&service, "redis-benchmark", &load).contains("requests per second"));
    let metrics =
        || agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    // A pipeline is counted after its replies were written, so the last ones may be missing for a moment.
    let all = r#"tidegate_resp_commands_total{server="resp",command="cl.throttle",outcome="answered"} 20000"#;
    let timed = r#"tidegate_resp_command_duration_seconds_count{server="resp",command="cl.throttle"} 20000"#;
    let idle = r#"tidegate_resp_commands_in_flight{server="resp"} 0"#;
    let start = monotonic();
    let page = loop {
        let page = metrics();
        let missing = [all, timed, idle].into_iter().find(|line| !page.contains(&format!("{line}\n")));
        let Some(line) = missing else { break page };
        assert!(start.elapsed() < PATIENCE, "{line} is not in\n{page}");
    };
    assert!(page.contains(r#"tidegate_connections_accepted_total{server="resp"} 2"#), "{page}");
}

/// The replies to throttle commands that are sent at once: (limited, remaining) of each.
fn pipeline(service: &Tidegate, keys: &[String]) -> Vec<(u8, i64)> {
    let mut stream = TcpStream::connect(service.resp).unwrap();
    let commands = keys.iter().map(|key| format!("CL.THROTTLE {key} 4 5 3600\r\n"));
    stream.write_all(commands.collect::<String>().as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    let reply = |reply: &str| {
        let numbers: Vec<i64> = reply.lines().filter_map(|it| it.strip_prefix(':')?.parse().ok()).collect();
        (u8::try_from(numbers[0]).unwrap(), numbers[2])
    };
    said.split("*5").skip(1).map(reply).collect()
}

#[test]
fn a_pipeline_is_decided_by_redis_in_batches_and_in_order() {
    let redis = RedisServer::start(&[]);
    let store = format!("redis://127.0.0.1:{}", redis.port);
    let environment = [("TIDEGATE_STORE", store.as_str()), ("TIDEGATE_SHARED_DEADLINE", "60s")];
    let service = Tidegate::start(&[], &environment);
    pipeline(&service, &["warm".to_owned()]);
    let scripts = || {
        let stats = redis.command(&["INFO", "commandstats"]);
        let calls = stats.split_once("cmdstat_evalsha:calls=").unwrap().1;
        calls.split_once(',').unwrap().0.parse::<u32>().unwrap()
    };
    let before = scripts();
    let keys: Vec<String> = (0..60).map(|key| format!("key-{key}")).collect();
    assert_eq!(pipeline(&service, &keys), [(0, 4); 60]);
    let ran = scripts() - before;
    assert!((1..=12).contains(&ran), "{ran} scripts for 60 commands");

    // The same key is decided in the order of its commands, among others of which each has its own.
    let mixed: Vec<String> =
        (0..40).map(|at| if at % 4 == 0 { "hot".to_owned() } else { format!("cold-{at}") }).collect();
    let told = pipeline(&service, &mixed);
    let hot: Vec<(u8, i64)> = told.iter().step_by(4).copied().collect();
    let expected = [(0, 4), (0, 3), (0, 2), (0, 1), (0, 0), (1, 0), (1, 0), (1, 0), (1, 0), (1, 0)];
    assert_eq!(hot, expected);
    assert!(told.iter().enumerate().all(|(at, told)| at % 4 == 0 || *told == (0, 4)), "{told:?}");
}

#[test]
fn a_default_pipeline_of_the_python_client_is_run_between_multi_and_exec() {
    let service = Tidegate::start(&[], &[]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("../../.venv/bin/python");
    assert!(python.exists(), "{} is missing: run `make setup`", python.display());
    let script = root.join("tests/it/examples/transaction.py");
    let said = ask(&service, python.to_str().unwrap(), &[script.to_str().unwrap()]);
    let of_each = "[[0, 3, 2], [0, 3, 1], [0, 3, 0], [1, 3, 0]] True ResponseError\n500\n\
                   Command # 1 (GET key) of pipeline caused error: unknown command 'GET'\n";
    assert_eq!(said, of_each.repeat(2));
}

/// What is answered to these commands, sent at once.
fn answers(service: &Tidegate, commands: &str) -> String {
    let mut stream = TcpStream::connect(service.resp).unwrap();
    stream.write_all(commands.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

#[test]
fn a_transaction_answers_as_that_of_redis_does() {
    let service = Tidegate::start(&[], &[]);
    let ok = "+OK\r\n";
    let queued = "+QUEUED\r\n";
    let abort = "-EXECABORT Transaction discarded because of previous errors.\r\n";
    for (commands, expected) in [
        ("MULTI\r\nPING\r\nPING x\r\nEXEC\r\n", format!("{ok}{queued}{queued}*2\r\n+PONG\r\n$1\r\nx\r\n")),
        ("MULTI\r\nEXEC\r\nPING\r\n", format!("{ok}*0\r\n+PONG\r\n")),
        ("EXEC\r\nDISCARD\r\n", "-ERR EXEC without MULTI\r\n-ERR DISCARD without MULTI\r\n".to_owned()),
        ("MULTI\r\nDISCARD\r\nEXEC\r\n", format!("{ok}{ok}-ERR EXEC without MULTI\r\n")),
        (
            "MULTI\r\nMULTI\r\nPING\r\nEXEC\r\n",
            format!("{ok}-ERR MULTI calls can not be nested\r\n{queued}*1\r\n+PONG\r\n"),
        ),
        (
            "MULTI\r\nGET k\r\nPING\r\nEXEC\r\nPING\r\n",
            format!("{ok}-ERR unknown command 'GET'\r\n{queued}{abort}+PONG\r\n"),
        ),
        (
            "MULTI\r\nSELECT\r\nEXEC\r\n",
            format!("{ok}-ERR wrong number of arguments for 'select' command\r\n{abort}"),
        ),
        (
            "MULTI\r\nHELLO 3\r\nEXEC\r\n",
            format!("{ok}-ERR Command not allowed inside a transaction\r\n{abort}"),
        ),
        // As with a module of Redis, what is wrong about the arguments is said when it is run.
        (
            "MULTI\r\nCL.THROTTLE k x 1 1\r\nPING\r\nEXEC\r\n",
            format!("{ok}{queued}{queued}*2\r\n-Cell error: Couldn't parse as integer: x\r\n+PONG\r\n"),
        ),
        ("MULTI\r\nQUIT\r\nPING\r\n", format!("{ok}{ok}")),
    ] {
        assert_eq!(answers(&service, commands), expected, "{commands:?}");
    }
    // A transaction is bounded: the command beyond spoils it, and the connection goes on.
    let many = format!("MULTI\r\n{}EXEC\r\nPING\r\n", "THROTTLE k 1 1 60\r\n".repeat(1_001));
    let refused = "-ERR too many commands between MULTI and EXEC\r\n";
    let expected = format!("{ok}{}{refused}{abort}+PONG\r\n", queued.repeat(1_000));
    assert_eq!(answers(&service, &many), expected);
    let untouched = answers(&service, "THROTTLE k 1 1 60 0\r\n");
    assert_eq!(untouched, "*5\r\n:1\r\n:1\r\n:1\r\n:0\r\n:0\r\n", "nothing of it was run");
}

#[test]
fn the_python_client_works_in_both_versions_of_the_protocol() {
    let service = Tidegate::start(&[], &[]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = root.join("../../.venv/bin/python");
    assert!(python.exists(), "{} is missing: run `make setup`", python.display());
    let script = root.join("tests/it/examples/resp.py");
    let said = ask(&service, python.to_str().unwrap(), &[script.to_str().unwrap()]);
    assert_eq!(
        said,
        "[0, 3, 2, -1, 60] [0, 3, 1, -1, 120] [0, 3, 0, -1, 180] [1, 3, 0, 60, 180]\n".repeat(2)
    );
}

#[test]
fn fault_61_idle_redis_clients_leave_the_other_listeners_and_the_operator_their_connections() {
    let service =
        Tidegate::start(&[], &[("TIDEGATE_LIMITS_CONNECTIONS", "20"), ("TIDEGATE_RUNTIME_WORKERS", "2")]);
    // They have said something, so that they may be idle for minutes.
    let idle: Vec<_> = (0..25)
        .map(|_| {
            let mut client = TcpStream::connect(service.resp).unwrap();
            client.write_all(b"PING\r\n").unwrap();
            client
        })
        .collect();
    let ready = || agent().get(service.url("/readyz")).call().unwrap();
    assert_eq!(ready().status(), 200);
    let body = r#"{"client_id":"a","resource":"api"}"#;
    let asked = agent().post(service.url("/api/v1/ratelimit")).content_type("application/json").send(body);
    assert_eq!(asked.unwrap().status(), 200);
    TcpStream::connect(service.grpc).unwrap();
    let metrics = agent().get(service.url("/metrics")).call().unwrap().into_body().read_to_string().unwrap();
    let open =
        metrics.lines().find(|line| line.starts_with("tidegate_connections_open{server=\"resp\"}")).unwrap();
    let open: u32 = open.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(open <= 16, "four of the twenty are the others': {open}");
    drop(idle);
}
