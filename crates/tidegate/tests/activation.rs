//! systemd's socket activation: the built binary serves on a socket that it was passed.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::Duration;

use support::{Tidegate, binary};

/// `tidegate serve` with `socket` as descriptor 3, as systemd passes it on.
fn activated(socket: &TcpListener) -> Command {
    let script = "exec 3<&0 0</dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" serve";
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

#[test]
fn a_socket_that_is_no_listeners_is_refused() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut command = activated(&socket);
    for listener in ["HTTP", "GRPC", "RESP"] {
        command.env(format!("TIDEGATE_{listener}_LISTEN"), "127.0.0.1:0");
    }
    let output = command.current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("listens on {}, which is no listener's address", socket.local_addr().unwrap());
    assert!(said.starts_with("cannot start: ") && said.contains(&expected), "{said}");
}
