//! Names of the edge's backends, as `dig` sees them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;

use crate::support::Tidegate;
use crate::support::edge::{PATIENCE, free, metric, until};

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
        backend("db.rack", "10.0.0.6", "west.af", ", app = \"shop.de\""),
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
        // A resolver that is told that these are not there asks for nothing below them.
        ("shop.de.internal", "A", "NOERROR", 1),
        ("de.internal", "A", "NOERROR", 0),
        ("af.backends.internal", "A", "NOERROR", 0),
        ("rack.nodes.internal", "A", "NOERROR", 0),
        ("e.internal", "A", "NXDOMAIN", 0),
        ("none.internal", "A", "NXDOMAIN", 0),
        ("eu.pops.internal", "A", "NXDOMAIN", 0),
        ("internal", "SOA", "NOERROR", 1),
        ("internal", "NS", "NOERROR", 0),
        ("default.example", "A", "REFUSED", 0),
    ] {
        let said = dig(names, &[name, kind]);
        let is_right =
            said.contains(&format!("status: {status},")) && said.contains(&format!("ANSWER: {answers},"));
        assert!(is_right, "{name} {kind}: {said}");
        // Who is told that there is nothing is told for how long.
        let has_start = said.contains("AUTHORITY: 1,");
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

#[test]
fn all_answers_of_a_connection_arrive_also_where_more_was_asked() {
    let names = free();
    let _service = start(names, &[backend("rio", "10.0.0.1", "sa", "")]);
    let name = b"\x07default\x08internal\0";
    // The number 7, recursion wanted, one question: A, IN.
    let question = [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], name, &[0, 1, 0, 1]].concat();
    let message = [&u16::try_from(question.len()).unwrap().to_be_bytes()[..], &question].concat();
    let mut stream = TcpStream::connect(names).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&message.repeat(1_500)).unwrap();
    let mut arrived = Vec::new();
    stream.read_to_end(&mut arrived).unwrap();
    let mut rest = &arrived[..];
    let mut answers = 0;
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let (answer, next) = behind.split_at(usize::from(u16::from_be_bytes(*length)));
        assert_eq!(answer[..2], [0, 7]);
        (answers, rest) = (answers + 1, next);
    }
    assert_eq!(answers, 1_000, "as many as a connection may ask");
}

/// In a network of its own, where askers have addresses that are not this machine's own.
#[test]
fn askers_that_are_not_listed_get_no_reply_by_udp_or_tcp() {
    const SCRIPT: &str = r#"
        set -e
        ip link set lo up
        ip address add 10.9.0.1/32 dev lo
        ip address add 10.9.0.2/32 dev lo
        "$0" serve --config edge.toml --http-listen 127.0.0.1:4000 > edge.log 2>&1 & edge=$!
        ask() { dig @10.9.0.1 -p 5353 +short +tries=1 +time="$1" -b "$2" $3 default.internal A || echo none; }
        until [ "$(ask 5 10.9.0.2)" = 10.0.0.1 ]; do :; done
        for way in +notcp +tcp; do
            ask 20 10.9.0.2 $way
            ask 1 10.9.0.1 $way | grep -v '^;' || true
        done
        curl --silent http://127.0.0.1:4000/metrics | grep '^tidegate_edge_names_total.*unlisted'
        kill $edge
        wait
    "#;
    const FILE: &str = r#"
        edge.api_listen = "off"
        edge.dns_listen = "10.9.0.1:5353"
        edge.dns_allowed = ["10.9.0.2/32"]
        edge.listener = [{ listen = "127.0.0.1:8080" }]
        edge.backend = [{ name = "rio", address = "10.0.0.1:80", check = { kind = "off" } }]
    "#;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("edge.toml"), FILE).unwrap();
    let mut command = Command::new("timeout");
    command.args(["--kill-after", "1", "120", "unshare", "--map-root-user", "--net", "--mount", "--pid"]);
    command.args(["--fork", "--kill-child", "--mount-proc", "sh", "-c", SCRIPT]);
    let output = command.arg(env!("CARGO_BIN_EXE_tidegate")).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let log = std::fs::read_to_string(folder.path().join("edge.log")).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines.get(..4).unwrap_or_default(),
        ["10.0.0.1", "none", "10.0.0.1", "none"],
        "{said} {output:?} {log}"
    );
    let (series, count) = lines[4].rsplit_once(' ').unwrap();
    assert!(series.ends_with("{result=\"unlisted\"}") && count.parse::<u64>().unwrap() >= 2, "{said}");
}

#[test]
fn the_addresses_of_a_node_are_those_of_the_listeners_that_it_has_now() {
    let (names, http, port) = (free(), free(), tidegate_testkit::free_port());
    let file = |listen: &str| {
        let listener = match listen {
            "" => String::new(),
            address => format!("[[edge.listener]]\nlisten = \"{address}:{port}\"\n"),
        };
        format!(
            "http.listen = \"{http}\"\nedge.region = \"sa\"\nedge.dns_listen = \"{names}\"\nedge.api_listen = \"off\"\n{listener}"
        )
    };
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("edge.toml"), file("127.0.0.1")).unwrap();
    let service = Tidegate::start_in(data, &["--config", "edge.toml"], &[]);
    let here = || dig(names, &["+short", "sa.pops.internal", "A"]);
    assert_eq!(here(), "127.0.0.1\n");
    for (listen, address) in [("127.0.0.2", "127.0.0.2\n"), ("", ""), ("127.0.0.3", "127.0.0.3\n")] {
        std::fs::write(service.path().join("new.toml"), file(listen)).unwrap();
        std::fs::rename(service.path().join("new.toml"), service.path().join("edge.toml")).unwrap();
        service.signal("HUP");
        until("the addresses follow", || here() == address);
    }
    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.status.success() && !ended.output.contains("opened at the next start"), "{}", ended.output);
}
