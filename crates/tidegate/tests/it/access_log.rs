//! The access log and traces of the built binary: its settings, SIGHUP, a full disk, the admin's token.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::support;
use crate::support::{Tidegate, agent};
use serde_json::Value;
use tidegate_net::clock::monotonic;
use tidegate_testkit::{Server, free_port};

const PATIENCE: Duration = Duration::from_secs(60);
const TOKEN: &str = "a-token-of-the-operator";

fn backend() -> (SocketAddr, Server) {
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let server = Server::start(command.args(["stub", &address]), "listening on");
    (address.parse().unwrap(), server)
}

fn file(server: SocketAddr, more: &str) -> String {
    format!(
        "access_log = {{ {more} }}\ngateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
         policy = [{{ name = \"few\", limit = 5, window_seconds = 3600 }}]\n\
         upstream = [{{ name = \"app\", servers = [\"{server}\"] }}]\n\
         route = [{{ name = \"app\", upstream = \"app\", policies = [\"few\"] }}, \
         {{ name = \"open\", path = \"/open/*\", upstream = \"app\" }}]\n"
    )
}

fn folder_with(file: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    folder
}

fn get(service: &Tidegate, path: &str) -> u16 {
    agent().get(format!("http://{}{path}", service.gateway[0])).call().unwrap().status().as_u16()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = monotonic();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The lines that the metrics page counts under `result`.
fn counted(service: &Tidegate, result: &str) -> u64 {
    let page = agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    let start = format!("tidegate_access_log_lines_total{{result=\"{result}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&start)).unwrap().parse().unwrap()
}

#[test]
fn the_log_is_written_reopened_on_sighup_and_whole_when_the_process_has_ended() {
    let (server, _server) = backend();
    let folder = folder_with(&file(server, "to = \"access.log\", sample = [\"open/2xx=0\"]"));
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
    let log = service.path().join("access.log");
    let statuses: Vec<u16> = (0..6).map(|_| get(&service, "/")).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    assert_eq!(get(&service, "/open/x"), 200);
    until("each is counted", || counted(&service, "written") == 6 && counted(&service, "left_out") == 1);
    let read = lines(&log);
    let verdicts: Vec<&str> = read.iter().map(|line| line["trace"].as_str().unwrap()).collect();
    assert!(verdicts[4].contains("verdict;policy=\"few\";says=allowed;remaining=0"), "{verdicts:?}");
    assert!(verdicts[5].contains("verdict;policy=\"few\";says=denied;remaining=0"), "{verdicts:?}");
    assert_eq!((&read[5]["status"], &read[5]["because"]), (&429.into(), &"quota".into()));

    let renamed = service.path().join("access.log.old");
    fs::rename(&log, &renamed).unwrap();
    service.signal("HUP");
    until("the log is opened again", || log.exists());
    assert_eq!(get(&service, "/again"), 429);
    service.signal("TERM");
    let (folder, ended) = service.wait_keeping_data();
    assert!(ended.status.success(), "{}", ended.output);
    let last = lines(&folder.path().join("access.log"));
    assert_eq!((last.len(), &last[0]["target"]), (1, &"/again".into()));
    assert_eq!(lines(&folder.path().join("access.log.old")).len(), 6);
}

#[test]
fn fault_77_a_full_disk_costs_lines_and_no_request_and_its_end_is_noticed() {
    let (server, _server) = backend();
    let folder = folder_with(&file(server, "to = \"disk/access.log\""));
    fs::create_dir(folder.path().join("disk")).unwrap();
    let script = "mount -t tmpfs -o size=64k none disk && exec \"$0\" serve --config tidegate.toml";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_tidegate")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let service = Tidegate::spawn(folder, command, &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
    // The disk as that process sees it.
    let inside = |name: &str| -> PathBuf {
        let folder = service.path().join("disk").join(name);
        PathBuf::from(format!("/proc/{}/root{}", service.pid(), folder.display()))
    };
    assert_eq!(get(&service, "/open/first"), 200);
    until("it is written", || counted(&service, "written") == 1);
    while fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(inside("filler"))
        .and_then(|mut file| Write::write_all(&mut file, &[0; 512]))
        .is_ok()
    {}
    let mut asked = 1;
    until("lines fail", || {
        assert_eq!(get(&service, "/open/full"), 200, "a request is answered all the same");
        asked += 1;
        counted(&service, "failed") > 0
    });
    fs::remove_file(inside("filler")).unwrap();
    let before = counted(&service, "written");
    until("lines are written again", || {
        assert_eq!(get(&service, "/open/again"), 200);
        asked += 1;
        counted(&service, "written") > before
    });
    until("each is counted", || counted(&service, "written") + counted(&service, "failed") == asked);
    let whole = lines(&inside("access.log"));
    assert_eq!(whole.len() as u64, counted(&service, "written"), "no half line is left");
    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.output.contains("the access log cannot be written"), "{}", ended.output);
    assert!(ended.output.contains("the access log is written again"), "{}", ended.output);
}

/// Whoever logged panicked where the line could not be written: nothing was answered any more.
#[test]
fn fault_77_standard_error_on_a_full_disk_costs_lines_and_no_request() {
    let (server, _server) = backend();
    for format in ["text", "json"] {
        let folder = folder_with(&format!("log.format = \"{format}\"\n{}", file(server, "to = \"off\"")));
        let script = "exec \"$0\" serve --config tidegate.toml 2>/dev/full";
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_tidegate")]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let service = Tidegate::spawn(folder, command, &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
        for limit in 1..4 {
            // Each change is a line.
            let request = agent().put(service.url("/v1/clients/c/limits"));
            let reply = request.send_json(serde_json::json!({ "few": { "limit": limit } })).unwrap();
            assert_eq!((reply.status().as_u16(), get(&service, "/open/x")), (200, 200));
        }
        service.signal("TERM");
        assert!(service.wait().status.success(), "it drains all the same");
    }
}

#[test]
fn a_trace_needs_the_operators_token() {
    let (server, _server) = backend();
    let folder = folder_with(&file(server, "to = \"stdout\", format = \"combined\""));
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"), ("TIDEGATE_ADMIN_TOKEN", TOKEN)];
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
    let told = |token: Option<&str>| {
        let mut request =
            agent().get(format!("http://{}/", service.gateway[0])).header("tidegate-trace", "1");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let reply = request.call().unwrap();
        let lines = reply.headers().get_all("tidegate-trace").iter();
        lines.map(|line| line.to_str().unwrap().to_owned()).collect::<Vec<String>>()
    };
    assert!(told(None).is_empty() && told(Some("another-token-of-nobody")).is_empty());
    let trace = told(Some(TOKEN));
    let attempt = format!("attempt;upstream=\"app\";server=\"{server}\";end=200;connection=");
    assert!(trace.iter().any(|line| line.starts_with(&attempt)), "{trace:?}");
    assert!(
        trace.iter().any(|line| line.starts_with("verdict;policy=\"few\";says=allowed;remaining=2")),
        "{trace:?}"
    );
    service.signal("TERM");
    let ended = service.wait();
    let written = ended.output.lines().filter(|line| line.contains("\"GET / HTTP/1.1\" 200 ")).count();
    assert_eq!(written, 3, "{}", ended.output);
    assert!(!ended.output.contains(TOKEN), "{}", ended.output);
}

#[test]
fn a_log_that_cannot_be_opened_is_named_at_the_start() {
    let folder = folder_with("access_log.to = \"no/such/folder/log\"\n");
    let mut command = support::binary();
    command.args(["serve", "--config", "tidegate.toml"]).current_dir(folder.path());
    for name in ["HTTP", "GRPC", "RESP", "INTAKE", "EDGE_API"] {
        command.env(format!("TIDEGATE_{name}_LISTEN"), "127.0.0.1:0");
    }
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the access log cannot be written") && said.contains("access_log.to"), "{said}");
}

/// A server that answers nothing, and says of each connection when it has a request and when it is closed.
fn silent_server() -> (SocketAddr, mpsc::Receiver<&'static str>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::sync_channel(1_000);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let tell = tell.clone();
            std::thread::spawn(move || {
                let mut space = [0; 4096];
                while stream.read(&mut space).is_ok_and(|length| length > 0) {
                    tell.send("asked").unwrap_or_default();
                }
                tell.send("closed").unwrap_or_default();
            });
        }
    });
    (address, told)
}

#[test]
fn a_client_that_leaves_ends_its_servers_work_gives_its_permit_back_and_is_499() {
    let (server, told) = silent_server();
    let folder = folder_with(&format!(
        "access_log = {{ to = \"access.log\" }}\ngateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
         policy = [{{ name = \"one\", algorithm = \"concurrency\", limit = 1 }}]\n\
         upstream = [{{ name = \"app\", servers = [\"{server}\"] }}]\n\
         route = [{{ name = \"app\", upstream = \"app\", policies = [\"one\"] }}]\n"
    ));
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
    let log = service.path().join("access.log");
    let requests =
        ["GET / HTTP/1.1\r\nhost: a\r\n\r\n", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"];
    for (number, request) in requests.into_iter().enumerate() {
        let mut client = TcpStream::connect(service.gateway[0]).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE), Ok("asked"), "the permit of the one before is back");
        drop(client);
        while told.recv_timeout(PATIENCE).expect("the server's work ends") != "closed" {}
        until("it is logged", || lines(&log).len() == number + 1);
        let line = &lines(&log)[number];
        assert_eq!((&line["status"], &line["end"]), (&499.into(), &"client_left".into()), "{line}");
    }
}

#[test]
fn a_client_that_half_closes_is_answered_as_long_as_its_listener_says() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = folder_with(&format!(
        "gateway.listener = [{{ listen = \"127.0.0.1:0\", half_closed_seconds = 3600 }}]\n\
         upstream = [{{ name = \"app\", servers = [\"{}\"] }}]\nroute = [{{ name = \"app\", upstream = \"app\" }}]\n",
        listener.local_addr().unwrap()
    ));
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
    let mut client = TcpStream::connect(service.gateway[0]).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    // Twice as long as by default.
    let begun = monotonic();
    until("a second is over", || begun.elapsed() > Duration::from_secs(1));
    server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("hi"), "{reply}");
}
