//! Names of the edge's backends, as `dig` sees them.
#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;

use support::Tidegate;
use support::edge::{PATIENCE, free, metric};

/// An edge in the region `sa` with a server of names, whose clients on this machine are in `eu`.
fn start(names: SocketAddr, backends: &[String]) -> Tidegate {
    let data = tempfile::tempdir().unwrap();
    let edge = tidegate_testkit::free_port();
    let text = format!(
        "[edge]\nregion = \"sa\"\ndns_listen = \"{names}\"\napi_listen = \"off\"\n\
         listener = [{{ listen = \"127.0.0.1:{edge}\" }}]\n\
         place = [{{ networks = [\"127.0.0.0/8\"], region = \"eu\" }}]\nbackend = [{}]\n",
        backends.join(", ")
    );
    std::fs::write(data.path().join("edge.toml"), text).unwrap();
    Tidegate::start_in(data, &["--config", "edge.toml"], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")])
}

fn backend(name: &str, address: &str, region: &str, more: &str) -> String {
    format!(
        "{{ name = \"{name}\", address = \"{address}:80\", region = \"{region}\", check = {{ kind = \"off\" }}{more} }}"
    )
}

fn dig(names: SocketAddr, question: &[&str]) -> String {
    let port = names.port().to_string();
    let common = ["@127.0.0.1", "-p", &port, "+tries=3", "+time=20", "+noidnin"];
    let asked = Command::new("dig").args(common).args(question).output().unwrap();
    let said = String::from_utf8(asked.stdout).unwrap();
    assert!(asked.status.success(), "{said}");
    said
}

#[test]
fn names_are_answered_by_udp_and_tcp_the_nearest_first() {
    let names = free();
    let backends = [
        backend("rio", "10.0.0.1", "sa", ""),
        backend("dublin", "10.0.0.2", "eu", ""),
        backend("tokyo", "[2001:db8::3]", "ap", ""),
        backend("drained", "10.0.0.4", "sa", ", drain = true"),
        backend("other", "10.0.0.5", "us", ", app = \"other\", drain = true"),
    ];
    let service = start(names, &backends);
    let short = |question: &[&str]| dig(names, &[&["+short"], question].concat());
    let both = "10.0.0.2\n10.0.0.1\n";
    assert_eq!(short(&["default.internal", "A"]), both);
    assert_eq!(short(&["+tcp", "Default.Internal", "A"]), both);
    assert_eq!(short(&["default.internal", "AAAA"]), "2001:db8::3\n");
    assert_eq!(short(&["sa.backends.internal", "A"]), "10.0.0.1\n");
    assert_eq!(short(&["sa.pops.internal", "A"]), "127.0.0.1\n");
    assert_eq!(short(&["rio.nodes.internal", "A"]), "10.0.0.1\n");
    let services =
        "1 1 80 dublin.nodes.internal.\n2 1 80 rio.nodes.internal.\n3 1 80 tokyo.nodes.internal.\n";
    let mut found: Vec<String> =
        short(&["default.internal", "SRV"]).lines().map(|line| format!("{line}\n")).collect();
    found.sort();
    assert_eq!(found.concat(), services);
    for (name, kind, status, answers) in [
        ("default.internal", "A", "NOERROR", 2),
        ("default.internal", "MX", "NOERROR", 0),
        ("other.internal", "A", "NOERROR", 0),
        ("sa.backends.internal", "AAAA", "NOERROR", 0),
        ("backends.internal", "A", "NOERROR", 0),
        ("none.internal", "A", "NXDOMAIN", 0),
        ("eu.pops.internal", "A", "NXDOMAIN", 0),
        ("default.example", "A", "REFUSED", 0),
    ] {
        let said = dig(names, &[name, kind]);
        let is_right =
            said.contains(&format!("status: {status},")) && said.contains(&format!("ANSWER: {answers},"));
        assert!(is_right, "{name} {kind}: {said}");
        // Who is told that there is nothing is told for how long.
        let has_start = said.contains("hostmaster.internal.");
        assert_eq!(has_start, answers == 0 && status != "REFUSED", "{name} {kind}: {said}");
        assert!(!said.contains("WARNING: Message parser"), "{said}");
    }
    let said = dig(names, &["default.internal", "A"]);
    let fields: Vec<&str> =
        said.lines().find(|line| line.ends_with("10.0.0.2")).unwrap().split_whitespace().collect();
    assert_eq!(fields, ["default.internal.", "30", "IN", "A", "10.0.0.2"]);
    assert!(said.contains("flags: qr aa rd;"), "{said}");
    assert!(metric(&service, "tidegate_edge_names_total{result=\"answered\"}") > 10);
}

#[test]
fn what_does_not_fit_is_cut_and_asked_for_again_by_tcp() {
    let names = free();
    let each = |number: u8| backend(&format!("backend-{number}"), &format!("10.0.0.{number}"), "sa", "");
    let backends: Vec<String> = (1..=30).map(each).collect();
    let _service = start(names, &backends);
    let said = dig(names, &["+noedns", "+ignore", "default.internal", "SRV"]);
    assert!(said.contains(" tc ") || said.contains(" tc;"), "{said}");
    assert!(said.contains("ANSWER: 0,"), "{said}");
    let said = dig(names, &["+noedns", "default.internal", "SRV"]);
    assert!(said.contains("(TCP)") && said.contains("ANSWER: 20,"), "{said}");
    // With room for it, the addresses of the targets come along.
    assert!(said.contains("ADDITIONAL: 20"), "{said}");
}

#[test]
fn messages_that_are_no_questions_do_no_harm() {
    let names = free();
    let _service = start(names, &[backend("rio", "10.0.0.1", "sa", "")]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(names).unwrap();
    for message in [&b""[..], b"\xff", &[0xff; 600], &[0; 12], &[0x80; 12], &[0; 3_000]] {
        socket.send(message).unwrap();
    }
    // A length that no question has, and one that nothing comes after.
    for start in [&[0xff, 0xff, 1, 2, 3][..], &[0, 50]] {
        let mut stream = TcpStream::connect(names).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(start).unwrap();
        assert!(matches!(stream.read(&mut [0; 100]), Ok(0) | Err(_)), "it is closed");
    }
    assert_eq!(dig(names, &["+short", "default.internal"]), "10.0.0.1\n");
    assert_eq!(dig(names, &["+short", "+tcp", "+keepopen", "default.internal"]), "10.0.0.1\n");
}
