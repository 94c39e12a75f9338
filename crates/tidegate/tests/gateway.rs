//! `tidegate gateway URL`: the built binary in front of the stub, without a file.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use support::{Tidegate, keep_asking};
use tidegate_net::clock::monotonic;
use tidegate_testkit::free_port;

/// A process that is ended with the test.
struct Running {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let mut child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The address in the first line that has `word`.
    fn address(&mut self, word: &str) -> SocketAddr {
        loop {
            let mut line = String::new();
            assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it ended before it said {word:?}");
            if let Some(rest) = line.split_once(word).map(|(_, rest)| rest) {
                let end = rest.find([' ', '\n', '/', ',']).unwrap_or(rest.len());
                return rest[..end].parse().unwrap();
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn a_gateway_without_a_file_proxies_and_drains() {
    let mut stub = Running::start(&["stub", "127.0.0.1:0"]);
    let backend = stub.address("listening on ");
    let url = format!("http://{backend}");
    let mut gateway =
        Running::start(&["gateway", &url, "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]);
    let proxy = gateway.address("gateway   http://");
    let pages = gateway.address("operator  http://");
    for _ in 0..20 {
        let reply = get(proxy, "/");
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    }
    assert!(get(pages, "/readyz").contains("\"ready\":true"));
    let metrics = get(pages, "/metrics");
    let attempts = format!(
        "tidegate_upstream_attempts_total{{upstream=\"upstream\",server=\"{backend}\",result=\"success\"}} 20"
    );
    assert!(metrics.contains(&attempts), "{metrics}");
    assert!(get(pages, "/").starts_with("HTTP/1.1 404 "));
    let pid = gateway.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(gateway.child.wait().unwrap().success());
}

#[test]
fn a_taken_port_is_named_with_the_flag_that_changes_it() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (flag, other) in [("--listen", "--http-listen"), ("--http-listen", "--listen")] {
        let arguments = ["gateway", "http://127.0.0.1:1", flag, &address, other, "127.0.0.1:0"];
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&address) && said.contains(&format!("another address with {flag})")), "{said}");
    }
}

#[test]
fn a_server_that_is_no_url_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["gateway", "ftp://a"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said, "a server is \"ftp://a\" (accepted: http://host:port)\n");
}

#[test]
fn fault_22_sigterm_under_load_loses_no_proxied_request() {
    let mut stub = Running::start(&["stub", "127.0.0.1:0"]);
    let backend = stub.address("listening on ");
    let url = format!("http://{backend}");
    let mut gateway =
        Running::start(&["gateway", &url, "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]);
    let proxy = gateway.address("gateway   http://");
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let ended = std::thread::scope(|scope| {
        let request = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let clients: Vec<_> =
            (0..8).map(|_| scope.spawn(|| keep_asking(proxy, request, &stop, &answered))).collect();
        let begun = monotonic();
        while answered.load(Ordering::Relaxed) < 1_000 {
            assert!(begun.elapsed() < Duration::from_secs(60), "a thousand are answered");
            std::thread::yield_now();
        }
        let pid = gateway.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let ended = gateway.child.wait().unwrap();
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
        ended
    });
    assert!(ended.success(), "{ended}");
}

/// In a mount namespace where the system's names come from a file of the test alone.
#[test]
fn fault_41_a_name_that_moves_is_followed_and_one_that_is_lost_keeps_its_last_addresses() {
    let port = free_port();
    let [_first, _second] = [("127.0.0.1", "11"), ("127.0.0.2", "22")].map(|(host, bytes)| {
        let mut stub = Running::start(&["stub", &format!("{host}:{port}"), "--body-bytes", bytes]);
        stub.address("listening on ");
        stub
    });
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    // In place, since the file is mounted.
    let name_is_at = |address: &str| fs::write(&hosts, format!("{address} moving.test\n")).unwrap();
    name_is_at("127.0.0.1");
    fs::write(folder.path().join("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        .unwrap();
    let file = format!(
        "gateway = {{ dns_refresh = \"100ms\", listener = [{{ listen = \"127.0.0.1:0\" }}] }}\n\
         upstream = [{{ name = \"app\", servers = [\"http://moving.test:{port}\"] }}]\n\
         route = [{{ name = \"app\", upstream = \"app\" }}]\n"
    );
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let script = "mount --bind hosts /etc/hosts && mount --bind resolv.conf /etc/resolv.conf && \
                  exec \"$0\" serve --config tidegate.toml";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_tidegate")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let service = Tidegate::spawn(folder, command, &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
    let answered = || {
        let reply = get(service.gateway[0], "/");
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{reply}");
        body.len()
    };
    assert_eq!(answered(), 11);
    // The connection to the first address is busy all the time.
    name_is_at("127.0.0.2");
    let moved = monotonic();
    while answered() != 22 {
        assert!(moved.elapsed() < Duration::from_secs(60), "the name is not looked up again");
    }
    fs::write(&hosts, "").unwrap();
    let lost = monotonic();
    // Ten times as long as an answer is used.
    while lost.elapsed() < Duration::from_secs(1) {
        assert_eq!(answered(), 22);
    }
}

/// In a network of its own that has ten ports for outgoing connections.
#[test]
fn fault_37_without_a_free_port_a_request_is_503_and_no_server_is_blamed() {
    const SCRIPT: &str = r#"
        ip link set lo up
        echo '20000 20009' > /proc/sys/net/ipv4/ip_local_port_range
        "$0" stub 127.0.0.1:3000 --delay-ms 2000 > stub.log & stub=$!
        "$0" gateway http://127.0.0.1:3000 --listen 127.0.0.1:8080 --http-listen 127.0.0.1:4000 > gateway.log & gateway=$!
        ask() { curl --silent --max-time 60 --local-port 30000-39999 "$@"; }
        until ask --output reply http://127.0.0.1:8080/; do :; done
        asked=
        for number in $(seq 20); do
            ask --output reply.$number --dump-header head.$number http://127.0.0.1:8080/ & asked="$asked $!"
        done
        wait $asked
        ask --output reply --dump-header head.last http://127.0.0.1:8080/
        ask http://127.0.0.1:4000/metrics > metrics
        kill $gateway $stub
        wait
    "#;
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", SCRIPT, env!("CARGO_BIN_EXE_tidegate")]);
    let output = command.current_dir(folder.path()).output().unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    let heads: Vec<String> = (1..=20).map(|number| read(&format!("head.{number}")).to_lowercase()).collect();
    let with =
        |status: &str| heads.iter().filter(|head| head.starts_with(&format!("http/1.1 {status} "))).count();
    assert_eq!(with("200") + with("503"), 20, "{heads:?} {output:?}");
    assert!(with("200") > 0 && with("503") > 0, "{heads:?}");
    let refused = heads.iter().filter(|head| head.starts_with("http/1.1 503 "));
    assert!(refused.clone().all(|head| head.contains("retry-after: 1")), "{heads:?}");
    assert!(read("head.last").starts_with("HTTP/1.1 200 "), "a kept connection needs no port");
    let failures = "server=\"127.0.0.1:3000\",result=\"failure\"} 0\n";
    assert!(read("metrics").contains(failures), "{}", read("metrics"));
}
