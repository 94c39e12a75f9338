//! Routes and upstreams through the admin API of the built binary: in force at once, audited, and never at the
//! cost of what is under way; and whose connection a proxy says it is.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use crate::support;
use crate::support::edge::metric;
use crate::support::{Tidegate, agent};
use serde_json::{Value, json};
use tidegate_net::clock::monotonic;
use tidegate_testkit::{Server, free_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PATIENCE: Duration = Duration::from_secs(60);
const LISTENER: &str = "[[gateway.listener]]\nlisten = \"127.0.0.1:0\"\n";

/// A stub with these further arguments, for as long as the second value lives.
fn backend(arguments: &[&str]) -> (SocketAddr, Server) {
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["stub", &address]).args(arguments);
    let server = Server::start(&mut command, "listening on");
    (address.parse().unwrap(), server)
}

fn start(file: &str, environment: &[(&str, &str)]) -> Tidegate {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    let environment = [&[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")], environment].concat();
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &environment)
}

/// Status, entity tag and document.
fn send(
    service: &Tidegate,
    method: &str,
    path: &str,
    tag: Option<&str>,
    body: Option<&Value>,
) -> (u16, String, Value) {
    let mut request = http::Request::builder().method(method).uri(service.url(path));
    if let Some(tag) = tag {
        request = request.header("if-match", tag);
    }
    let body = body.map(ToString::to_string).unwrap_or_default();
    let request = request.header("content-type", "application/json").body(body).unwrap();
    let mut reply = agent().run(request).unwrap();
    let tag = reply.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned()).unwrap_or_default();
    let text = reply.body_mut().read_to_string().unwrap();
    (reply.status().as_u16(), tag, serde_json::from_str(&text).unwrap_or_default())
}

fn proxied(service: &Tidegate, path: &str) -> u16 {
    agent().get(format!("http://{}{path}", service.gateway[0])).call().unwrap().status().as_u16()
}

#[test]
fn routes_and_upstreams_are_put_in_force_at_once_or_refused_with_their_mistakes() {
    let (address, _server) = backend(&[]);
    let service = start(LISTENER, &[]);
    assert_eq!(proxied(&service, "/"), 404);
    let route = json!({"upstream": "app"});
    let (status, _, problem) = send(&service, "PUT", "/v1/routes/app", None, Some(&route));
    assert_eq!((status, problem["errors"][0]["pointer"].as_str()), (422, Some("/upstream")), "{problem}");
    let upstream = json!({"servers": [address.to_string()]});
    let (status, tag, stored) = send(&service, "PUT", "/v1/upstreams/app", Some("\"0\""), Some(&upstream));
    assert_eq!((status, tag.as_str(), &stored["name"]), (200, "\"1\"", &json!("app")));
    assert_eq!(send(&service, "PUT", "/v1/routes/app", None, Some(&route)).0, 200);
    assert_eq!(proxied(&service, "/"), 200, "in force when it is answered");

    // Of two who change one version, the second is told.
    let slow = json!({"upstream": "app", "timeout_seconds": 9});
    assert_eq!(send(&service, "PUT", "/v1/routes/app", Some("\"2\""), Some(&slow)).1, "\"3\"");
    assert_eq!(send(&service, "PUT", "/v1/routes/app", Some("\"2\""), Some(&route)).0, 412);
    let (status, tag, document) = send(&service, "GET", "/v1/routes/app", None, None);
    assert_eq!((status, tag.as_str(), &document["timeout_seconds"]), (200, "\"3\"", &json!(9)));

    for (path, body, pointer) in [
        ("/v1/routes/again", json!({"upstream": "app"}), ""),
        (
            "/v1/routes/limited",
            json!({"path": "/limited", "upstream": "app", "policies": ["unknown"]}),
            "/policies/0",
        ),
        ("/v1/routes/named", json!({"name": "other", "upstream": "app"}), "/name"),
        ("/v1/routes/typo", json!({"path": "/typo", "upstrem": "app"}), "/upstrem"),
        ("/v1/upstreams/none", json!({"servers": []}), "/servers"),
    ] {
        let (status, _, problem) = send(&service, "PUT", path, None, Some(&body));
        let pointers: Vec<_> =
            problem["errors"].as_array().unwrap().iter().map(|it| it["pointer"].as_str()).collect();
        assert!(status == 422 && pointers.contains(&Some(pointer)), "{path}: {problem}");
    }
    let slots = json!({"algorithm": "concurrency", "limit": 3});
    assert_eq!(send(&service, "PUT", "/v1/policies/slots", None, Some(&slots)).0, 200);
    let held = json!({"path": "/held", "upstream": "app", "policies": ["slots"]});
    assert_eq!(send(&service, "PUT", "/v1/routes/held", None, Some(&held)).0, 200);
    assert_eq!(proxied(&service, "/held"), 200);
    let limited = json!({"path": "/limited", "upstream": "app", "policies": ["default"]});
    assert_eq!(send(&service, "PUT", "/v1/routes/limited", None, Some(&limited)).0, 200);
}

#[test]
fn routes_and_upstreams_are_listed_deleted_and_audited() {
    let (address, _server) = backend(&[]);
    let service = start(LISTENER, &[]);
    for (path, body) in [
        ("/v1/upstreams/app", json!({"servers": [address.to_string()]})),
        ("/v1/routes/app", json!({"upstream": "app"})),
        ("/v1/routes/limited", json!({"path": "/limited", "upstream": "app", "policies": ["default"]})),
    ] {
        assert_eq!(send(&service, "PUT", path, None, Some(&body)).0, 200, "{path}");
    }
    let (status, _, problem) = send(&service, "DELETE", "/v1/upstreams/app", None, None);
    assert_eq!(status, 422, "a route names it: {problem}");
    assert!(problem.to_string().contains("/route/app/upstream"), "{problem}");
    assert_eq!(proxied(&service, "/"), 200);
    let (_, _, listed) = send(&service, "GET", "/v1/routes", None, None);
    let names: Vec<_> =
        listed["documents"].as_array().unwrap().iter().map(|it| &it["document"]["name"]).collect();
    assert_eq!(names, ["app", "limited"]);
    assert_eq!(listed["documents"][0]["origin"], "stored");
    for path in ["/v1/routes/limited", "/v1/routes/app", "/v1/upstreams/app"] {
        assert_eq!(send(&service, "DELETE", path, None, None).0, 204, "{path}");
    }
    assert_eq!(send(&service, "DELETE", "/v1/routes/app", None, None).0, 404);
    assert_eq!(proxied(&service, "/"), 404);
    let (_, _, audit) = send(&service, "GET", "/v1/audit", None, None);
    let rows = audit.as_array().unwrap().iter();
    let rows: Vec<String> = rows
        .map(|row| [&row["action"], &row["kind"], &row["name"]].map(|it| it.as_str().unwrap()).join(" "))
        .collect();
    assert_eq!(
        rows,
        [
            "put upstream app",
            "put route app",
            "put route limited",
            "delete route limited",
            "delete route app",
            "delete upstream app"
        ]
    );
}

#[test]
fn a_stored_route_hides_the_files_and_survives_a_restart() {
    let (address, _server) = backend(&[]);
    let file = format!(
        "{LISTENER}[[upstream]]\nname = \"app\"\nservers = [\"{address}\"]\n[[route]]\nname = \"app\"\nupstream = \"app\"\n"
    );
    let service = start(&file, &[]);
    assert_eq!(send(&service, "DELETE", "/v1/routes/app", None, None).0, 409, "it stands in the file");
    let gone = json!({"respond": {"status": 410}});
    assert_eq!(send(&service, "PUT", "/v1/routes/app", None, Some(&gone)).0, 200);
    assert_eq!(proxied(&service, "/"), 410);
    service.signal("TERM");
    let (data, _) = service.wait_keeping_data();
    let service =
        Tidegate::start_in(data, &["--config", "tidegate.toml"], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
    assert_eq!(proxied(&service, "/"), 410);
    let (_, _, listed) = send(&service, "GET", "/v1/routes", None, None);
    assert_eq!(listed["documents"][0]["origin"], "stored");
    assert_eq!(send(&service, "DELETE", "/v1/routes/app", None, None).0, 204);
    assert_eq!(proxied(&service, "/"), 200, "the file's is in force again");
}

#[test]
fn a_file_that_a_stored_route_needs_is_refused_and_a_start_without_it_sets_the_route_aside() {
    let (address, _server) = backend(&[]);
    let upstream = format!("[[upstream]]\nname = \"app\"\nservers = [\"{address}\"]\n");
    let policy = "[[policy]]\nname = \"few\"\nlimit = 9\nwindow_seconds = 60\n";
    let service = start(&format!("{LISTENER}{upstream}{policy}"), &[]);
    let route = json!({"upstream": "app", "policies": ["few"]});
    assert_eq!(send(&service, "PUT", "/v1/routes/app", None, Some(&route)).0, 200);
    fs::write(service.path().join("tidegate.toml"), LISTENER).unwrap();
    service.signal("HUP");
    let refused = || metric(&service, "tidegate_config_reloads_total{result=\"refused\"}");
    let begun = monotonic();
    while refused() == 0 {
        assert!(begun.elapsed() < PATIENCE, "the file is not refused");
    }
    assert_eq!(proxied(&service, "/"), 200);
    service.signal("TERM");
    let (data, ended) = service.wait_keeping_data();
    assert!(ended.output.contains("route.app.upstream"), "{}", ended.output);
    // Without the policy the route is not served, unless that is asked for; without the upstream never. All is said.
    let other = format!("{LISTENER}{upstream}[[policy]]\nname = \"other\"\nlimit = 1\nwindow_seconds = 60\n");
    for (file, answer, status, place) in [
        (&other, "deny", 503, "/route/app/policies/0"),
        (&other, "allow", 200, "/route/app/policies/0"),
        (&format!("{LISTENER}{policy}"), "deny", 404, "/route/app/upstream"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(data.path().join("tidegate-data")).unwrap() {
            let entry = entry.unwrap();
            if entry.path().is_dir() {
                // The intake's log is not what this is about.
                continue;
            }
            fs::create_dir_all(folder.path().join("tidegate-data")).unwrap();
            fs::copy(entry.path(), folder.path().join("tidegate-data").join(entry.file_name())).unwrap();
        }
        fs::write(folder.path().join("tidegate.toml"), file).unwrap();
        let checked = support::binary().args(["check", "tidegate.toml"]).current_dir(folder.path()).output();
        let checked = String::from_utf8(checked.unwrap().stdout).unwrap();
        assert!(checked.contains("warning: ") && checked.contains("\"app\""), "{checked}");
        let service = Tidegate::start_in(
            folder,
            &["--config", "tidegate.toml"],
            &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0"), ("TIDEGATE_GATEWAY_ON_MISSING_POLICY", answer)],
        );
        assert_eq!(proxied(&service, "/"), status, "{place}");
        let (_, _, aside) = send(&service, "GET", "/v1/set-aside", None, None);
        let aside = &aside["set_aside"][0];
        assert_eq!((&aside["kind"], &aside["name"]), (&json!("route"), &json!("app")));
        assert!(aside["mistakes"][0].as_str().unwrap().starts_with(place), "{aside}");
        let ready = agent().get(service.url("/readyz")).call().unwrap().body_mut().read_to_string().unwrap();
        assert!(ready.contains("set aside"), "{ready}");
    }
}

#[test]
fn fault_43_a_proxy_that_is_named_states_whose_connection_it_is_and_no_other_does() {
    let (address, _server) = backend(&[]);
    let file = |from: &str| {
        format!(
            "[[gateway.listener]]\nlisten = \"127.0.0.1:0\"\nproxy_protocol_from = [\"{from}\"]\n\
             [[policy]]\nname = \"once\"\nlimit = 1\nwindow_seconds = 3600\n\
             [[upstream]]\nname = \"app\"\nservers = [\"{}\"]\n\
             [[route]]\nname = \"app\"\nupstream = \"app\"\npolicies = [\"once\"]\n",
            address
        )
    };
    let ask = |service: &Tidegate, header: &str| {
        let mut stream = TcpStream::connect(service.gateway[0]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        // A peer that closes at once may have done so before this is written.
        drop(stream.write_all(format!("{header}{request}").as_bytes()));
        let mut reply = Vec::new();
        drop(stream.read_to_end(&mut reply));
        String::from_utf8(reply).unwrap().split(' ').nth(1).unwrap_or_default().to_owned()
    };
    let service = start(&file("127.0.0.0/8"), &[]);
    let from = |client: &str| format!("PROXY TCP4 {client} 10.0.0.1 4711 80\r\n");
    assert_eq!(ask(&service, &from("203.0.113.7")), "200");
    assert_eq!(ask(&service, &from("203.0.113.7")), "429");
    assert_eq!(ask(&service, &from("203.0.113.8")), "200");
    assert_eq!(ask(&service, ""), "", "a connection without the header is closed");
    let stranger = start(&file("192.0.2.1"), &[]);
    assert_eq!(ask(&stranger, &from("203.0.113.9")), "", "a peer that is not named is closed");
}

/// A request whose reply has begun.
fn stream(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /stream HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    stream
}

/// A server of WebSocket connections that sends back what it gets, for as long as this process lives.
fn echo() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let agreed =
                        "HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
                    stream.write_all(agreed.as_bytes()).await.unwrap();
                    let (mut from, mut to) = stream.split();
                    drop(tokio::io::copy(&mut from, &mut to).await);
                });
            }
        });
    });
    address
}

/// A connection that goes on as WebSocket's.
fn websocket(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(b"GET /ws HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n")
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    stream
}

/// Whether what is said comes back.
fn comes_back(stream: &mut TcpStream, text: &str) -> bool {
    let mut back = vec![0; text.len()];
    stream.write_all(text.as_bytes()).is_ok()
        && stream.read_exact(&mut back).is_ok()
        && back == text.as_bytes()
}

#[test]
fn fault_64_a_thousand_streams_and_websockets_live_on_over_a_hundred_changes() {
    const STREAMS: usize = 1_000;
    // Several for each of the streams that this process holds.
    drop(tidegate_tester::preflight::raise_descriptors());
    // A piece a second for longer than this test takes.
    let (address, _server) =
        backend(&["--body-bytes", "100000", "--body-pieces", "10000", "--body-gap-ms", "1000"]);
    let (other, _other) = backend(&[]);
    let websockets = echo();
    let upstreams = format!(
        "[[upstream]]\nname = \"ws\"\nservers = [\"{websockets}\"]\n[[route]]\nname = \"ws\"\npath = \"/ws\"\nupstream = \"ws\"\n\
         [[upstream]]\nname = \"streams\"\nservers = [\"{address}\"]\n[[route]]\nname = \"streams\"\npath = \"/stream\"\nupstream = \"streams\"\n"
    );
    let file = |round: usize| {
        format!(
            "{LISTENER}{upstreams}[[upstream]]\nname = \"other\"\nservers = [\"{other}\"]\nmax_requests = {}\n\
             [[route]]\nname = \"mark\"\npath = \"/mark{round}\"\nrespond = {{ status = 204 }}\n\
             [[route]]\nname = \"other\"\nupstream = \"other\"\n",
            1_000 + round
        )
    };
    let service = start(&file(0), &[]);
    let mut streams: Vec<TcpStream> = (0..STREAMS).map(|_| stream(service.gateway[0])).collect();
    let mut buffer = [0; 4_096];
    for stream in &mut streams {
        assert!(stream.read(&mut buffer).unwrap() > 0);
        assert!(buffer.starts_with(b"HTTP/1.1 200 "));
    }
    let mut sockets: Vec<TcpStream> = (0..STREAMS).map(|_| websocket(service.gateway[0])).collect();
    assert!(sockets.iter_mut().all(|socket| comes_back(socket, "before")));
    for round in 1..=100 {
        if round % 2 == 0 {
            let body = json!({"path": format!("/mark{round}"), "respond": {"status": 204}});
            assert_eq!(send(&service, "PUT", &format!("/v1/routes/mark{round}"), None, Some(&body)).0, 200);
        } else {
            fs::write(service.path().join("tidegate.toml"), file(round)).unwrap();
            service.signal("HUP");
        }
        let begun = monotonic();
        while proxied(&service, &format!("/mark{round}")) != 204 {
            assert!(begun.elapsed() < PATIENCE, "change {round} is not in force");
        }
        assert_eq!(proxied(&service, "/"), 200);
    }
    for (number, socket) in sockets.iter_mut().enumerate() {
        assert!(comes_back(socket, &format!("after {number}")), "WebSocket {number} was closed");
    }
    // What has come so far of all of them, and then one more piece of each.
    for stream in &mut streams {
        stream.set_nonblocking(true).unwrap();
        while stream.read(&mut buffer).is_ok_and(|length| length > 0) {}
        stream.set_nonblocking(false).unwrap();
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        assert!(stream.read(&mut buffer).unwrap() > 0, "stream {number} was closed");
    }
}
