//! What HTTP asks of whoever passes messages on (RFC 9110): `Via`, `TE`, `Expect`, and one form of a host.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::{Arc, mpsc};

use crate::support::{Backend, PATIENCE, Reaction, TestGateway, config, head, reply, server, status, text};
use http::Request;
use serde_json::{Value, json};
use tidegate_gateway::limits::{Denial, LimitedRequest, Limits, LimitsAnswer, Ruling, Unlimited};
use tidegate_gateway::service::GatewaySettings;

fn gateway(backend: &Backend, routes: Value) -> TestGateway {
    let upstreams = json!([{"name": "app", "servers": [backend.url()]}]);
    TestGateway::start(Unlimited, GatewaySettings::default(), &config(upstreams, routes))
}

#[test]
fn via_names_the_protocol_in_which_a_request_came() {
    let backend = Backend::named("app");
    let gateway = gateway(&backend, json!([{"name": "all", "upstream": "app"}]));
    gateway.send("GET /one HTTP/1.0\r\nhost: a\r\n\r\n");
    gateway.get("/two");
    let url = format!("http://{}/three", gateway.address);
    let asked =
        Command::new("curl").args(["-sS", "--max-time", "60", "--http2-prior-knowledge", &url]).output();
    assert_eq!(asked.unwrap().stdout, b"app");
    let got = backend.got();
    let via: Vec<Option<&str>> = got.iter().map(|got| got.field("via")).collect();
    assert_eq!(via, [Some("1.0 tidegate"), Some("1.1 tidegate"), Some("2.0 tidegate")]);
}

/// Whether the body is at hand decides who writes the request.
#[test]
fn te_is_named_as_an_option_of_the_connection_to_a_server() {
    let backend = Backend::named("app");
    let gateway = gateway(&backend, json!([{"name": "all", "upstream": "app"}]));
    let fields = "host: a\r\nte: trailers, deflate\r\nconnection: te, close\r\n";
    gateway.send(&format!("GET / HTTP/1.1\r\n{fields}\r\n"));
    let mut client = gateway.connect();
    write!(client, "POST / HTTP/1.1\r\n{fields}transfer-encoding: chunked\r\n\r\n").unwrap();
    client.write_all(b"3\r\nabc\r\n0\r\n\r\n").unwrap();
    assert!(head(&mut BufReader::new(client)).starts_with("HTTP/1.1 200 "));
    gateway.get("/");
    let told: Vec<(Option<String>, Option<String>)> = backend
        .got()
        .iter()
        .map(|got| (got.field("te").map(str::to_owned), got.field("connection").map(str::to_owned)))
        .collect();
    let with = (Some("trailers".to_owned()), Some("te".to_owned()));
    assert_eq!(told, [with.clone(), with, (None, None)]);
}

/// Limits that let nothing through.
#[derive(Clone, Debug)]
struct None_;

impl<'r> Limits<LimitedRequest<'r>> for None_ {
    fn charge<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        _request: &'a LimitedRequest<'r>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async move {
            let policies = policies.iter().map(ToString::to_string).collect();
            Ruling { denial: Some(Denial::Quota { policies }), ..Ruling::default() }
        })
    }
}

const EXPECTS: &str = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n";

#[test]
fn a_client_that_waits_is_told_to_go_on_where_its_body_is_wanted() {
    let backend = Backend::start(|got| reply(200, &[], &text(got)));
    let gateway = gateway(&backend, json!([{"name": "all", "upstream": "app", "max_body_bytes": 10}]));
    let mut client = BufReader::new(gateway.connect());
    client.get_ref().write_all(EXPECTS.as_bytes()).unwrap();
    assert_eq!(head(&mut client), "HTTP/1.1 100 Continue\r\n\r\n", "nothing of the body has been sent");
    client.get_ref().write_all(b"hello").unwrap();
    assert!(head(&mut client).starts_with("HTTP/1.1 200 "));
    let mut body = [0; 5];
    client.read_exact(&mut body).unwrap();
    assert_eq!(&body, b"hello");
    // A server that does not know of expectations is waited for as long as a client would.
    assert_eq!(backend.got()[0].field("expect"), Some("100-continue"));
    // curl would wait for a minute, and has less time than that.
    let url = format!("http://{}/", gateway.address);
    let arguments =
        ["-sS", "--max-time", "50", "--expect100-timeout", "60", "-H", "expect: 100-continue", "-d", "world"];
    let asked = Command::new("curl").args(arguments).arg(&url).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "world", "{asked:?}");
}

/// A gateway in front of a server that gets a head, asks for the body if `asks`, and answers with this.
fn before_one_that(asks: bool, answer: &'static str) -> (TestGateway, mpsc::Receiver<String>) {
    let (tell, told) = mpsc::sync_channel(8);
    let address = server(move |mut reader| {
        tell.send(head(&mut reader)).unwrap();
        let mut stream = reader.get_ref();
        if asks {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
            let mut body = [0; 5];
            reader.read_exact(&mut body).unwrap();
            tell.send(String::from_utf8_lossy(&body).into_owned()).unwrap();
        }
        reader.get_ref().write_all(answer.as_bytes()).unwrap();
        // Until the gateway closes, so that nothing is reset: the rest of the body, if it is sent after all.
        let mut rest = Vec::new();
        drop(reader.read_to_end(&mut rest));
        tell.send(format!("and {} bytes", rest.len())).unwrap_or_default();
    });
    let upstreams = json!([{"name": "app", "servers": [format!("http://{address}")]}]);
    let config = config(upstreams, json!([{"name": "all", "upstream": "app"}]));
    (TestGateway::start(Unlimited, GatewaySettings::default(), &config), told)
}

const REFUSES: &str = "HTTP/1.1 401 No\r\ncontent-length: 2\r\n\r\nno";

#[test]
fn a_server_that_refuses_a_request_by_its_head_never_sees_its_body() {
    let (gateway, told) = before_one_that(false, REFUSES);
    let mut client = BufReader::new(gateway.connect());
    client.get_ref().write_all(EXPECTS.as_bytes()).unwrap();
    let reply = head(&mut client);
    assert!(reply.starts_with("HTTP/1.1 401 "), "the client is not asked for its body: {reply}");
    assert!(reply.contains("\r\nconnection: close\r\n"), "{reply}");
    assert!(told.recv_timeout(PATIENCE).unwrap().contains("expect: 100-continue\r\n"));
    // The gateway sends the server no body, and closes that connection.
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "and 0 bytes");
    // Nothing follows on a connection whose next bytes may be the body.
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!(String::from_utf8_lossy(&rest), "no");
}

#[test]
fn a_client_that_waits_is_asked_for_its_body_when_its_server_asks() {
    let (gateway, told) = before_one_that(true, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let mut client = BufReader::new(gateway.connect());
    client.get_ref().write_all(EXPECTS.as_bytes()).unwrap();
    assert_eq!(head(&mut client), "HTTP/1.1 100 Continue\r\n\r\n");
    assert!(told.recv_timeout(PATIENCE).unwrap().contains("expect: 100-continue\r\n"));
    client.get_ref().write_all(b"hello").unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "hello");
    let reply = head(&mut client);
    assert!(reply.starts_with("HTTP/1.1 200 ") && !reply.contains("\r\nconnection:"), "{reply}");
}

/// A server may say that it refuses a request while it still reads the body that it has asked for.
#[test]
fn a_body_that_was_asked_for_is_passed_on_to_its_end_whatever_the_server_answers() {
    const BODY_BYTES: usize = 1 << 20;
    let address = server(|mut reader| {
        head(&mut reader);
        let mut stream = reader.get_ref();
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        let mut first = [0];
        reader.read_exact(&mut first).unwrap();
        reader.get_ref().write_all(b"HTTP/1.1 400 No\r\ncontent-length: 4\r\n\r\n").unwrap();
        let mut rest = vec![0; BODY_BYTES - 1];
        reader.read_exact(&mut rest).unwrap();
        reader.get_ref().write_all(b"read").unwrap();
    });
    let upstreams = json!([{"name": "app", "servers": [format!("http://{address}")]}]);
    let config = config(upstreams, json!([{"name": "all", "upstream": "app"}]));
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    let mut client = BufReader::new(gateway.connect());
    let expects = EXPECTS.replace("content-length: 5", &format!("content-length: {BODY_BYTES}"));
    client.get_ref().write_all(expects.as_bytes()).unwrap();
    assert_eq!(head(&mut client), "HTTP/1.1 100 Continue\r\n\r\n");
    // The first byte alone, so that the reply comes while the rest is under way.
    client.get_ref().write_all(b"x").unwrap();
    assert!(head(&mut client).starts_with("HTTP/1.1 400 "));
    client.get_ref().write_all(&vec![b'x'; BODY_BYTES - 1]).unwrap();
    let mut body = [0; 4];
    client.read_exact(&mut body).unwrap();
    assert_eq!(&body, b"read");
}

#[test]
fn curl_hears_an_early_refusal_over_each_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("large");
    std::fs::write(&file, vec![b'x'; 8 << 20]).unwrap();
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for expect in ["expect:", "expect: 100-continue"] {
            let (gateway, _told) = before_one_that(false, REFUSES);
            let mut curl = Command::new("curl");
            curl.args(["-sS", "--max-time", "50", version, "-H", expect, "-w", " %{http_code}", "-T"]);
            let asked = curl.arg(&file).arg(format!("http://{}/", gateway.address)).output().unwrap();
            assert!(asked.status.success(), "{version} {expect}: {asked:?}");
            assert_eq!(String::from_utf8_lossy(&asked.stdout), "no 401", "{version} {expect}: {asked:?}");
        }
    }
}

#[test]
fn a_client_that_waits_is_refused_before_it_sends_its_body() {
    let backend = Backend::named("app");
    let small = gateway(&backend, json!([{"name": "all", "upstream": "app", "max_body_bytes": 3}]));
    let upstreams = json!([{"name": "app", "servers": [backend.url()]}]);
    let routes = json!([{"name": "all", "upstream": "app", "policies": ["per-client"]}]);
    let limited = TestGateway::start(None_, GatewaySettings::default(), &config(upstreams, routes));
    let first_line = |mut client: BufReader<TcpStream>| {
        client.get_ref().write_all(EXPECTS.as_bytes()).unwrap();
        let reply = head(&mut client);
        // A client that goes on behind it on the same connection would not be answered.
        assert!(reply.contains("\r\nconnection: close\r\n"), "{reply}");
        reply[..12].to_owned()
    };
    assert_eq!(first_line(BufReader::new(small.connect())), "HTTP/1.1 413");
    assert_eq!(first_line(BufReader::new(limited.connect())), "HTTP/1.1 429");
    assert!(backend.got().is_empty());
}

#[test]
fn what_is_asked_about_the_gateway_as_a_whole_reaches_no_server() {
    let backend = Backend::named("app");
    let upstreams = json!([{"name": "app", "servers": [backend.url()]}]);
    let routes = json!([{"name": "all", "upstream": "app", "policies": ["per-client"]}]);
    let gateway = TestGateway::start(None_, GatewaySettings::default(), &config(upstreams, routes));
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let url = format!("http://{}", gateway.address);
        let asked = |target: &str, method: &str| {
            let arguments =
                ["-sS", "--max-time", "50", version, "-i", "-X", method, "--request-target", target];
            let asked = Command::new("curl").args(arguments).arg(&url).output().unwrap();
            String::from_utf8(asked.stdout).unwrap().to_ascii_lowercase()
        };
        let about_it = asked("*", "OPTIONS");
        let (status, fields) = about_it.split_once(' ').unwrap();
        assert!(status.starts_with("http/") && fields.starts_with("204"), "{version}: {about_it}");
        assert!(about_it.contains("allow: get, head, post, put, patch, delete, options\r\n"), "{about_it}");
        // Limits that let nothing through see every other request.
        assert!(asked("/", "OPTIONS").contains(" 429"), "{version}");
        assert!(asked("*", "GET").contains(" 400"), "{version}");
    }
    assert!(backend.got().is_empty());
}

#[test]
fn a_host_has_one_form_in_routes_and_in_requests() {
    let backend = Backend::named("app");
    let routes = json!([
        {"name": "dotted", "host": "A.example.", "respond": {"status": 201}},
        {"name": "below", "host": "*.b.example.", "respond": {"status": 202}},
        {"name": "address", "host": "[2001:DB8:0:0::1]", "respond": {"status": 203}}
    ]);
    let gateway = gateway(&backend, routes);
    for (host, expected) in [
        ("a.example", 201),
        ("a.EXAMPLE.:80", 201),
        ("x.b.example", 202),
        ("x.b.example.", 202),
        ("[2001:db8::1]:80", 203),
        ("[2001:0db8::0:1]", 203),
        ("[2001:db8::2]", 404),
    ] {
        let got = gateway.send(&format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"));
        assert_eq!(status(&got), expected, "{host}");
    }
}

/// What curl says of a reply over HTTP/2: its exit code, and what it printed.
fn over_http2(gateway: &TestGateway, path: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let url = format!("http://{}{path}", gateway.address);
    let curl = ["-sS", "--max-time", "60", "--http2-prior-knowledge", "-i"];
    let asked = Command::new("curl").args(curl).args(arguments).arg(&url).output().unwrap();
    (asked.status.code(), String::from_utf8_lossy(&asked.stdout).to_ascii_lowercase())
}

/// A client of HTTP/2 takes bytes that may not be there for a mistake of the protocol, and has no reply at all.
#[test]
fn own_replies_over_http2_have_no_bytes_to_head_and_where_a_status_has_none() {
    let backend = Backend::start(|_| Reaction::Bytes(b"no HTTP\r\n\r\n".to_vec()));
    let routes = json!([
        {"name": "own", "path": "/own", "respond": {"status": 200, "body": "hello"}},
        {"name": "none", "path": "/204", "respond": {"status": 204, "body": "hello"}},
        {"name": "same", "path": "/304", "respond": {"status": 304, "body": "hello"}},
        {"name": "out", "path": "/out", "upstream": "app", "maintenance": {"status": 204, "body": "hello"}},
        {"name": "app", "path": "/app", "upstream": "app"},
        {"name": "limited", "path": "/limited", "upstream": "app", "policies": ["per-client"]}
    ]);
    let upstreams = json!([{"name": "app", "servers": [backend.url()]}]);
    let gateway = TestGateway::start(None_, GatewaySettings::default(), &config(upstreams, routes));
    for (path, status) in [
        ("/own", 200),
        ("/204", 204),
        ("/304", 304),
        ("/out", 204),
        ("/app", 502),
        ("/limited", 429),
        ("/other", 404),
    ] {
        for method in [&["-I"][..], &[]] {
            let (code, told) = over_http2(&gateway, path, method);
            let is_whole = code == Some(0) && told.starts_with(&format!("http/2 {status}"));
            assert!(is_whole, "{method:?} {path}: {code:?} {told}");
        }
    }
    let (_, told) = over_http2(&gateway, "/own", &["-I"]);
    assert!(told.contains("content-length: 5\r\n") && told.ends_with("\r\n\r\n"), "{told}");
}

/// What a client of HTTP/2 hears of the reply to a GET: its status and type, its body, and whether it broke off.
async fn heard_of(address: SocketAddr, path: &str) -> (u16, String, Vec<u8>, bool) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut requests, connection) = h2::client::handshake(stream).await.unwrap();
    // How it ends is what the request is told.
    tokio::spawn(async move { drop(connection.await) });
    let request = Request::get(format!("http://a.example{path}")).body(()).unwrap();
    let (reply, _) = requests.send_request(request, true).unwrap();
    let (head, mut body) = reply.await.unwrap().into_parts();
    let mut came = Vec::new();
    loop {
        match body.data().await {
            Some(Ok(bytes)) => came.extend_from_slice(&bytes),
            end => {
                let kind = head.headers["content-type"].to_str().unwrap().to_owned();
                return (head.status.as_u16(), kind, came, end.is_some());
            }
        }
    }
}

#[tokio::test]
async fn a_client_of_http2_is_told_what_came_of_a_reply_that_breaks_off() {
    let head = "HTTP/1.1 500 Broken\r\ncontent-type: text/plain\r\ncontent-length: 500\r\n\r\n";
    let backend = Backend::start(move |got| {
        let part = if got.line.contains("/part") { "partial" } else { "" };
        Reaction::Last(format!("{head}{part}").into_bytes())
    });
    let gateway = gateway(&backend, json!([{"name": "all", "upstream": "app"}]));
    for (path, part) in [("/part", "partial"), ("/head", "")] {
        let (status, kind, body, is_cut) = heard_of(gateway.address, path).await;
        assert_eq!((status, &*kind, &*body, is_cut), (500, "text/plain", part.as_bytes(), true), "{path}");
    }
}

/// As a server does that knows its clients by NTLM: who has proved it once is known by the connection from then on.
fn knows_connections(mut stream: BufReader<TcpStream>) {
    let mut user = String::new();
    let mut line = String::new();
    while stream.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        if let Some((_, name)) = line.trim_end().split_once(" proof of ") {
            name.clone_into(&mut user);
        } else if line == "\r\n" {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", user.len());
            if stream.get_ref().write_all(format!("{head}{user}").as_bytes()).is_err() {
                return;
            }
        }
        line.clear();
    }
}

#[test]
fn nobody_is_sent_on_a_connection_that_a_server_may_know_as_anothers() {
    let address = server(knows_connections);
    let upstreams = json!([{"name": "app", "servers": [format!("http://{address}")]}]);
    let routes = json!([{"name": "all", "upstream": "app"}]);
    let config = config(upstreams, routes);
    // One core, so that one pool would keep what anybody has used.
    let gateway = TestGateway::start_on(1, Unlimited, GatewaySettings::default(), &config, |gateway| gateway);
    let ask = |fields: &str| {
        text(&gateway.send(&format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}connection: close\r\n\r\n")))
    };
    for scheme in ["NTLM", "ntlm", "Negotiate", "Negotiate\t"] {
        assert_eq!(ask(&format!("authorization: {scheme} proof of alice\r\n")), "alice");
        assert_eq!(ask(""), "", "{scheme}: whoever comes next is nobody to the server");
    }
    assert_eq!(ask("authorization: Basic proof of alice\r\n"), "alice");
    assert_eq!(ask(""), "alice", "this server tells who is sent on a connection that was used before");
}
