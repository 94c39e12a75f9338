//! `tidegate gateway URL`: the built binary in front of the stub, without a file.
//!
//! Over 400 lines because all of it is about one command.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{Tidegate, keep_asking};
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
    let mut stubs = [(); 2].map(|()| Running::start(&["stub", "127.0.0.1:0"]));
    let backends = stubs.each_mut().map(|stub| stub.address("listening on "));
    let [one, other] = backends.map(|backend| format!("http://{backend}"));
    let mut gateway =
        Running::start(&["gateway", &one, &other, "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]);
    let proxy = gateway.address("gateway   http://");
    let pages = gateway.address("operator  http://");
    for _ in 0..20 {
        let reply = get(proxy, "/");
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    }
    assert!(get(pages, "/readyz").contains("\"ready\":true"));
    let metrics = get(pages, "/metrics");
    let number = |name: &str| -> u64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not in {metrics}")).parse().unwrap()
    };
    let answered = backends.map(|backend| {
        let of = format!("upstream=\"upstream\",server=\"{backend}\",result");
        assert_eq!(number(&format!("tidegate_upstream_attempts_total{{{of}=\"repeat\"}}")), 0);
        number(&format!("tidegate_upstream_attempts_total{{{of}=\"success\"}}"))
    });
    assert!(answered.iter().sum::<u64>() == 20 && answered.iter().all(|count| *count > 0), "{answered:?}");
    for (state, is_it) in [("closed", 1), ("open", 0), ("half_open", 0)] {
        assert_eq!(
            number(&format!("tidegate_upstream_breaker{{upstream=\"upstream\",state=\"{state}\"}}")),
            is_it
        );
    }
    let route = "route=\"everything\"";
    assert_eq!(number(&format!("tidegate_route_requests_total{{{route},status=\"2xx\"}}")), 20);
    assert_eq!(number(&format!("tidegate_route_request_duration_seconds_count{{{route}}}")), 20);
    let replies = backends.map(|backend| {
        let of = format!("upstream=\"upstream\",server=\"{backend}\"");
        number(&format!("tidegate_upstream_replies_total{{{of},status=\"2xx\"}}"))
    });
    assert_eq!(replies, answered);
    assert!(get(pages, "/").starts_with("HTTP/1.1 404 "));
    let pid = gateway.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(gateway.child.wait().unwrap().success());
}

/// Without its checks the breaker would let nothing through for about as long as the server was away.
#[test]
fn a_server_that_comes_back_is_asked_again_within_seconds() {
    let place = format!("127.0.0.1:{}", free_port());
    let start = || {
        let mut stub = Running::start(&["stub", &place]);
        stub.address("listening on ");
        stub
    };
    let stub = start();
    let url = format!("http://{place}");
    let mut gateway =
        Running::start(&["gateway", &url, "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]);
    let proxy = gateway.address("gateway   http://");
    assert!(get(proxy, "/").starts_with("HTTP/1.1 200 "));
    drop(stub);
    let told = get(proxy, "/");
    assert!(told.starts_with("HTTP/1.1 502 ") && told.contains(&format!("{place}: ")), "{told}");
    // Each is 502 until the breaker is open.
    while !get(proxy, "/").starts_with("HTTP/1.1 503 ") {}
    let (_stub, back) = (start(), monotonic());
    while !get(proxy, "/").starts_with("HTTP/1.1 200 ") {
        assert!(back.elapsed() < Duration::from_secs(40), "clients are still answered 503");
        std::thread::yield_now();
    }
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

/// Two that share a port each get some of the connections, which nobody expects who starts one again.
#[test]
fn a_second_stub_on_a_port_says_that_it_is_taken() {
    let mut first = Running::start(&["stub", "127.0.0.1:0"]);
    let address = first.address("listening on ").to_string();
    let any = format!("0.0.0.0:{}", address.rsplit(':').next().unwrap());
    for arguments in [&["stub", &address][..], &["stub", &address, "--processes", "2"], &["stub", &any]] {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(arguments[1]) && said.contains("another process does already"), "{said}");
    }
    assert!(get(address.parse().unwrap(), "/").starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_server_that_is_no_url_is_named() {
    // A word that is no URL was taken for a name, at port 80: a gateway to nowhere, which said that it had started.
    for bad in ["ftp://a", "foo", "localhost"] {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["gateway", bad]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said, format!("a server is {bad:?} (accepted: http://host:port)\n"));
    }
}

/// `TIDEGATE_DRAIN_REQUESTS` makes it longer (`regression/drain-under-load` has a million).
#[test]
fn fault_22_sigterm_under_load_loses_no_proxied_request() {
    let wanted =
        std::env::var("TIDEGATE_DRAIN_REQUESTS").map_or(1_000, |count| count.parse::<u64>().unwrap());
    // Even a slow and busy machine answers a thousand a second.
    let patience = Duration::from_secs(60 + wanted / 1_000);
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
        while answered.load(Ordering::Relaxed) < wanted {
            assert!(begun.elapsed() < patience, "{wanted} are answered");
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
        # A gateway that is asked before its server listens counts a failure.
        until ask --output reply http://127.0.0.1:3000/; do :; done
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

/// The same network, with two addresses that connections to servers may begin at, and a third that is not this machine's.
#[test]
fn fault_37_with_more_source_addresses_there_are_more_ports() {
    const SCRIPT: &str = r#"
        ip link set lo up
        echo '20000 20009' > /proc/sys/net/ipv4/ip_local_port_range
        "$0" stub 127.0.0.1:3000 --delay-ms 2000 > stub.log & stub=$!
        "$0" serve --config tidegate.toml --http-listen 127.0.0.1:4000 > gateway.log 2>&1 & gateway=$!
        ask() { curl --silent --max-time 60 --local-port 30000-39999 "$@"; }
        # A gateway that is asked before its server listens counts a failure.
        until ask --output reply http://127.0.0.1:3000/; do :; done
        until ask --output reply http://127.0.0.1:8080/; do :; done
        asked=
        for number in $(seq 16); do
            ask --output reply.$number --dump-header head.$number http://127.0.0.1:8080/ & asked="$asked $!"
        done
        wait $asked
        cat /proc/net/tcp > sockets
        kill $gateway $stub
        wait
    "#;
    const FILE: &str = r#"
        gateway.listener = [{ listen = "127.0.0.1:8080" }]
        upstream = [{ name = "app", servers = ["http://127.0.0.1:3000"], sources = ["127.0.0.2", "192.0.2.1", "127.0.0.3"] }]
        route = [{ name = "all", upstream = "app" }]
    "#;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), FILE).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", SCRIPT, env!("CARGO_BIN_EXE_tidegate")]);
    let output = command.current_dir(folder.path()).output().unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    for number in 1..=16 {
        let head = read(&format!("head.{number}"));
        assert!(head.starts_with("HTTP/1.1 200 "), "{number}: {head} {output:?} {}", read("gateway.log"));
    }
    // As the kernel writes addresses and ports: to 127.0.0.1:3000.
    let sockets = read("sockets");
    let from = |source: &str| {
        sockets
            .lines()
            .filter(|line| line.contains(&format!("{source}:4E")) && line.contains("0100007F:0BB8"))
            .count()
    };
    let (first, second) = (from("0200007F"), from("0300007F"));
    assert!(first > 0 && second > 0 && first + second > 10, "{sockets}");
}

/// A server of names, which answers every name with the address and the seconds in its file. The system's resolver is told to say that it
/// understands EDNS, which tells its questions from Tidegate's own. Of these, it leaves so many without an answer as `UNANSWERED` says:
/// every second one by saying that it has failed, the others by silence.
const NAMES: &str = r#"
import os, socket, struct
asked = os.open("asked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
unanswered = int(os.environ["UNANSWERED"])
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while True:
    question, peer = server.recvfrom(1500)
    end = question.index(b"\0", 12) + 5
    os.write(asked, b".")
    if unanswered > 0 and question[10:12] == b"\0\0":
        unanswered -= 1
        if unanswered % 2:
            server.sendto(question[:2] + b"\x81\x82" + struct.pack(">HHHH", 1, 0, 0, 0) + question[12:end], peer)
        continue
    address, seconds = open("name").read().split()
    answer = b"\xc0\x0c\0\1\0\1" + struct.pack(">IH", int(seconds), 4) + socket.inet_aton(address)
    answer = answer if question[end - 4:end - 2] == b"\0\1" else b""
    counts = struct.pack(">HHHH", 1, 1 if answer else 0, 0, 0)
    server.sendto(question[:2] + b"\x81\x80" + counts + question[12:end] + answer, peer)
"#;

/// In a network of its own, where a server of names says where `moving.test` is, and for how long.
#[test]
fn fault_41_an_answer_is_used_for_as_long_as_dns_says() {
    const SCRIPT: &str = r#"
        set -e
        ip link set lo up
        printf 'nameserver 127.0.0.1\noptions edns0\n' > resolv.conf
        mount --bind resolv.conf /etc/resolv.conf
        at() { echo "$1 $SECONDS_OF_ANSWERS" > next && mv next name; }
        at 127.0.0.1
        "$PYTHON" names.py & started=$!
        for address in 127.0.0.1 127.0.0.2; do
            "$0" stub $address:3000 --body $address > stub.log & started="$started $!"
        done
        "$0" serve --config tidegate.toml --http-listen 127.0.0.1:4000 > gateway.log 2>&1 & started="$started $!"
        ask() { curl --silent --max-time 60 http://127.0.0.1:8080/ || true; }
        until [ "$(ask)" = 127.0.0.1 ]; do :; done
        # Nobody has asked for ten times as long as without the TTL.
        settled() {
            before=none
            until [ "$(wc -c < asked)" = "$before" ]; do
                before=$(wc -c < asked)
                sleep 1
            done
        }
        # The address may be known, and used, before the TTL is.
        [ "$SECONDS_OF_ANSWERS" = 1 ] || settled
        at 127.0.0.2
        if [ "$SECONDS_OF_ANSWERS" = 1 ]; then
            until [ "$(ask)" = 127.0.0.2 ]; do :; done
            echo followed
        else
            settled
            ask
        fi
        kill $started
        wait
    "#;
    // Longer than anybody waits here, and less than the TTL. With three questions that are lost, the fourth one is asked.
    for (seconds, refresh, unanswered, expected) in
        [("1", "1h", "0", "followed"), ("1", "1h", "3", "followed"), ("3600", "100ms", "0", "127.0.0.1")]
    {
        let folder = tempfile::tempdir().unwrap();
        let file = format!(
            "gateway = {{ dns_refresh = \"{refresh}\", listener = [{{ listen = \"127.0.0.1:8080\" }}] }}\n\
             upstream = [{{ name = \"app\", servers = [\"http://moving.test:3000\"] }}]\n\
             route = [{{ name = \"app\", upstream = \"app\" }}]\n"
        );
        fs::write(folder.path().join("tidegate.toml"), file).unwrap();
        fs::write(folder.path().join("names.py"), NAMES).unwrap();
        let python = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
        let mut command = Command::new("timeout");
        command.args(["120", "unshare", "--map-root-user", "--net", "--mount", "sh", "-c", SCRIPT]);
        command.arg(env!("CARGO_BIN_EXE_tidegate")).env("PYTHON", python).env("SECONDS_OF_ANSWERS", seconds);
        command.env("UNANSWERED", unanswered);
        let output = command.current_dir(folder.path()).output().unwrap();
        let log = fs::read_to_string(folder.path().join("gateway.log")).unwrap_or_default();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{output:?} {log}");
    }
}

/// In a network of its own, where the server of names takes questions and is silent, and `here.test` stands in a file.
#[test]
fn a_name_that_is_looked_up_again_and_again_is_one_question_at_a_time_to_a_silent_server_of_names() {
    const NAMES: &str = r#"
import os, socket
asked = os.open("asked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while server.recvfrom(1500):
    os.write(asked, b".")
"#;
    const SCRIPT: &str = r#"
        set -e
        ip link set lo up
        printf '127.0.0.1 here.test\n' > hosts
        echo 'nameserver 127.0.0.1' > resolv.conf
        mount --bind hosts /etc/hosts
        mount --bind resolv.conf /etc/resolv.conf
        "$PYTHON" names.py & started=$!
        "$0" stub 127.0.0.1:3000 --body here > stub.log & started="$started $!"
        "$0" serve --config tidegate.toml --http-listen 127.0.0.1:4000 > gateway.log 2>&1 & started="$started $!"
        until [ "$(curl --silent --max-time 60 http://127.0.0.1:8080/ || true)" = here ]; do :; done
        # Sockets that are connected to the server of names, as the kernel lists them.
        until [ "$(cat asked 2> /dev/null | wc -c)" -gt 30 ]; do
            grep -c ' 0100007F:0035 01 ' /proc/net/udp >> sockets || true
        done
        sort -n sockets | tail -n 1
        kill $started
        wait
    "#;
    let folder = tempfile::tempdir().unwrap();
    let file = "gateway = { dns_refresh = \"100ms\", listener = [{ listen = \"127.0.0.1:8080\" }] }\n\
                upstream = [{ name = \"app\", servers = [\"http://here.test:3000\"] }]\n\
                route = [{ name = \"app\", upstream = \"app\" }]\n";
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    fs::write(folder.path().join("names.py"), NAMES).unwrap();
    let python = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let mut command = Command::new("timeout");
    command.args(["120", "unshare", "--map-root-user", "--net", "--mount", "sh", "-c", SCRIPT]);
    command.arg(env!("CARGO_BIN_EXE_tidegate")).env("PYTHON", python);
    let output = command.current_dir(folder.path()).output().unwrap();
    let log = fs::read_to_string(folder.path().join("gateway.log")).unwrap_or_default();
    let most: usize = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(usize::MAX);
    // One that ends may be there still when the next one begins.
    assert!((1..=2).contains(&most), "{most} at once: {output:?} {log}");
}
