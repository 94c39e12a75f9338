//! What reaches an upstream, and what comes back, on real sockets.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;

use crate::support::{Backend, Reaction, TestGateway, config, reply, status, text};
use serde_json::json;
use tidegate_gateway::limits::{Denial, LimitedRequest, Limits, LimitsAnswer, Ruling, Unlimited};
use tidegate_gateway::service::GatewaySettings;

fn plain(backends: &[&Backend]) -> TestGateway {
    let servers: Vec<String> = backends.iter().map(|backend| backend.url()).collect();
    let config = config(
        json!([{"name": "app", "servers": servers, "balance": "round_robin"}]),
        json!([{"name": "all", "upstream": "app"}]),
    );
    TestGateway::start(Unlimited, GatewaySettings::default(), &config)
}

#[test]
fn a_request_and_its_reply_pass_and_the_connection_is_used_again() {
    let backend = Backend::start(|got| reply(201, &["x-mine: 1", "connection: keep-alive"], &got.line));
    let gateway = plain(&[&backend]);
    let mut client = gateway.connect();
    let mut reader = std::io::BufReader::new(client.try_clone().unwrap());
    for _ in 0..50 {
        client
            .write_all(b"POST /a/b?c=d HTTP/1.1\r\nhost: Shop.example\r\ncontent-length: 3\r\n\r\nabc")
            .unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let mut byte = [0];
            reader.read_exact(&mut byte).unwrap();
            head.push(byte[0].into());
        }
        assert!(head.starts_with("HTTP/1.1 201 ") && head.contains("x-mine: 1\r\n"), "{head}");
        assert_eq!(head.matches("date: ").count(), 1, "{head}");
        let mut body = [0; 22];
        reader.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"POST /a/b?c=d HTTP/1.1");
    }
    let got = backend.got();
    assert!(got.iter().all(|got| got.body == b"abc" && got.field("host") == Some("Shop.example")));
    assert_eq!(got[0].field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(got[0].field("via"), Some("1.1 tidegate"));
    assert!(got[0].field("traceparent").is_some() && got[0].field("x-request-id").is_some());
    assert_eq!(backend.connections(), 1, "of 50 requests, 49 found a connection that was there");
}

#[test]
fn bodies_pass_in_both_directions_without_being_gathered() {
    let backend = Backend::start(|got| {
        let mut bytes = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for piece in got.body.chunks(70_000) {
            bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            bytes.extend_from_slice(piece);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        Reaction::Bytes(bytes)
    });
    let gateway = plain(&[&backend]);
    let body: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let mut client = gateway.connect();
    let head =
        format!("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let mut writer = client.try_clone().unwrap();
    let sent = body.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(head.as_bytes()).unwrap();
        writer.write_all(&sent).unwrap();
    });
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    let start = received.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let mut whole = Vec::new();
    let mut rest = &received[start..];
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            break;
        }
        whole.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 4 + size..];
    }
    assert!(whole == body, "{} of {} bytes", whole.len(), body.len());
}

#[test]
fn a_killed_server_fails_no_request() {
    let (mut first, second) = (Backend::named("first"), Backend::named("second"));
    let gateway = plain(&[&first, &second]);
    let names: Vec<String> = (0..4).map(|_| text(&gateway.get("/"))).collect();
    assert!(names.contains(&"first".to_owned()) && names.contains(&"second".to_owned()), "{names:?}");
    first.stop();
    for _ in 0..50 {
        let reply = gateway.get("/");
        assert_eq!((status(&reply), text(&reply)), (200, "second".to_owned()));
    }
}

#[test]
fn what_is_not_safe_to_repeat_is_sent_once() {
    let cut = |count: &Arc<AtomicUsize>| {
        let count = Arc::clone(count);
        Backend::start(move |_| {
            count.fetch_add(1, SeqCst);
            Reaction::Last(Vec::new())
        })
    };
    let count = Arc::new(AtomicUsize::new(0));
    let (first, second) = (cut(&count), cut(&count));
    let gateway = plain(&[&first, &second]);
    let reply = gateway.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx");
    assert_eq!((status(&reply), count.load(SeqCst)), (502, 1));
    assert_eq!(status(&gateway.get("/")), 502);
    assert_eq!(count.load(SeqCst), 3, "a GET is tried at both servers");
}

#[test]
fn an_open_breaker_answers_at_once_and_recovers() {
    let healthy = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let asked = Arc::new(AtomicUsize::new(0));
    let backend = {
        let (healthy, asked) = (Arc::clone(&healthy), Arc::clone(&asked));
        Backend::start(move |_| {
            asked.fetch_add(1, SeqCst);
            reply(if healthy.load(SeqCst) { 200 } else { 500 }, &[], "")
        })
    };
    let breaker = json!({"calls": 10, "minimum_calls": 5, "open_seconds": 0.2, "trials": 1});
    let config = config(
        json!([{"name": "app", "servers": [backend.url()], "breaker": breaker, "eject_after": 0}]),
        json!([{"name": "all", "upstream": "app"}]),
    );
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    let mut statuses = Vec::new();
    while statuses.last() != Some(&503) {
        statuses.push(status(&gateway.get("/")));
        assert!(statuses.len() < 100, "{statuses:?}");
    }
    assert!(statuses[..statuses.len() - 1].iter().all(|status| *status == 500), "{statuses:?}");
    healthy.store(true, SeqCst);
    let mut refused = 0;
    loop {
        let reply = gateway.get("/");
        if status(&reply) == 200 {
            break;
        }
        assert_eq!(status(&reply), 503);
        assert_eq!(reply.field("retry-after"), Some("1"));
        assert!(text(&reply).contains("temporary-reduced-capacity"), "{}", text(&reply));
        refused += 1;
        assert!(refused < 1_000_000);
    }
    assert!(asked.load(SeqCst) >= 6);
}

/// Denies what asks for `/denied`.
#[derive(Debug)]
pub(crate) struct Strict;

impl<'r> Limits<LimitedRequest<'r>> for Strict {
    fn charge<'a>(
        &'a self,
        policies: &'a [Arc<str>],
        request: &'a LimitedRequest<'r>,
    ) -> LimitsAnswer<'a, Ruling> {
        Box::pin(async move {
            let mut ruling = Ruling::default();
            ruling.fields.insert("ratelimit", "\"per-client\";r=0;t=9".parse().unwrap());
            if request.path == "/denied" {
                let policies = policies.iter().map(ToString::to_string).collect();
                ruling.denial = Some(Denial::Quota { policies });
            }
            ruling
        })
    }
}

#[test]
fn a_denied_request_reaches_no_server_and_is_told_why() {
    let backend = Backend::named("app");
    let config = config(
        json!([{"name": "app", "servers": [backend.url()]}]),
        json!([
            {"name": "limited", "path": "/denied", "upstream": "app", "policies": ["per-client"]},
            {"name": "rest", "upstream": "app"}
        ]),
    );
    let gateway = TestGateway::start(Strict, GatewaySettings::default(), &config);
    let denied = gateway.get("/x/..//denied/");
    assert_eq!(status(&denied), 429);
    assert_eq!(denied.field("ratelimit"), Some("\"per-client\";r=0;t=9"));
    assert!(text(&denied).contains("quota-exceeded") && text(&denied).contains("per-client"));
    let allowed = gateway.get("/free");
    assert_eq!(
        (status(&allowed), allowed.field("ratelimit")),
        (200, None),
        "a route without policies is not limited"
    );
    assert_eq!(backend.got().len(), 1);
}

#[test]
fn routes_edit_redirect_and_answer_and_the_rest_is_not_found() {
    let backend = Backend::start(|got| reply(200, &["server: secret"], &got.line));
    let config = config(
        json!([{"name": "app", "servers": [backend.url()]}]),
        json!([
            {"name": "api", "host": "shop.example", "path": "/api/*", "upstream": "app", "strip_prefix": "/api",
             "request_fields": {"set": {"x-route": "api"}}, "response_fields": {"remove": ["server"]}},
            {"name": "old", "path": "/old", "redirect": {"status": 308, "location": "/new"}},
            {"name": "down", "path": "/down", "respond": {"status": 503, "body": "maintenance"}}
        ]),
    );
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    let api = gateway.get("/api/users?x=1");
    assert_eq!((text(&api).as_str(), api.field("server")), ("GET /users?x=1 HTTP/1.1", None));
    assert_eq!(backend.got()[0].field("x-route"), Some("api"));
    let old = gateway.get("/old");
    assert_eq!((status(&old), old.field("location")), (308, Some("/new")));
    assert_eq!((status(&gateway.get("/down")), text(&gateway.get("/down"))), (503, "maintenance".to_owned()));
    assert_eq!(status(&gateway.get("/nowhere")), 404);
    assert_eq!(status(&gateway.get("/down/%00")), 400);
}

#[test]
fn a_server_that_is_silent_is_left_for_the_next_and_its_reply_timed() {
    let (silent, second) = (Backend::start(|_| Reaction::Silence), Backend::named("second"));
    let servers = json!([silent.url(), second.url()]);
    let config = config(
        json!([{"name": "app", "servers": servers, "balance": "round_robin"}]),
        json!([{"name": "all", "upstream": "app", "first_byte_timeout_seconds": 1.5, "timeout_seconds": 60}]),
    );
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &config);
    for _ in 0..2 {
        assert_eq!(text(&gateway.get("/")), "second");
    }
    assert!(!silent.got().is_empty());
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx";
    let statuses: Vec<u16> = (0..2).map(|_| status(&gateway.send(post))).collect();
    assert!(statuses.contains(&504) && statuses.contains(&200), "{statuses:?}");
}

#[test]
fn a_change_of_configuration_keeps_what_did_not_change() {
    let backend = Backend::named("app");
    let upstream = json!([{"name": "app", "servers": [backend.url()]}]);
    let before = config(upstream.clone(), json!([{"name": "all", "upstream": "app"}]));
    let gateway = TestGateway::start(Unlimited, GatewaySettings::default(), &before);
    let mut client = gateway.connect();
    let mut ask = |path: &str| {
        client.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).unwrap();
        let mut head = [0; 12];
        client.read_exact(&mut head).unwrap();
        let mut rest = Vec::new();
        while !rest.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            rest.push(byte[0]);
        }
        let length = String::from_utf8(rest).unwrap().to_ascii_lowercase();
        let length =
            length.split("content-length: ").nth(1).unwrap().split('\r').next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        client.read_exact(&mut body).unwrap();
        String::from_utf8(head[9..].to_vec()).unwrap()
    };
    assert_eq!(ask("/"), "200");
    let after = config(upstream, json!([{"name": "some", "path": "/kept", "upstream": "app"}]));
    gateway.apply(&after);
    assert_eq!((ask("/kept").as_str(), ask("/").as_str()), ("200", "404"));
    assert_eq!(backend.connections(), 1, "the upstream's connection outlived the change");
}
