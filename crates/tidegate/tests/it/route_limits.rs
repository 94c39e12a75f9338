//! What routes hold and whom they count: permits of concurrency limits, names of client certificates; and what a
//! caller of the admin API may not learn.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{Tidegate, agent};
use serde_json::{Value, json};
use socket2::SockRef;
use tidegate_net::clock::monotonic;
use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::redis::RedisServer;

const PATIENCE: Duration = Duration::from_secs(60);

fn start(file: &str, environment: &[(&str, &str)]) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let environment = [&[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")], environment].concat();
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = monotonic();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

/// A server whose replies begin at once and end when the connection that each of them gives is told to; an upgraded
/// one goes on until then.
fn holding() -> (SocketAddr, mpsc::Receiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, begun) = mpsc::sync_channel(100);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let tell = tell.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    if reader.read_line(&mut head).unwrap_or(0) == 0 {
                        return;
                    }
                }
                let mut stream = reader.into_inner();
                let reply = if head.contains("upgrade: websocket") {
                    "HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello"
                } else {
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"
                };
                stream.write_all(reply.as_bytes()).unwrap();
                drop(tell.send(stream));
            });
        }
    });
    (address, begun)
}

/// A request whose reply has begun. One that is denied, since the permit of the one before is still on its way back,
/// is made again.
fn open(service: &Tidegate, upgrade: bool) -> TcpStream {
    let more = if upgrade { "connection: upgrade\r\nupgrade: websocket\r\n" } else { "" };
    let begun = monotonic();
    loop {
        let mut client = TcpStream::connect(service.gateway[0]).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(format!("GET / HTTP/1.1\r\nhost: a\r\n{more}\r\n").as_bytes()).unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"hello") && !read.starts_with(b"HTTP/1.1 429 ") {
            let mut byte = [0];
            assert_eq!(client.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&read));
            read.push(byte[0]);
        }
        if read.ends_with(b"hello") {
            return client;
        }
        assert!(begun.elapsed() < PATIENCE, "no permit comes back");
    }
}

#[test]
fn fault_44_a_permit_is_held_to_the_end_of_the_reply_and_comes_back_however_that_ends() {
    let redis = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}/0", redis.port);
    for store in ["memory", &url] {
        let (server, begun) = holding();
        let file = format!(
            "gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
             policy = [{{ name = \"slots\", algorithm = \"concurrency\", limit = 2, lease_seconds = 4, key = [\"client_id\"] }}]\n\
             upstream = [{{ name = \"app\", servers = [\"{server}\"] }}]\n\
             route = [{{ name = \"app\", upstream = \"app\", policies = [\"slots\"] }}]\n"
        );
        let service = start(&file, &[("TIDEGATE_STORE", store), ("TIDEGATE_SHARED_DEADLINE", "60s")]);
        let denied = || {
            let reply = agent().post(format!("http://{}/", service.gateway[0])).send("x").unwrap();
            let is_denied = reply.status() == 429;
            // One that is not is ended, so that it holds nothing.
            if !is_denied {
                drop(reply);
                drop(begun.recv_timeout(PATIENCE).unwrap().shutdown(Shutdown::Both));
            }
            is_denied
        };
        let reply = open(&service, false);
        let mut server_side = begun.recv_timeout(PATIENCE).unwrap();
        let tunnel = open(&service, true);
        let other_side = begun.recv_timeout(PATIENCE).unwrap();
        // For longer than the lease, which is renewed.
        let opened = monotonic();
        while opened.elapsed() < Duration::from_secs(6) {
            assert!(denied(), "{store}: a permit is given twice after {:?}", opened.elapsed());
            std::thread::park_timeout(Duration::from_millis(50));
        }
        // The reply ends.
        server_side.write_all(b"0\r\n\r\n").unwrap();
        until("the permit comes back", || !denied());
        drop(reply);
        // The client of an upgraded connection leaves, and then one in the middle of its reply.
        let second = open(&service, false);
        let _second_side = begun.recv_timeout(PATIENCE).unwrap();
        assert!(denied(), "{store}");
        SockRef::from(&tunnel).set_linger(Some(Duration::ZERO)).unwrap();
        drop((tunnel, other_side));
        until("the tunnel's permit comes back", || !denied());
        let third = open(&service, false);
        let _third_side = begun.recv_timeout(PATIENCE).unwrap();
        assert!(denied(), "{store}");
        SockRef::from(&third).set_linger(Some(Duration::ZERO)).unwrap();
        drop(third);
        until("its permit comes back", || !denied());
        drop(second);
    }
}

#[test]
fn a_client_certificate_is_whom_a_route_counts() {
    let certificates = Certificates::make();
    let server = certificates.issue("server");
    let file = format!(
        "policy = [{{ name = \"once\", limit = 1, window_seconds = 3600, key = [\"client_id\"] }}]\n\
         route = [{{ name = \"app\", respond = {{ body = \"hello\" }}, policies = [\"once\"] }}]\n\
         [attributes.gateway]\nclient_id = \"tls_name\"\n\
         [[gateway.listener]]\nlisten = \"127.0.0.1:0\"\ntls_certificate = {:?}\ntls_key = {:?}\ntls_client_ca = {:?}\n",
        server.certificate,
        server.key,
        certificates.authority()
    );
    let service = start(&file, &[]);
    let url = format!("https://{}/", service.gateway[0]);
    let ask = |name: &str| {
        let pair = certificates.issue_named(name, &format!("DNS:{name}.example"));
        let output = Command::new("curl")
            .args(["--silent", "--max-time", "60", "--output", "/dev/null", "--write-out", "%{http_code}"])
            .arg("--cacert")
            .arg(certificates.authority())
            .arg("--cert")
            .arg(&pair.certificate)
            .arg("--key")
            .arg(&pair.key)
            .arg(&url)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!((ask("alice"), ask("bob")), ("200".to_owned(), "200".to_owned()));
    assert_eq!((ask("alice"), ask("bob")), ("429".to_owned(), "429".to_owned()));
}

#[test]
fn no_caller_of_the_api_learns_of_files_and_authorities_come_with_the_document() {
    let service = start("gateway.listener = [{ listen = \"127.0.0.1:0\" }]\n", &[]);
    let put = |tls: Value| {
        let document = json!({"servers": ["https://127.0.0.1:1"], "tls": tls});
        let mut reply = agent().put(service.url("/v1/upstreams/app")).send_json(&document).unwrap();
        (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
    };
    let there = put(json!({"ca_file": "/etc/passwd"}));
    let not_there = put(json!({"ca_file": "/no/such/file"}));
    assert_eq!(there, not_there, "one answer for files that are there and that are not");
    assert!(there.0 == 422 && there.1.contains("/tls/ca_file"), "{there:?}");
    let certificates = Certificates::make();
    let authority = fs::read_to_string(certificates.authority()).unwrap();
    assert_eq!(put(json!({"ca": "no certificate"})).0, 422);
    let (status, said) = put(json!({ "ca": authority }));
    assert_eq!(status, 200, "{said}");
}

#[test]
fn each_request_is_counted_once_by_its_door_and_its_answer() {
    let file = "gateway.listener = [{ listen = \"127.0.0.1:0\" }]\n\
                policy = [{ name = \"a\", limit = 2, window_seconds = 600 }, { name = \"b\", limit = 9, window_seconds = 600 }]\n\
                [[route]]\nname = \"limited\"\npath = \"/limited\"\nrespond = { body = \"a\" }\npolicies = [\"a\", \"b\"]\n\
                [[route]]\nname = \"free\"\npath = \"/free\"\nrespond = { body = \"b\" }\n";
    let service = start(file, &[]);
    let get = |path: &str| {
        let address = format!("http://{}{path}", service.gateway[0]);
        agent().get(address).call().unwrap().status().as_u16()
    };
    assert_eq!([(); 3].map(|()| get("/limited")), [200, 200, 429]);
    assert_eq!(get("/free"), 200);
    let one = json!({"client_id": "u", "resource": "r"});
    agent().post(service.url("/api/v1/ratelimit")).send_json(&one).unwrap();
    let page = agent().get(service.url("/metrics")).call().unwrap().body_mut().read_to_string().unwrap();
    for (protocol, counts) in [("gateway", [2, 1, 1]), ("http", [1, 0, 0]), ("edge", [0, 0, 0])] {
        for (result, count) in ["allowed", "denied", "unmatched"].into_iter().zip(counts) {
            let series = format!(
                "tidegate_requests_decided_total{{protocol=\"{protocol}\",result=\"{result}\"}} {count}"
            );
            assert!(page.lines().any(|line| line == series), "{series}: {page}");
        }
    }
    for (route, count) in [("limited", 1), ("free", 0)] {
        let series = format!("tidegate_route_denied_requests_total{{route=\"{route}\"}} {count}");
        assert!(page.lines().any(|line| line == series), "{series}: {page}");
    }
}
