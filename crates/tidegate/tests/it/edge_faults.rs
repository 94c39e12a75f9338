//! Faults around the edge of the built binary: clients that vanish, names that move, one process in the place of another.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::edge::{PATIENCE, answers, connect_from, echo, free, metric, until, visit};
use crate::support::{Tidegate, binary};
use tidegate_net::clock::monotonic;

fn file(edge: SocketAddr, backend: &str, more: &str) -> String {
    format!(
        "edge.listener = [{{ listen = \"{edge}\", affinity = \"off\" }}]\n\
         edge.backend = [{{ name = \"echo\", address = \"{backend}\", check = {{ kind = \"off\" }}{more} }}]\n"
    )
}

const OWN: [(&str, &str); 2] = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"), ("TIDEGATE_EDGE_API_LISTEN", "off")];

/// Connects to `port` on 127.0.0.1 so many times, and vanishes without a word when its input ends: a socket under
/// repair sends neither an end nor a reset when it is closed.
const VANISH: &str = "
import resource, socket, sys
port, count = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (count + 100, count + 100))
held = [socket.create_connection(('127.0.0.1', port), 60) for _ in range(count)]
print('connected', flush=True)
sys.stdin.read()
for each in held:
    each.setsockopt(socket.IPPROTO_TCP, 19, 1)
    each.close()
print('vanished', flush=True)
";

/// A backend that takes thousands of connections and ends each when its client does.
fn patient() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                drop(tokio::spawn(async move {
                    // However it ends, it has ended.
                    drop(tokio::io::copy(&mut stream, &mut tokio::io::sink()).await);
                }));
            }
        });
    });
    address
}

#[test]
fn fault_38_five_thousand_clients_that_vanish_keep_nobody_out_and_are_let_go() {
    const CLIENTS: u64 = 5_000;
    let (edge, other) = (free(), free());
    let data = tempfile::tempdir().unwrap();
    let (quiet, echoing) = (patient(), echo());
    let text = format!(
        "edge.listener = [{{ listen = \"{edge}\", connect_seconds = 60 }}, {{ listen = \"{other}\", app = \"other\" }}]\n\
         edge.backend = [{{ name = \"quiet\", address = \"{quiet}\", soft_limit = 9000, hard_limit = 9000 }}, \
         {{ name = \"echo\", app = \"other\", address = \"{echoing}\" }}]\n"
    );
    fs::write(data.path().join("edge.toml"), text).unwrap();
    let service = Tidegate::start_in(data, &["--config", "edge.toml"], &OWN);
    let mut clients = Command::new("python3")
        .args(["-c", VANISH, &edge.port().to_string(), &CLIENTS.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(clients.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "connected");
    let open = || metric(&service, &format!("tidegate_edge_open{{listener=\"{edge}\"}}"));
    until("all are placed", || open() == CLIENTS);
    drop(clients.stdin.take());
    assert_eq!(lines.next().unwrap().unwrap(), "vanished");
    assert!(clients.wait().unwrap().success());
    // Nobody has told the edge.
    assert_eq!(open(), CLIENTS);
    let vanished = monotonic();
    until("they are let go", || {
        assert!(visit("127.0.0.1", other).1, "others are served");
        open() == 0
    });
    assert!(vanished.elapsed() >= Duration::from_secs(5), "they were told");
}

/// In a mount namespace where the system's names come from a file of the test alone.
#[test]
fn fault_41_connections_follow_a_backends_name_and_keep_its_last_addresses_when_it_is_lost() {
    let (edge, port) = (free(), tidegate_testkit::free_port());
    let [first, second] = ["127.0.0.1", "127.0.0.2"].map(|host| {
        let visits = std::sync::Arc::new(AtomicU64::new(0));
        let (listener, counted) = (TcpListener::bind((host, port)).unwrap(), visits.clone());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::Relaxed);
                drop(stream.write_all(b"here"));
            }
        });
        visits
    });
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    // In place, since the file is mounted.
    let name_is_at = |address: &str| fs::write(&hosts, format!("{address} moving.test\n")).unwrap();
    name_is_at("127.0.0.1");
    let resolv = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n";
    fs::write(folder.path().join("resolv.conf"), resolv).unwrap();
    let text = format!("edge.dns_refresh = \"200ms\"\n{}", file(edge, &format!("moving.test:{port}"), ""));
    fs::write(folder.path().join("edge.toml"), text).unwrap();
    let script = "mount --bind hosts /etc/hosts && mount --bind resolv.conf /etc/resolv.conf && \
                  exec \"$0\" serve --config edge.toml";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_tidegate")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let _service = Tidegate::spawn(folder, command, &OWN);
    let visit = || {
        let mut said = String::new();
        connect_from("127.0.0.1", edge).read_to_string(&mut said).unwrap();
        assert_eq!(said, "here");
    };
    visit();
    assert_eq!([&first, &second].map(|visits| visits.load(Ordering::Relaxed)), [1, 0]);
    name_is_at("127.0.0.2");
    until("the name is asked for again", || {
        visit();
        second.load(Ordering::Relaxed) > 0
    });
    fs::write(&hosts, "").unwrap();
    let (lost, before) = (monotonic(), first.load(Ordering::Relaxed));
    // For longer than an answer is used.
    while lost.elapsed() < Duration::from_secs(2) {
        visit();
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert_eq!(first.load(Ordering::Relaxed), before, "the last good address is that of the second");
}

/// In a network of its own, where a server of names says where `moving.test` is for a second, and then that there is no such name.
#[test]
fn fault_41_a_name_that_is_no_more_keeps_its_last_addresses() {
    const NAMES: &str = r#"
import os, socket
asked = os.open("asked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while True:
    question, peer = server.recvfrom(1500)
    end = question.index(b"\0", 12) + 5
    address = open("name").read().strip()
    is_asked_for = address != "none" and question[end - 4:end - 2] == b"\0\1"
    answer = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton(address) if is_asked_for else b""
    flags = b"\x81\x83" if address == "none" else b"\x81\x80"
    counts = b"\0\1" + (b"\0\1" if answer else b"\0\0") + b"\0\0\0\0"
    server.sendto(question[:2] + flags + counts + question[12:end] + answer, peer)
    if address == "none":
        os.write(asked, b".")
"#;
    const SCRIPT: &str = r#"
        set -e
        ip link set lo up
        echo 'nameserver 127.0.0.1' > resolv.conf
        mount --bind resolv.conf /etc/resolv.conf
        at() { echo "$1" > next && mv next name; }
        at 127.0.0.1
        "$PYTHON" names.py & started=$!
        for address in 127.0.0.1 127.0.0.2; do
            "$0" stub $address:3000 --body $address > stub.log & started="$started $!"
        done
        "$0" serve --config edge.toml --http-listen 127.0.0.1:4000 > edge.log 2>&1 & started="$started $!"
        ask() { curl --silent --max-time 60 http://127.0.0.1:8080/ || true; }
        until [ "$(ask)" = 127.0.0.1 ]; do :; done
        at 127.0.0.2
        until [ "$(ask)" = 127.0.0.2 ]; do :; done
        echo followed
        at none
        # It is told three times that there is no such name, and each time the connections before and after are served.
        for told in 1 2 3; do
            before=$(cat asked 2> /dev/null | wc -c)
            until [ "$(cat asked 2> /dev/null | wc -c)" -gt "$before" ]; do
                [ "$(ask)" = 127.0.0.2 ]
            done
            [ "$(ask)" = 127.0.0.2 ]
        done
        echo kept
        at 127.0.0.1
        until [ "$(ask)" = 127.0.0.1 ]; do :; done
        echo back
        kill $started
        wait
    "#;
    let folder = tempfile::tempdir().unwrap();
    let text = file("127.0.0.1:8080".parse().unwrap(), "moving.test:3000", "");
    let text = format!("edge.dns_refresh = \"500ms\"\nedge.api_listen = \"off\"\n{text}");
    fs::write(folder.path().join("edge.toml"), text).unwrap();
    fs::write(folder.path().join("names.py"), NAMES).unwrap();
    let python = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv/bin/python");
    let mut command = Command::new("timeout");
    command.args(["120", "unshare", "--map-root-user", "--net", "--mount", "sh", "-c", SCRIPT]);
    command.arg(env!("CARGO_BIN_EXE_tidegate")).env("PYTHON", python);
    let output = command.current_dir(folder.path()).output().unwrap();
    let log = fs::read_to_string(folder.path().join("edge.log")).unwrap_or_default();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "followed\nkept\nback\n", "{output:?} {log}");
}

/// `tidegate serve` with `socket` as descriptor 3, as a service manager passes it on.
fn activated(socket: &TcpListener, backend: SocketAddr) -> Tidegate {
    let data = tempfile::tempdir().unwrap();
    let text = file(socket.local_addr().unwrap(), &backend.to_string(), "");
    fs::write(data.path().join("edge.toml"), text).unwrap();
    let script =
        "exec 3<&0 0</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" serve --config edge.toml";
    let program = binary();
    let mut command = Command::new("sh");
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["-c", script]).arg(program.get_program());
    command.stdin(OwnedFd::from(socket.try_clone().unwrap()));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Tidegate::spawn(data, command, &OWN)
}

/// Ends the clients however the test ends.
struct StopAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn fault_23_a_second_process_takes_the_edges_listener_over_and_no_connection_fails() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let edge = socket.local_addr().unwrap();
    let backend = echo();
    let first = activated(&socket, backend);
    let (mut held, is_served) = visit("127.0.0.1", edge);
    assert!(is_served);
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    // It outlives the clients.
    let mut second = None;
    let ended = std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut stream = TcpStream::connect(edge).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    assert!(answers(&mut stream), "a connection is not served");
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = StopAtTheEnd(&stop);
        let more = |count: u64| {
            let before = served.load(Ordering::Relaxed);
            until("more are served", || served.load(Ordering::Relaxed) >= before + count);
        };
        more(500);
        let second = second.insert(activated(&socket, backend));
        more(500);
        first.signal("TERM");
        more(500);
        // What the first one has lives on.
        for _ in 0..100 {
            assert!(answers(&mut held));
        }
        drop(held);
        let ended = first.wait();
        more(500);
        let placed =
            metric(second, &format!("tidegate_edge_placed_total{{listener=\"{edge}\",by=\"score\"}}"));
        assert!(placed >= 500, "the second one serves: {placed}");
        ended
    });
    assert!(ended.status.success(), "{}", ended.output);
}

#[test]
fn fault_69_a_client_that_says_nothing_hears_a_backend_that_speaks_first() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let backend = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            drop(stream.write_all(b"220 ready\r\n"));
            // It says no more, and hears no more.
            std::mem::forget(stream);
        }
    });
    let edge = free();
    let data = tempfile::tempdir().unwrap();
    let text = format!(
        "edge.listener = [{{ listen = \"{edge}\", idle_seconds = 1 }}]\n\
         edge.backend = [{{ name = \"mail\", address = \"{backend}\", check = {{ kind = \"off\" }} }}]\n"
    );
    fs::write(data.path().join("edge.toml"), text).unwrap();
    let service = Tidegate::start_in(data, &["--config", "edge.toml"], &OWN);
    let began = monotonic();
    let mut client: TcpStream = connect_from("127.0.0.1", edge);
    let mut said = String::new();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.read_to_string(&mut said).unwrap();
    assert_eq!(said, "220 ready\r\n");
    assert!(began.elapsed() >= Duration::from_secs(1), "it lasts as long as silence may");
    let open = format!("tidegate_edge_open{{listener=\"{edge}\"}}");
    until("nobody is left", || metric(&service, &open) == 0);
}
