//! systemd's socket activation: the built binary serves on a socket that it was passed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::support::edge::until;
use crate::support::{Tidegate, binary, keep_asking};
use tidegate_net::clock::monotonic;
use tidegate_testkit::{Server, free_port};

/// `tidegate serve` with `socket` as descriptor 3, as systemd passes it on.
fn activated(socket: &TcpListener) -> Command {
    let script = "exec 3<&0 0</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" serve \"$@\"";
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
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command
}

fn start(socket: &TcpListener) -> Tidegate {
    let address = socket.local_addr().unwrap().to_string();
    Tidegate::spawn(
        tempfile::tempdir().unwrap(),
        activated(socket),
        &[("TIDEGATE_HTTP_LISTEN", address.as_str())],
    )
}

/// Connects and asks, whether or not somebody accepts.
fn ask(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n").unwrap();
    stream
}

fn is_answered(mut stream: TcpStream) -> bool {
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply.starts_with("HTTP/1.1 200")
}

#[test]
fn who_connects_between_two_processes_is_answered_by_the_second() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let early = ask(address);
    let first = start(&socket);
    assert_eq!(first.http, address);
    assert!(is_answered(early), "it connected before there was a process");
    assert!(is_answered(ask(address)));

    first.signal("TERM");
    assert!(first.wait().status.success());
    let between: Vec<_> = (0..20).map(|_| ask(address)).collect();
    let second = start(&socket);
    assert!(between.into_iter().all(is_answered));
    assert!(is_answered(ask(address)));
    second.signal("TERM");
    let ended = second.wait();
    assert!(ended.status.success() && ended.output.contains("service manager's socket"), "{}", ended.output);
}

/// A request for `path`, on a connection of its own.
fn status_of(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// Waits until `count` more requests than now are answered; false if that takes too long.
fn go_on(answered: &AtomicU64, count: u64) -> bool {
    let (begun, enough) = (monotonic(), answered.load(Relaxed) + count);
    while answered.load(Relaxed) < enough && begun.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    answered.load(Relaxed) >= enough
}

#[test]
fn fault_23_a_restart_under_load_fails_no_proxied_request_and_forgets_no_count() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = socket.local_addr().unwrap();
    let backend = format!("127.0.0.1:{}", free_port());
    let _stub = Server::start(binary().args(["stub", &backend]), "listening on ");
    let file = format!(
        "gateway.listener = [{{ listen = \"{proxy}\" }}]\n\
         policy = [{{ name = \"few\", limit = 3, window_seconds = 3600 }}]\n\
         upstream = [{{ name = \"app\", servers = [\"http://{backend}\"] }}]\n\
         route = [{{ name = \"app\", upstream = \"app\" }}, \
                  {{ name = \"few\", path = \"/few\", upstream = \"app\", policies = [\"few\"] }}]\n"
    );
    let start = |folder: tempfile::TempDir| {
        std::fs::write(folder.path().join("tidegate.toml"), &file).unwrap();
        let mut command = activated(&socket);
        command.args(["--config", "tidegate.toml"]);
        Tidegate::spawn(folder, command, &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")])
    };
    let first = start(tempfile::tempdir().unwrap());
    assert_eq!([(); 2].map(|()| status_of(proxy, "/few")), ["200", "200"]);
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let request = "GET / HTTP/1.1\r\nhost: t\r\n\r\n";
        let clients: Vec<_> =
            (0..8).map(|_| scope.spawn(|| keep_asking(proxy, request, &stop, &answered))).collect();
        let under_load = go_on(&answered, 1_000);
        first.signal("TERM");
        let (folder, ended) = first.wait_keeping_data();
        let second = start(folder);
        let taken_over = go_on(&answered, 1_000);
        let counted = [(); 2].map(|()| status_of(proxy, "/few"));
        stop.store(true, Relaxed);
        // Clients leave when the server closes.
        second.signal("TERM");
        // One that cannot connect, or is not answered, ends with a panic.
        clients.into_iter().for_each(|client| client.join().unwrap());
        assert!(under_load && ended.status.success() && taken_over, "{}", ended.output);
        assert_eq!(counted, ["200", "429"]);
    });
}

#[test]
fn a_socket_that_a_reload_gave_up_is_taken_back_by_another() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let (passed, own) = (socket.local_addr().unwrap(), free_port());
    let file = |address: &str| {
        format!(
            "gateway.listener = [{{ listen = \"{address}\" }}]\n\
             route = [{{ name = \"all\", respond = {{ body = \"ok\" }} }}]\n"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tidegate.toml"), file(&passed.to_string())).unwrap();
    let mut command = activated(&socket);
    command.args(["--config", "tidegate.toml"]);
    let service = Tidegate::spawn(folder, command, &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
    assert_eq!(status_of(passed, "/"), "200");
    let rewrite = |address: &str| {
        std::fs::write(service.path().join("new.toml"), file(address)).unwrap();
        std::fs::rename(service.path().join("new.toml"), service.path().join("tidegate.toml")).unwrap();
        service.signal("HUP");
    };
    let other = SocketAddr::from(([127, 0, 0, 1], own));
    rewrite(&other.to_string());
    until("the other address serves", || TcpStream::connect(other).is_ok());
    // Nobody accepts here now: the service manager's queue takes the connection.
    let waiting = ask(passed);
    rewrite(&passed.to_string());
    assert!(is_answered(waiting), "the socket is taken back");
    assert_eq!(status_of(passed, "/"), "200");
    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.status.success(), "{}", ended.output);
    assert!(ended.output.contains("take it out of the socket unit"), "{}", ended.output);
}

#[test]
fn a_socket_that_is_no_listeners_is_refused() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = activated(&socket);
    for listener in ["HTTP", "GRPC", "RESP", "INTAKE", "EDGE_API"] {
        command.env(format!("TIDEGATE_{listener}_LISTEN"), "127.0.0.1:0");
    }
    let output = command.current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("listens on {}, which is no listener's address", socket.local_addr().unwrap());
    assert!(said.starts_with("cannot start: ") && said.contains(&expected), "{said}");
}
