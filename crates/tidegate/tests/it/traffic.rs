//! Traffic that moves, at the gateway of the built binary: shares of a canary and of a split, and copies for an upstream that nobody waits for.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crate::support::{Tidegate, agent, binary};
use serde_json::{Value, json};
use tidegate_net::clock::monotonic;

const PATIENCE: Duration = Duration::from_secs(60);

/// A request as a server got it: its head, in lower case, and its body.
type Got = (String, String);

/// A server that says its name, and 404 where the path ends so.
fn server(name: &'static str, missing: &'static str) -> (SocketAddr, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, got) = mpsc::sync_channel(10_000);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tell = tell.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                loop {
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if reader.read_line(&mut head).unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let head = head.to_lowercase();
                    let length =
                        head.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next());
                    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
                    reader.read_exact(&mut body).unwrap();
                    let is_missing = head.lines().next().unwrap().contains(missing);
                    let status = if is_missing { "404 Not Found" } else { "200 OK" };
                    drop(tell.try_send((head, String::from_utf8(body).unwrap())));
                    let reply = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{name}", name.len());
                    if reader.get_mut().write_all(reply.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, got)
}

fn start(first: SocketAddr, second: SocketAddr, route: &str) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    let file = format!(
        "gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
         upstream = [{{ name = \"first\", servers = [\"{first}\"] }}, {{ name = \"second\", servers = [\"{second}\"] }}]\n\
         [[route]]\nname = \"all\"\nupstream = \"first\"\n{route}\n"
    );
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment)
}

fn metric(service: &Tidegate, series: &str) -> u64 {
    let page = agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
    value.unwrap_or_else(|| panic!("{series} is not there"))
}

fn copies(service: &Tidegate, result: &str) -> u64 {
    metric(service, &format!("tidegate_mirror_requests_total{{route=\"all\",result=\"{result}\"}}"))
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let begun = monotonic();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
    }
}

fn explained(service: &Tidegate, question: &[&str]) -> Value {
    let mut command = binary();
    command.args(["explain", "route", "host=a", "path=/"]).args(question);
    let output = command.args(["--server", &service.url("")]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["action"]["forward"].clone()
}

#[test]
fn copies_are_answered_by_nobody_and_compared_with_what_the_client_got() {
    let ((first, got), (second, copied)) = (server("first", "/lost"), server("second", "/gone"));
    let service = start(first, second, "mirror = { upstream = \"second\" }");
    let agent = agent();
    let url = |path: &str| format!("http://{}{path}", service.gateway[0]);
    for _ in 0..10 {
        let mut reply = agent.get(url("/a?b=1")).header("tidegate-mirror", "forged").call().unwrap();
        assert_eq!(reply.body_mut().read_to_string().unwrap(), "first");
        assert_eq!(agent.get(url("/gone")).call().unwrap().status(), 200);
    }
    assert_eq!(agent.get(url("/lost")).call().unwrap().status(), 404);
    // In one piece, on a connection that is kept: of a request whose body is not at hand as a whole there is no copy.
    let post = "POST /post HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\n\r\na body";
    let mut stream = TcpStream::connect(service.gateway[0]).unwrap();
    stream.write_all(post.as_bytes()).unwrap();
    let mut reply = String::new();
    while !reply.ends_with("\r\n\r\nfirst") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        reply.push(char::from(byte[0]));
    }
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    until("not every copy was answered", || {
        copies(&service, "same_status") + copies(&service, "other_status") == 22
    });
    assert_eq!((copies(&service, "same_status"), copies(&service, "other_status")), (11, 11));
    assert_eq!(["failed", "dropped", "skipped"].map(|result| copies(&service, result)), [0, 0, 0]);
    for upstream in ["first", "second"] {
        let took = format!("tidegate_mirror_microseconds_total{{route=\"all\",upstream=\"{upstream}\"}}");
        assert!(metric(&service, &took) > 0, "{took}");
    }
    let (got, copied): (Vec<Got>, Vec<Got>) = (got.try_iter().collect(), copied.try_iter().collect());
    assert_eq!((got.len(), copied.len()), (22, 22));
    assert!(
        got.iter().all(|(head, _)| !head.contains("tidegate-mirror")),
        "clients cannot say what a copy is"
    );
    assert!(copied.iter().all(|(head, _)| head.contains("tidegate-mirror: 1")));
    assert!(copied.iter().any(|(head, body)| head.starts_with("post /post ") && body == "a body"));
    assert_eq!(explained(&service, &[])["mirror"], "second");
}

#[test]
fn fault_66_a_mirror_that_hangs_is_not_felt_and_has_a_bound() {
    let (first, _got) = server("first", "/gone");
    // Connections are made, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let service = start(first, silent.local_addr().unwrap(), "mirror = { upstream = \"second\" }");
    let agent = agent();
    let begun = monotonic();
    for _ in 0..400 {
        let asked = monotonic();
        let mut reply = agent.get(format!("http://{}/", service.gateway[0])).call().unwrap();
        assert_eq!(reply.body_mut().read_to_string().unwrap(), "first");
        // A copy is given up after 30 s.
        assert!(asked.elapsed() < Duration::from_secs(10), "it waited for the copy");
    }
    let (dropped, under_way) =
        (copies(&service, "dropped"), metric(&service, "tidegate_mirror_in_flight{route=\"all\"}"));
    let most = metric(&service, "tidegate_mirror_in_flight_max");
    assert!(dropped > 0 && under_way <= most, "{dropped} dropped, {under_way} of {most} under way");
    assert!(begun.elapsed() < PATIENCE);
    drop(silent);
    until("copies are under way for ever", || {
        metric(&service, "tidegate_mirror_in_flight{route=\"all\"}") == 0
    });
}

/// A server that answers each connection with `begin` and then, if it says so, with `rest` for ever.
fn hostile(begin: &'static [u8], rest: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut sent = stream.write_all(begin);
                while sent.is_ok() && !rest.is_empty() {
                    sent = stream.write_all(rest);
                }
                // What was not read makes a reset of the end.
            });
        }
    });
    address
}

#[test]
fn fault_66_a_mirror_that_refuses_resets_or_never_ends_is_not_felt() {
    const BLOCK: &[u8] = &[b'x'; 4096];
    let (first, _got) = server("first", "/gone");
    let nobody = SocketAddr::from(([127, 0, 0, 1], tidegate_testkit::free_port()));
    let mirrors = [
        ("refuses", nobody),
        ("resets", hostile(b"", b"")),
        ("no HTTP", hostile(b"\0\x01\r\n\r\n", b"")),
        ("a reply cut short", hostile(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nx", b"")),
        ("a head without end", hostile(b"HTTP/1.1 200 OK\r\nx: ", BLOCK)),
        ("a body without end", hostile(b"HTTP/1.1 200 OK\r\n\r\n", BLOCK)),
    ];
    for (what, second) in mirrors {
        let service = start(first, second, "mirror = { upstream = \"second\" }");
        let agent = agent();
        for _ in 0..20 {
            let mut reply = agent.get(format!("http://{}/", service.gateway[0])).call().unwrap();
            assert_eq!(
                (reply.status().as_u16(), &*reply.body_mut().read_to_string().unwrap()),
                (200, "first"),
                "{what}"
            );
        }
        let results = ["same_status", "other_status", "failed", "dropped", "skipped"];
        until("every copy comes to an end", || {
            results.iter().map(|result| copies(&service, result)).sum::<u64>() == 20
                && metric(&service, "tidegate_mirror_in_flight{route=\"all\"}") == 0
        });
        assert_eq!(copies(&service, "other_status"), 0, "{what}");
    }
}

#[test]
fn fault_66_a_canary_that_hangs_is_felt_by_its_own_clients_only() {
    let (first, _got) = server("first", "/gone");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let route =
        "canary = { upstream = \"second\", header = { x-canary = \"1\" } }\nfirst_byte_timeout_seconds = 3";
    let service = start(first, silent.local_addr().unwrap(), route);
    let url = format!("http://{}/", service.gateway[0]);
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            let url = url.clone();
            std::thread::spawn(move || {
                agent().get(url).header("x-canary", "1").call().unwrap().status().as_u16()
            })
        })
        .collect();
    let agent = agent();
    for _ in 0..200 {
        let asked = monotonic();
        assert_eq!(agent.get(&url).call().unwrap().body_mut().read_to_string().unwrap(), "first");
        assert!(asked.elapsed() < Duration::from_secs(3), "it waited for the canary");
    }
    for thread in waiting {
        let status = thread.join().unwrap();
        assert!(status == 504 || status == 502 || status == 503, "{status}");
    }
}

#[test]
fn a_canary_is_explained_with_its_reason() {
    let ((first, _), (second, _)) = (server("first", "/gone"), server("second", "/gone"));
    let route = "canary = { upstream = \"second\", percent = 30, header = { x-canary = \"1\" }, sticky_by = \"header:x-tenant\" }";
    let service = start(first, second, route);
    let by_field = explained(&service, &["header.x-canary=1"]);
    assert_eq!(by_field["upstream"], "second");
    assert_eq!(
        by_field["canary"],
        json!({"upstream": "second", "taken": true, "because": "its fields send it there"})
    );
    let agent = agent();
    let mut taken = 0;
    for tenant in 0..40 {
        let said = explained(&service, &[&format!("header.x-tenant={tenant}")]);
        let request =
            agent.get(format!("http://{}/", service.gateway[0])).header("x-tenant", tenant.to_string());
        let answered_by = request.call().unwrap().body_mut().read_to_string().unwrap();
        assert_eq!(said["upstream"], answered_by, "what is said is what happens");
        let because = said["canary"]["because"].as_str().unwrap();
        let place: f64 = because.split(' ').nth(3).unwrap().parse().unwrap();
        assert!(because.ends_with(" of 100, and those below 30 go there"), "{because}");
        assert_eq!(
            (place < 30.0, answered_by == "second"),
            (said["canary"]["taken"] == true, place < 30.0),
            "{because}"
        );
        taken += usize::from(place < 30.0);
    }
    assert!((1..40).contains(&taken), "{taken} of 40");
}

#[test]
fn a_split_is_explained_with_its_shares_and_the_place_of_the_request() {
    let names = ["first", "second", "third"];
    let servers = names.map(|name| server(name, "/gone"));
    let upstreams = names.iter().zip(&servers);
    let upstreams: String = upstreams
        .map(|(name, (address, _))| format!("[[upstream]]\nname = \"{name}\"\nservers = [\"{address}\"]\n"))
        .collect();
    let share = |name: &str, percent: &str| format!("{{ upstream = \"{name}\", percent = {percent} }}");
    let split = [share("first", "30"), share("second", "49.5"), share("third", "20.5")].join(", ");
    let folder = tempfile::tempdir().unwrap();
    let file = format!(
        "gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n{upstreams}\
         [[route]]\nname = \"all\"\nsplit = [{split}]\nsplit_by = \"header:x-tenant\"\n"
    );
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let environment = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment);
    let agent = agent();
    let mut seen = [0; 3];
    for tenant in 0..40 {
        let said = explained(&service, &[&format!("header.x-tenant={tenant}")]);
        let request =
            agent.get(format!("http://{}/", service.gateway[0])).header("x-tenant", tenant.to_string());
        let answered_by = request.call().unwrap().body_mut().read_to_string().unwrap();
        assert_eq!(said["upstream"], answered_by, "what is said is what happens");
        let shares = json!([
            {"upstream": "first", "percent": 30.0},
            {"upstream": "second", "percent": 49.5},
            {"upstream": "third", "percent": 20.5}
        ]);
        assert_eq!((&said["split"]["shares"], &said["canary"]), (&shares, &Value::Null));
        let because = said["split"]["because"].as_str().unwrap();
        let place: f64 = because.split(' ').nth(3).unwrap().parse().unwrap();
        let (at, places) = match place {
            ..30.0 => (0, "from 0 to below 30"),
            ..79.5 => (1, "from 30 to below 79.5"),
            _ => (2, "from 79.5 to below 100"),
        };
        assert_eq!(names[at], answered_by, "{because}");
        assert!(because.ends_with(&format!("of 100, and those {places} go there")), "{because}");
        seen[at] += 1;
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}
